"""The user's result, and what of it the next question's prompts may see (R74, R99, R100). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from release.bounding import clean_text, cut_text, dump, size
from release.contract import (
    MAX_PREVIOUS_TURN_BYTES,
    Analysis,
    DiagnosisDraft,
    Finding,
    LimitationCode,
    ProgressSnapshot,
    PublishedLimitations,
    PublishedResult,
    PublishedScope,
    ReleaseOutcome,
    SafeFallback,
)

_OPERATORS_ONLY = frozenset(
    {
        LimitationCode.STOPPED_INFORMATION_SATURATED,
        LimitationCode.STOPPED_BUDGET,
        LimitationCode.STOPPED_PROTOCOL,
    }
)
"""A conclusion after a stop is a normal one; the stop reason stays in the trace (R88d)."""


def build_published(query: str, draft: DiagnosisDraft, snapshot: ProgressSnapshot) -> PublishedResult:
    """Build the result of a draft whose conclusion passed both guards (R74).

    Findings are the supporting analyses in the conclusion's order, then the others, all of them guarded. Raises
    ValueError when the draft has no conclusion.
    """
    conclusion = draft.conclusion
    if conclusion is None:
        raise ValueError("conclusion: must not be null")
    order = {each: at for at, each in enumerate(dict.fromkeys(conclusion.supporting_analysis_ids))}
    analyses = sorted(draft.analyses, key=lambda analysis: order.get(analysis.analysis_id, len(order)))
    return PublishedResult(
        query=clean_text(query),
        outcome=ReleaseOutcome.CONCLUSION,
        conclusion=clean_text(conclusion.statement),
        findings=[_finding(analysis) for analysis in analyses],
        scope=[
            PublishedScope(tool_name=each.tool_name, scope=each.scope, evidence_status=each.evidence_status)
            for each in snapshot.checked
        ],
        limitations=PublishedLimitations(
            missing_info=[clean_text(note) for note in draft.limitations.missing_info if note.strip()],
            unverified=[clean_text(note) for note in draft.limitations.unverified if note.strip()],
            notes=[code for code in snapshot.limitations if code not in _OPERATORS_ONLY],
        ),
        documents=list(snapshot.documents),
    )


def _finding(analysis: Analysis) -> Finding:
    return Finding(
        statement=clean_text(analysis.statement),
        kind=analysis.kind,
        tool_call_ids=list(dict.fromkeys(analysis.tool_call_ids)),
    )


def previous_turn_text(
    query: str, result: PublishedResult | SafeFallback, max_bytes: int = MAX_PREVIOUS_TURN_BYTES
) -> str:
    """Return one JSON object of at most `max_bytes` UTF-8 bytes (at least 256): the previous turn as data (R99).

    It carries what was asked, answered and left open, and no progress: no tool names, no counts, and no tool_call_id of
    the old Run, not even inside a statement (R100). What does not fit goes: documents, scope, findings, notes, text.
    """
    if isinstance(result, PublishedResult):
        parts, calls = _of_result(result)
    else:
        parts, calls = _of_fallback(result)
    return _fit({"query": query, **parts}, _scrubber(calls), max_bytes)


def _of_result(result: PublishedResult) -> tuple[dict[str, Any], list[str]]:
    limits = result.limitations
    parts = {
        "outcome": result.outcome.value,
        "conclusion": result.conclusion,
        "missing_info": list(limits.missing_info),
        "unverified": list(limits.unverified),
        "findings": [finding.statement for finding in result.findings],
        "scope": [_in_order(each.scope) for each in result.scope],
        "documents": [document.title for document in result.documents],
    }
    return parts, [call for finding in result.findings for call in finding.tool_call_ids]


def _of_fallback(fallback: SafeFallback) -> tuple[dict[str, Any], list[str]]:
    parts = {
        "outcome": ReleaseOutcome.FALLBACK.value,
        "reason": fallback.reason.value,
        "missing_info": list(fallback.limitations.missing_info),
        "findings": [fact.statement for fact in fallback.observed_facts],
        "scope": [_in_order(step.scope) for step in fallback.process],
    }
    return parts, [fact.tool_call_id for fact in fallback.observed_facts]


def _in_order(scope: Mapping[str, Any]) -> dict[str, Any]:
    """Order the keys: a store or a bundle that gives them back in another order must not change the text."""
    return dict(sorted(scope.items()))


def _scrubber(calls: Iterable[str]) -> Callable[[str], str]:
    """Remove old ids from texts. A short bare number is left alone: as an id it could not be told from a count."""
    ids = sorted({call for call in calls if not call.isdigit() or len(call) > 5}, key=len, reverse=True)
    if not ids:
        return clean_text
    pattern = re.compile(rf"(?<![A-Za-z0-9_])(?:{'|'.join(map(re.escape, ids))})(?![A-Za-z0-9_])")
    return lambda text: pattern.sub("-", clean_text(text))


def _fit(parts: dict[str, Any], clean: Callable[[str], str], max_bytes: int) -> str:
    parts = _map_texts(parts, clean)
    for name in ("documents", "scope", "findings", "unverified", "missing_info"):
        while parts.get(name) and size(parts) > max_bytes:
            parts = {**parts, name: parts[name][:-1]}
    parts = {name: value for name, value in parts.items() if value not in ([], None)}
    for limit in (400, 200, 100, 40, 10, 0):
        if size(parts) <= max_bytes:
            break
        parts = {name: cut_text(value, limit) if name in _CUT else value for name, value in parts.items()}
    return dump(parts)


_CUT = frozenset({"query", "conclusion"})


def _map_texts(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {str(key): _map_texts(item, clean) for key, item in value.items()}
    if isinstance(value, list):
        return [_map_texts(item, clean) for item in value]
    return value
