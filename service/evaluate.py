"""Scoring of recorded incidents: did a run publish, does what it shows hold the key fact, how much else did it show,
and how much of what the backends answered did the model have to read.

Pure but for `load_cases`. The runs themselves belong to the graph; the patterns to the cases, never to the code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from tools.contract import CanonicalRecord

EXPECTED_FILE = "expected.json"
CATALOG_FILE = "superbiz.toml"
MAX_EXPECTED_BYTES = 1024 * 1024
PUBLISHED = frozenset({"CONCLUSION", "FALLBACK"})


class EvaluationError(Exception):
    """The folder of cases cannot be used; one bounded line that says what is allowed."""


@dataclass(frozen=True, slots=True)
class Case:
    """One recorded incident: a folder with a catalogue, a question, and the pattern of the fact that explains it."""

    name: str
    catalog: Path
    question: str
    key_fact: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class ShownFact:
    """A statement a user is shown, and the calls it cites."""

    statement: str
    tool_call_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvidenceBytes:
    """UTF-8 JSON bytes of a run: observations `shown` to the model, and what backends answered, `raw` (R48, R55)."""

    shown: int = 0
    raw: int = 0

    def plus(self, other: EvidenceBytes) -> EvidenceBytes:
        """Return both as one."""
        return EvidenceBytes(self.shown + other.shown, self.raw + other.raw)


@dataclass(frozen=True, slots=True)
class CaseScore:
    """Score of one run. `matched_in` is "conclusion", "fact" or "". Facts without a citation count as not matching."""

    name: str
    outcome: str
    published: bool
    matched_in: str
    facts_shown: int
    facts_matching: int
    evidence: EvidenceBytes = EvidenceBytes()

    @property
    def matched(self) -> bool:
        """True when the key fact is in the conclusion or in a cited fact."""
        return bool(self.matched_in)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All scores with their totals."""

    scores: tuple[CaseScore, ...]

    @property
    def published(self) -> int:
        """Runs that ended published."""
        return sum(score.published for score in self.scores)

    @property
    def matched(self) -> int:
        """Runs that show the key fact."""
        return sum(score.matched for score in self.scores)

    @property
    def other_share(self) -> float | None:
        """Share of the shown facts that do not match, 0..1; None when no fact was shown."""
        shown = sum(score.facts_shown for score in self.scores)
        return 1 - sum(score.facts_matching for score in self.scores) / shown if shown else None

    @property
    def evidence(self) -> EvidenceBytes:
        """Bytes of all runs."""
        return reduce(EvidenceBytes.plus, (score.evidence for score in self.scores), EvidenceBytes())


def load_cases(folder: Path) -> tuple[Case, ...]:
    """Read `expected.json` (`{case: {question, key_fact}}`) and find each case's catalogue. Raises EvaluationError."""
    path = folder / EXPECTED_FILE
    try:
        raw = path.read_bytes()[: MAX_EXPECTED_BYTES + 1]
        data = json.loads(raw.decode("utf-8"))
    except FileNotFoundError:
        raise EvaluationError(f"{EXPECTED_FILE}: not found in the folder of cases") from None
    except (OSError, ValueError, RecursionError):
        raise EvaluationError(f"{EXPECTED_FILE}: must be a UTF-8 JSON object of at most 1 MiB") from None
    if not isinstance(data, dict) or not data:
        raise EvaluationError(f"{EXPECTED_FILE}: must map each case to an object with question and key_fact")
    return tuple(_case(folder, str(name), value) for name, value in data.items())


def _case(folder: Path, name: str, value: Any) -> Case:
    label = f"{EXPECTED_FILE}: {name[:64]}"
    question = value.get("question") if isinstance(value, dict) else None
    pattern = value.get("key_fact") if isinstance(value, dict) else None
    if not isinstance(question, str) or not question.strip() or not isinstance(pattern, str) or not pattern:
        raise EvaluationError(f"{label}: question and key_fact must be non-empty strings")
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        raise EvaluationError(f"{label}: key_fact must be a regular expression") from None
    catalog = folder / name / CATALOG_FILE
    if Path(name).name != name or name in {".", ".."} or not catalog.is_file():
        raise EvaluationError(f"{label}: needs a folder of that name with a {CATALOG_FILE}")
    return Case(name, catalog, question, compiled)


def shown_facts(result: Mapping[str, Any]) -> tuple[ShownFact, ...]:
    """Facts a PublishedResult (`findings`) or a SafeFallback (`observed_facts`) shows, as JSON data (R74, R92)."""
    facts = [
        ShownFact(str(item.get("statement", "")), _ids(item.get("tool_call_ids")))
        for item in _objects(result.get("findings"))
    ]
    facts += [
        ShownFact(str(item.get("statement", "")), _ids([item.get("tool_call_id")]))
        for item in _objects(result.get("observed_facts"))
    ]
    return tuple(facts)


def evidence_bytes(observation_bytes: int, records: Iterable[CanonicalRecord | None]) -> EvidenceBytes:
    """Set what the model was shown (the budget's count) beside the raw answers of the run's canonical records."""
    answers = [record.raw_response for record in records if record is not None and record.raw_response is not None]
    return EvidenceBytes(observation_bytes, sum(map(_json_bytes, answers)))


def score_case(
    name: str,
    key_fact: re.Pattern[str],
    outcome: str,
    result: Mapping[str, Any] | None,
    evidence: EvidenceBytes = EvidenceBytes(),
) -> CaseScore:
    """Score one run by its release outcome and the published result or fallback (None when nothing was published)."""
    shown = shown_facts(result or {})
    matching = [fact for fact in shown if fact.tool_call_ids and key_fact.search(fact.statement)]
    conclusion = (result or {}).get("conclusion")
    found = "fact" if matching else ""
    if isinstance(conclusion, str) and key_fact.search(conclusion):
        found = "conclusion"
    published = outcome in PUBLISHED and result is not None
    return CaseScore(name, outcome, published, found if published else "", len(shown), len(matching), evidence)


def evaluation_json(evaluation: Evaluation) -> dict[str, Any]:
    """The evaluation as JSON data."""
    share = evaluation.other_share
    return {
        "cases": [
            {
                "case": score.name,
                "outcome": score.outcome,
                "published": score.published,
                "matched_in": score.matched_in or None,
                "facts_shown": score.facts_shown,
                "facts_matching": score.facts_matching,
                "shown_bytes": score.evidence.shown,
                "raw_bytes": score.evidence.raw,
            }
            for score in evaluation.scores
        ],
        "published": evaluation.published,
        "matched": evaluation.matched,
        "other_facts_share": None if share is None else round(share, 3),
        "shown_bytes": evaluation.evidence.shown,
        "raw_bytes": evaluation.evidence.raw,
    }


def _json_bytes(value: Any) -> int:
    """Measure as observations are measured."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _objects(value: Any) -> Iterable[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _ids(value: Any) -> tuple[str, ...]:
    items: Sequence[Any] = value if isinstance(value, list) else ()
    return tuple(item for item in items if isinstance(item, str) and item)
