"""How good a search is on labelled queries, and which thresholds fit a corpus (R54). Pure but for the search given."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.rag.folder import KnowledgeError
from tools.rag.score import Hit

Search = Callable[[str], Sequence[Hit]]
"""Hits of one query, best first; `Hit.source` is what labels name."""
DEPTH = 5
_STEP = 0.02


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A query and the sources that answer it; none when the corpus has no answer."""

    query: str
    relevant: frozenset[str]


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

    @property
    def place(self) -> int | None:
        return next((place for place, (source, _) in enumerate(self.best, 1) if source in self.relevant), None)


def load_queries(path: Path) -> list[LabelledQuery]:
    """Read JSON lines `{"query": str, "relevant": [source]}`; other keys are ignored. Raises KnowledgeError."""
    queries: list[LabelledQuery] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise KnowledgeError(f"queries {path.name}: file cannot be read as UTF-8 text") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            query, relevant = row["query"], row["relevant"]
            if not isinstance(query, str) or not isinstance(relevant, list):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise KnowledgeError(
                f'queries {path.name}: line {number}: must be {{"query": text, "relevant": [source, ...]}}'
            ) from None
        queries.append(LabelledQuery(query, frozenset(map(str, relevant))))
    return queries


def calibrate(queries: Sequence[LabelledQuery], search: Search) -> Calibration:
    """Run labelled queries and tabulate precision and recall per threshold (R54)."""
    judged = [_Judged(query.relevant, _best_files(search(query.query))) for query in queries]
    answerable = [entry for entry in judged if entry.relevant]
    rows = tuple(_row(judged, step * _STEP) for step in range(1, round(1 / _STEP)))
    places = [entry.place for entry in answerable]
    return Calibration(
        queries=len(judged),
        answerable=len(answerable),
        recall_at_3=_share([place is not None and place <= 3 for place in places]),
        recall_at_5=_share([place is not None and place <= DEPTH for place in places]),
        mrr=sum(1 / place for place in places if place) / len(places) if places else 0.0,
        rows=rows,
        high=_least(rows, lambda row: row.rejected >= 0.95),
        reference=_least(rows, lambda row: row.rejected >= 0.80),
    )


def format_calibration(result: Calibration) -> str:
    """Return the table as plain text for a terminal or the docs."""
    head = (
        f"{result.queries} queries, {result.answerable} answerable: "
        f"R@3 {result.recall_at_3:.3f}  R@5 {result.recall_at_5:.3f}  MRR {result.mrr:.3f}\n"
        f"suggested: high = {result.high:.2f}, reference = {result.reference:.2f}\n"
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


def _least(rows: Sequence[ThresholdRow], enough: Callable[[ThresholdRow], bool]) -> float:
    return next((row.threshold for row in rows if enough(row)), rows[-1].threshold)


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else 0.0
