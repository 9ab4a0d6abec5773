"""Node `reject_call`: answers a refused call with a bounded, repairable observation (R28, R32, R41, R42)."""

from __future__ import annotations

from graph.state import DiagnosisState, load_tracker, tracker_update
from nodes.answering import answer_update, last_answered, others_rejected
from nodes.contract import CallInHand, Rejection
from nodes.events import request_rejected
from nodes.messages import rejection_observation
from nodes.node_run import NodeResult, NodeRun


async def reject_call(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Write the refused call's answer; the model may go on."""
    before = load_tracker(state)
    call = CallInHand.model_validate(state["call"])
    rejection = Rejection.model_validate(state["rejection"])
    after = before.with_answered(last_answered(state, call))
    known = frozenset(run.resources.tools)
    content = rejection_observation(rejection, call, run.run.language)
    events = [request_rejected(call, rejection, after, known)]
    events += others_rejected(state, call, after, known)
    update = answer_update(state, after, call, content, error=True) | tracker_update(before, after)
    return NodeResult(update, f"Told the model why: {rejection.error_code.value}.", events)
