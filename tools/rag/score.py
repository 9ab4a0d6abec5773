"""The bounded score behind `relevance_level` (R54). Pure.

The score is the share of the query's idf² that a text covers, so it means the same for every query; a term the corpus
does not know weighs most, because it is what the question is about. A document's score is the mean of its own coverage
and that of the file it comes from, and for a part the share of its heading that the query names: words that meet by chance
stand in bodies, what a passage is about stands in its heading. A name in the query (`Terraform`, `KubeJobFailed`) that the
passage lacks takes away up to half: `state lock cannot be acquired` means something else for each product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

from tools.contract import RelevanceLevel

IDF_FLOOR_CHUNKS = 1000
"""A corpus is taken to hold at least this many chunks: a term found in three of ten runbooks is not yet common."""
MAX_FILES = 5
"""Only the files that BM25 puts first are judged: further down, words that match by chance pass for an answer."""
MAX_CHUNKS_PER_FILE = 2
HEADING_SHARE = 0.25
"""Part of the score that the heading makes."""
LACKING_NAMES_COST = 0.5
"""Share of the score that is lost where all names of the query are lacking."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Least scores of the two levels, 0 to 1 (R54)."""

    high: float
    reference: float


@dataclass(frozen=True, slots=True)
class Hit:
    """One chunk that a search found. `score` is the bounded score of R54, `rank` BM25 (greater is better)."""

    document_id: str
    title: str
    source: str
    content: str
    rank: float
    score: float


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """A hit that reached a level."""

    hit: Hit
    level: RelevanceLevel


def term_weights(document_counts: Mapping[str, int], chunks: int) -> dict[str, float]:
    """Return idf² per query term; `document_counts` says in how many of the `chunks` each occurs."""
    total = max(chunks, IDF_FLOOR_CHUNKS)
    return {term: _idf(count, total) ** 2 for term, count in document_counts.items()}


def _idf(count: int, total: int) -> float:
    count = min(count, total)
    return math.log(1 + (total - count + 0.5) / (count + 0.5))


def coverage(weights: Mapping[str, float], present: Set[str]) -> float:
    """Return the share of the weight that the present terms cover, 0 to 1; 0 for an empty query."""
    whole = sum(weights.values())
    return sum(weight for term, weight in weights.items() if term in present) / whole if whole > 0 else 0.0


def document_score(
    weights: Mapping[str, float],
    chunk_terms: Set[str],
    file_terms: Set[str],
    heading_terms: Collection[str],
    names: Collection[Sequence[str]],
) -> float:
    """Return the bounded score of a chunk, 0 to 1.

    A name is there when its whole, which comes first in it, or all its parts are.
    """
    covered = (coverage(weights, chunk_terms) + coverage(weights, file_terms)) / 2
    headed = sum(term in weights for term in heading_terms) / len(heading_terms) if heading_terms else 0.0
    lacking = [name for name in names if name[0] not in chunk_terms and not _has_parts(chunk_terms, name[1:])]
    kept = 1 - LACKING_NAMES_COST * len(lacking) / len(names) if names else 1.0
    return kept * ((1 - HEADING_SHARE) * covered + HEADING_SHARE * headed)


def _has_parts(chunk_terms: Set[str], parts: Sequence[str]) -> bool:
    return bool(parts) and all(part in chunk_terms for part in parts)


def relevance_level(score: float, thresholds: Thresholds) -> RelevanceLevel | None:
    """Return the level a score reaches; None when the document is dropped."""
    if score >= thresholds.high:
        return RelevanceLevel.HIGH
    return RelevanceLevel.REFERENCE if score >= thresholds.reference else None


def first_of_files(ordered: Iterable[T], source: Callable[[T], str]) -> list[T]:
    """Return the first `MAX_CHUNKS_PER_FILE` of each of the first `MAX_FILES` files, order kept."""
    counts: dict[str, int] = {}
    kept: list[T] = []
    for each in ordered:
        name = source(each)
        if name in counts or len(counts) < MAX_FILES:
            counts[name] = counts.get(name, 0) + 1
            if counts[name] <= MAX_CHUNKS_PER_FILE:
                kept.append(each)
    return kept


def rank_documents(hits: Sequence[Hit], thresholds: Thresholds) -> list[RankedDocument]:
    """Judge the first `MAX_FILES` files by BM25: the best chunk of each in order, then their second chunks.

    A file whose best chunk is below REFERENCE is dropped whole. Several files come before more of the same one.
    """
    files: dict[str, list[Hit]] = {}
    ordered = sorted(hits, key=lambda hit: (-hit.rank, hit.document_id))
    for hit in first_of_files(ordered, lambda hit: hit.source):
        files.setdefault(hit.source, []).append(hit)
    chosen = [[(hit, relevance_level(hit.score, thresholds)) for hit in of_file] for of_file in files.values()]
    kept = [of_file for of_file in chosen if of_file[0][1] is not None]
    return [
        RankedDocument(hit, level)
        for place in range(MAX_CHUNKS_PER_FILE)
        for of_file in kept
        for hit, level in of_file[place : place + 1]
        if level is not None
    ]


def interleave(rankings: Sequence[Sequence[RankedDocument]]) -> list[RankedDocument]:
    """Merge the rankings of several folders place by place, best score first: BM25 does not compare across indexes."""
    places = enumerate(rankings)
    entries = [
        (place, -ranked.hit.score, number, ranked) for number, ranking in places for place, ranked in enumerate(ranking)
    ]
    return [ranked for *_, ranked in sorted(entries, key=lambda entry: entry[:3])]
