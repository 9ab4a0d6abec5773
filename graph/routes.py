"""Where the graph goes next: pure functions of the state, one per node that has a choice.

Every route has an explicit path map in `PATHS`, so that the drawn picture is complete.
"""

from __future__ import annotations

from graph.contract import CollectionState, Intent
from graph.state import ChatState, DiagnosisState
from nodes.contract import EndCause
from release.contract import ReleaseStage

_STAGE_NODES = {ReleaseStage.GUARD_SEMANTICS: "guard_semantics", ReleaseStage.REPAIR_EVIDENCE: "repair_evidence"}


_INTENT_NODES = {
    Intent.SYSTEM_CHAT: "system_chat",
    Intent.KNOWLEDGE_QUERY: "answer_knowledge",
    Intent.DIAGNOSIS: "diagnosis",
}


def after_model_step(state: DiagnosisState) -> str:
    """Did the model ask for tools, or is collection over?"""
    return "validate_envelope" if state.get("requested") and not state.get("ended") else "project_progress"


def after_validate_envelope(state: DiagnosisState) -> str:
    """Does the call keep the protocol, and may the model still repair it?"""
    if state.get("ended"):
        return "project_progress"
    return _refused(state) or "dedup_scope"


def after_dedup_scope(state: DiagnosisState) -> str:
    """May this scope still be asked?"""
    if state.get("ended"):
        return "project_progress"
    return _refused(state) or "execute_tool"


def after_execute_tool(state: DiagnosisState) -> str:
    """Is there a result of a live run?"""
    return "project_progress" if state.get("ended") else "project_observation"


def after_project_observation(state: DiagnosisState) -> str:
    """Was the result delivered, withheld, or the one that saturated collection?"""
    if state.get("rejection"):
        return "reject_call"
    return "require_stop" if state.get("call") and _saturated(state) else "model_step"


def after_project_progress(state: DiagnosisState) -> str:
    """Is there a draft with a conclusion to be guarded?"""
    draft, ended = state.get("draft"), state.get("ended") or {}
    has_conclusion = draft is not None and draft.get("conclusion") is not None
    return "guard_evidence" if has_conclusion and ended.get("cause") == EndCause.DRAFT else "release"


def after_guard_evidence(state: DiagnosisState) -> str:
    """Does the evidence carry the draft, or may it be repaired once?"""
    stage = ReleaseStage((state.get("guard") or {}).get("next", ReleaseStage.RELEASE))
    return _STAGE_NODES.get(stage, "release")


def after_repair_evidence(state: DiagnosisState) -> str:
    """Is there a repaired draft to be guarded again?"""
    return "guard_evidence" if (state.get("guard") or {}).get("next") == ReleaseStage.GUARD_EVIDENCE else "release"


def after_route_intent(state: ChatState) -> str:
    """What is the question about? Without an intent the Run ends (R97)."""
    intent = state.get("intent")
    if state.get("reply") or intent is None:
        return "release"
    return _INTENT_NODES[Intent(intent)]


def _refused(state: DiagnosisState) -> str | None:
    if not state.get("rejection"):
        return None
    return "require_stop" if _saturated(state) else "reject_call"


def _saturated(state: DiagnosisState) -> bool:
    return bool(state["tracker"]["state"] == CollectionState.SATURATED)


PATHS = {
    "model_step": (after_model_step, ["validate_envelope", "project_progress"]),
    "validate_envelope": (
        after_validate_envelope,
        ["dedup_scope", "reject_call", "require_stop", "project_progress"],
    ),
    "dedup_scope": (after_dedup_scope, ["execute_tool", "reject_call", "require_stop", "project_progress"]),
    "execute_tool": (after_execute_tool, ["project_observation", "project_progress"]),
    "project_observation": (after_project_observation, ["model_step", "require_stop", "reject_call"]),
    "project_progress": (after_project_progress, ["guard_evidence", "release"]),
    "guard_evidence": (after_guard_evidence, ["repair_evidence", "guard_semantics", "release"]),
    "repair_evidence": (after_repair_evidence, ["guard_evidence", "release"]),
}
"""Node → (route, the nodes it may lead to)."""
