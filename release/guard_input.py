"""The bounded observations a guard's model call is shown (R90, R91, R117). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from release.bounding import cut_text, dump, fit_json, size
from release.contract import Analysis, DiagnosisDraft
from release.evidence import EvidenceView
from release.quotes import find_quotes

_MIN_SHARE = 160
_SCOPE_BYTES = 600


def guard_input(head: Mapping[str, Any], views: Sequence[EvidenceView], draft: DiagnosisDraft, max_bytes: int) -> str:
    """Return `head` plus bounded `observations` of the calls as one JSON text of at most `max_bytes` UTF-8 bytes.

    `head` goes in whole. Every call gets an equal share of the rest, what small ones leave goes to the others; quoted
    texts are cut last. Calls for which no room is left are counted in `observations_left_out`.
    """
    budget = max_bytes - size({**head, "observations": [], "observations_left_out": len(views)})
    shown: list[dict[str, Any]] = []
    waiting = sorted(views, key=lambda view: size(view.shown))
    for at, view in enumerate(waiting):
        share = budget // (len(waiting) - at)
        if share < _MIN_SHARE:
            continue
        observation = _observation(view, share, _wanted(draft.analyses, view))
        cost = size(observation) + 1
        if cost <= share:
            shown.append(observation)
            budget -= cost
    order = {view.tool_call_id: at for at, view in enumerate(views)}
    shown.sort(key=lambda each: order[each["tool_call_id"]])
    left_out = len(views) - len(shown)
    return dump({**head, "observations": shown, **({"observations_left_out": left_out} if left_out else {})})


def cited_views(draft: DiagnosisDraft, evidence: Mapping[str, EvidenceView]) -> list[EvidenceView]:
    """Return the known calls that a draft cites, in the order of its analyses, each once."""
    calls = dict.fromkeys(call for analysis in draft.analyses for call in analysis.tool_call_ids)
    return [evidence[call] for call in calls if call in evidence]


def _observation(view: EvidenceView, share: int, wanted: Sequence[str]) -> dict[str, Any]:
    scope, scope_cut = fit_json(dict(view.shown_scope), min(_SCOPE_BYTES, max(share // 4, 16)), wanted)
    fixed = {
        "tool_call_id": view.tool_call_id,
        "results": view.kind.value,
        "evidence_status": view.evidence_status.value if view.evidence_status else None,
        "scope": scope,
        "shortened_for_review": True,
        "result": None,
    }
    result, cut = fit_json(_told(view.shown), max(share - size(fixed) - 1, 16), wanted)
    return {**fixed, "shortened_for_review": cut or scope_cut, "result": result}


def _told(value: Any) -> Any:
    """Leave out fields that say nothing: a reviewer has better use for the bytes."""
    if isinstance(value, Mapping):
        return {key: _told(each) for key, each in value.items() if each is not None}
    return [_told(each) for each in value] if isinstance(value, list | tuple) else value


def _wanted(analyses: Iterable[Analysis], view: EvidenceView) -> list[str]:
    citing = (analysis for analysis in analyses if view.tool_call_id in analysis.tool_call_ids)
    return [cut_text(text, 200) for analysis in citing for text in find_quotes(analysis.statement).texts]
