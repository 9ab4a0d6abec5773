"""Node `validate_envelope`: steps 0 and 1 of the fixed order (R28, R29, R34-R37, R57)."""

from __future__ import annotations

from graph.state import DiagnosisState, load_tracker, tracker_update
from nodes.answering import requested_calls
from nodes.contract import CollectionEnd, EndCause, Rejection
from nodes.events import saturation
from nodes.node_run import NodeResult, NodeRun
from nodes.progress_rules import judge_request


async def validate_envelope(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Check the message's calls against the protocol; end collection when the stop was delivered in an earlier turn."""
    tracker = load_tracker(state)
    ended = run.ended_on_entry()
    if ended is not None:
        return _ended(ended, f"Handled no call: the run is {ended.cause.value.lower()}.")
    if tracker.stop_was_delivered_before(state["position"]["turn"]):
        # The controlled stop (R57), a route and no exception that a framework could wrap (R4).
        return _ended(CollectionEnd(cause=EndCause.STOPPED), "A tool was asked for after the stop: collection ends.")
    judged = judge_request(tracker, requested_calls(state), run.resources.tools)
    update = {
        "call": judged.call.model_dump(mode="json"),
        **({"rejection": judged.rejection.model_dump(mode="json")} if judged.rejection else {}),
        **tracker_update(tracker, judged.tracker),
    }
    return NodeResult(update, _step(judged.call.tool_name, judged.rejection), saturation(tracker, judged.tracker))


def _step(tool_name: str, rejection: Rejection | None) -> str:
    if rejection is None:
        return f"The call to {tool_name} keeps the protocol."
    detail = rejection.violation_type or (rejection.invalid_input and rejection.invalid_input.rule)
    return f"The call is refused: {rejection.error_code.value}{f' ({detail})' if detail else ''}."


def _ended(end: CollectionEnd, step: str) -> NodeResult:
    return NodeResult({"ended": end.model_dump(mode="json")}, step)
