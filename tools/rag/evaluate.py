"""How good a search is on labelled queries, and which thresholds fit a corpus (R54). Pure but for the search given."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.contract import RelevanceLevel
from tools.rag.folder import KnowledgeError
from tools.rag.request import MAX_QUERY_CHARS
from tools.rag.score import Hit, Thresholds, rank_documents
from tools.rag.thresholds import MAX_THRESHOLD, rarely_reached, rejecting

Search = Callable[[str], Sequence[Hit]]
"""Hits of one query, best first; `Hit.source` is what labels name."""
DEPTH = 5
MAX_QUERIES_BYTES = 4 * 1024 * 1024
MAX_QUERIES = 5_000
MAX_SOURCES = 100
MIN_OF_EACH = 4
"""Least answerable and least unanswerable queries: two of each in either half."""
REJECTED = 0.90
"""Share of the unanswerable queries that should get no document at all. Four in five are asked for; what people ask later is
harder than what they thought of first."""
FALSE_HIGH = 0.05
"""Share of them that may get a HIGH one."""
HIGH_ABOVE_REFERENCE = 2
"""HIGH is at least so many times REFERENCE: few labelled queries can lie so close together that their bound is worth little."""
_STEP = 0.02


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A query and the sources that answer it; none when the corpus has no answer. `line` is where it was written."""

    query: str
    relevant: frozenset[str]
    line: int = 0


@dataclass(frozen=True, slots=True)
class ThresholdRow:
    """What happens at one threshold, as shares 0 to 1.

    `precision` and `recall` judge documents among each query's best five files; `answered` is the share of answerable
    queries that keep a relevant document, `rejected` the share of unanswerable ones that keep none at all.
    """

    threshold: float
    precision: float
    recall: float
    answered: float
    rejected: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Ranking quality (threshold-free), the table, and the thresholds it suggests."""

    queries: int
    answerable: int
    recall_at_3: float
    recall_at_5: float
    mrr: float
    rows: tuple[ThresholdRow, ...]
    high: float
    reference: float

    def row(self, threshold: float) -> ThresholdRow:
        """Return the row nearest to a threshold."""
        return min(self.rows, key=lambda row: abs(row.threshold - threshold))


@dataclass(frozen=True, slots=True)
class _Judged:
    relevant: frozenset[str]
    best: tuple[tuple[str, float], ...]
    """Files in order, each with the score that keeps or drops it: its first passage's."""
    highest: float
    """Best score of any passage that is judged."""

    @staticmethod
    def of(query: LabelledQuery, hits: Sequence[Hit]) -> _Judged:
        """Read the hits as `rank_documents` does."""
        shown = rank_documents(hits, Thresholds(high=0.0, reference=0.0))
        return _Judged(query.relevant, _best_files(hits), max((each.hit.score for each in shown), default=0.0))

    @property
    def kept_up_to(self) -> float:
        """Least threshold above which nothing is shown."""
        return max((score for _, score in self.best), default=0.0)

    @property
    def place(self) -> int | None:
        return next((place for place, (source, _) in enumerate(self.best, 1) if source in self.relevant), None)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the tool itself does at given thresholds, as shares 0 to 1.

    `false_high` and `rejected` are shares of the unanswerable queries (a HIGH document; none at all), `answered` is the
    share of the answerable ones that get any document.
    """

    thresholds: Thresholds
    false_high: float
    rejected: float
    answered: float


@dataclass(frozen=True, slots=True)
class Proposal:
    """Thresholds chosen on one half of the queries and judged on the other; `swapped` is the same the other way."""

    held: Judgement
    swapped: Judgement


def load_queries(path: Path) -> list[LabelledQuery]:
    """Read JSON lines `{"query": str, "relevant": [source]}`; other keys are ignored. Raises KnowledgeError."""
    label = f"queries {path.name[:64]}"
    try:
        with path.open("rb") as file:
            data = file.read(MAX_QUERIES_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise KnowledgeError(f"{label}: must be a readable file of UTF-8 text") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(data) > MAX_QUERIES_BYTES or len(lines) > MAX_QUERIES:
        raise KnowledgeError(f"{label}: must be at most {MAX_QUERIES:,} lines and 4 MiB")
    return [_labelled(label, number, line) for number, line in lines]


def _labelled(file: str, number: int, line: str) -> LabelledQuery:
    label = f"{file}: line {number}"
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise KnowledgeError(f'{label}: must be a JSON object {{"query": text, "relevant": [source, ...]}}')
    query, relevant = row.get("query"), row.get("relevant")
    if not isinstance(query, str) or not query.strip() or len(query) > MAX_QUERY_CHARS:
        raise KnowledgeError(f"{label}: query: must be text of 1 to {MAX_QUERY_CHARS} characters")
    if (
        not isinstance(relevant, list)
        or len(relevant) > MAX_SOURCES
        or not all(isinstance(source, str) and source for source in relevant)
    ):
        raise KnowledgeError(
            f"{label}: relevant: must be a list of at most {MAX_SOURCES} sources, [] where the corpus has no answer"
        )
    return LabelledQuery(query, frozenset(relevant), number)


def propose(queries: Sequence[LabelledQuery], search: Search) -> Proposal:
    """Choose thresholds on every second query and judge them on the rest (R54). Raises KnowledgeError for too few."""
    answerable = [query for query in queries if query.relevant]
    hopeless = [query for query in queries if not query.relevant]
    if min(len(answerable), len(hopeless)) < MIN_OF_EACH:
        raise KnowledgeError(
            f"queries: {len(answerable)} with and {len(hopeless)} without a relevant source; "
            f"thresholds need at least {MIN_OF_EACH} of each"
        )
    halves = [answerable[start::2] + hopeless[start::2] for start in (0, 1)]
    return Proposal(_held(halves[0], halves[1], search), _held(halves[1], halves[0], search))


def _held(chosen_on: Sequence[LabelledQuery], judged_on: Sequence[LabelledQuery], search: Search) -> Judgement:
    chosen = calibrate(chosen_on, search)
    return judge(judged_on, search, Thresholds(chosen.high, chosen.reference))


def judge(queries: Sequence[LabelledQuery], search: Search, thresholds: Thresholds) -> Judgement:
    """Run labelled queries the way the tool does and tell how the levels come out."""
    levels = [(query, {entry.level for entry in rank_documents(search(query.query), thresholds)}) for query in queries]
    hopeless = [found for query, found in levels if not query.relevant]
    return Judgement(
        thresholds=thresholds,
        false_high=_share([RelevanceLevel.HIGH in found for found in hopeless]),
        rejected=_share([not found for found in hopeless]),
        answered=_share([bool(found) for query, found in levels if query.relevant]),
    )


def format_proposal(proposal: Proposal, current: Judgement) -> str:
    """Return the proposed thresholds and the catalogue's own, each with what it does, as plain text."""
    rows = (
        ("proposed: chosen on one half, judged on the other", proposal.held),
        ("the same, halves swapped", proposal.swapped),
        ("catalogue's thresholds, all queries", current),
    )
    return "\n".join(
        f"{name:<50} high {row.thresholds.high:.2f}  reference {row.thresholds.reference:.2f}  "
        f"answered {row.answered:.2f}  rejected {row.rejected:.2f}  false HIGH {row.false_high:.2f}"
        for name, row in rows
    )


def calibrate(queries: Sequence[LabelledQuery], search: Search) -> Calibration:
    """Run labelled queries and tabulate precision and recall per threshold (R54)."""
    judged = [_Judged.of(query, search(query.query)) for query in queries]
    answerable = [entry for entry in judged if entry.relevant]
    hopeless = [entry for entry in judged if not entry.relevant]
    reference = rejecting([entry.kept_up_to for entry in hopeless], REJECTED)
    high = rarely_reached([entry.highest for entry in hopeless], 1 - FALSE_HIGH)
    rows = tuple(_row(judged, step * _STEP) for step in range(1, round(1 / _STEP)))
    places = [entry.place for entry in answerable]
    return Calibration(
        queries=len(judged),
        answerable=len(answerable),
        recall_at_3=_share([place is not None and place <= 3 for place in places]),
        recall_at_5=_share([place is not None and place <= DEPTH for place in places]),
        mrr=sum(1 / place for place in places if place) / len(places) if places else 0.0,
        rows=rows,
        high=min(MAX_THRESHOLD, max(high, round(HIGH_ABOVE_REFERENCE * reference, 2))),
        reference=reference,
    )


def format_calibration(result: Calibration) -> str:
    """Return the table as plain text for a terminal or the docs."""
    head = (
        f"{result.queries} queries, {result.answerable} answerable: "
        f"R@3 {result.recall_at_3:.3f}  R@5 {result.recall_at_5:.3f}  MRR {result.mrr:.3f}\n"
        "threshold  precision  recall  answered  rejected"
    )
    lines = (
        f"{row.threshold:9.2f}  {row.precision:9.2f}  {row.recall:6.2f}  {row.answered:8.2f}  {row.rejected:8.2f}"
        for row in result.rows
        if row.threshold <= 0.7
    )
    return "\n".join((head, *lines))


def _best_files(hits: Sequence[Hit]) -> tuple[tuple[str, float], ...]:
    best: dict[str, float] = {}
    for hit in hits:
        best.setdefault(hit.source, hit.score)
    return tuple(best.items())[:DEPTH]


def _row(judged: Sequence[_Judged], threshold: float) -> ThresholdRow:
    kept = [(entry, [source for source, score in entry.best if score >= threshold]) for entry in judged]
    right = sum(len(entry.relevant.intersection(sources)) for entry, sources in kept)
    shown = sum(len(sources) for _, sources in kept)
    findable = sum(len(entry.relevant.intersection(source for source, _ in entry.best)) for entry in judged)
    return ThresholdRow(
        threshold=round(threshold, 2),
        precision=right / shown if shown else 1.0,
        recall=right / findable if findable else 0.0,
        answered=_share([bool(entry.relevant.intersection(sources)) for entry, sources in kept if entry.relevant]),
        rejected=_share([not sources for entry, sources in kept if not entry.relevant]),
    )


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else 0.0
