"""Node `require_stop`: delivers the stop directive once; the model has one chance left to write a Draft (R56-R61)."""

from __future__ import annotations

from graph.contract import RequestErrorCode
from graph.state import DiagnosisState, load_tracker, tracker_update
from nodes.answering import answer_update, last_answered, others_rejected
from nodes.contract import CallInHand, Rejection
from nodes.events import request_rejected
from nodes.messages import stop_observation
from nodes.node_run import NodeResult, NodeRun


async def require_stop(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Answer the call in hand with the stop pair, or add the pair to its own observation."""
    before = load_tracker(state)
    call = CallInHand.model_validate(state["call"])
    rejection = Rejection.model_validate(state["rejection"]) if state.get("rejection") else None
    assert before.stop_reason is not None
    after = before.with_answered(last_answered(state, call)).with_stop_delivered(state["position"]["turn"])
    at_threshold = rejection is not None and rejection.error_code is RequestErrorCode.PROGRESS_PROTOCOL_VIOLATED
    known = frozenset(run.resources.tools)
    events = [request_rejected(call, rejection, after, known)] if rejection else []
    others = RequestErrorCode.PROGRESS_PROTOCOL_VIOLATED if at_threshold else RequestErrorCode.INVALID_PROGRESS_PROTOCOL
    events += others_rejected(state, call, after, known, others)
    content = stop_observation(call, before.stop_reason)
    update = answer_update(state, after, call, content, error=rejection is not None, at_threshold=at_threshold)
    update |= tracker_update(before, after)
    return NodeResult(update, f"Told the model to stop: {before.stop_reason.value}.", events)
