"""Node `dedup_scope`: steps 2 to 5 of the fixed order: evaluation, threshold, duplicate scope, budget (R37-R41)."""

from __future__ import annotations

from typing import Any

from graph.contract import DiagnosisStopReason, RequestErrorCode
from graph.state import DiagnosisState, load_budget, load_tracker, tracker_update
from nodes.contract import CallInHand, CollectionEnd, EndCause
from nodes.events import gain_events, saturation
from nodes.node_run import NodeResult, NodeRun
from nodes.progress_rules import Judged, judge_scope


async def dedup_scope(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Apply the previous evaluation, then decide whether this scope may still be asked."""
    before = load_tracker(state)
    judged, gains = judge_scope(Judged(before, CallInHand.model_validate(state["call"])))
    events = gain_events(gains)
    tracker, update = judged.tracker, dict[str, Any]()
    step = _step(judged)
    if judged.rejection is None:
        crossed = load_budget(state).crossed_before_tool(run.clock.now())
        if crossed is not None:
            tracker = tracker.stopped(DiagnosisStopReason.BUDGET_LIMIT_REACHED)
            events += saturation(judged.tracker, tracker)
            end = CollectionEnd(cause=EndCause.BUDGET, dimension=crossed)
            update, step = {"ended": end.model_dump(mode="json")}, f"The budget of {crossed.value} is used up."
    update |= {
        **({"rejection": judged.rejection.model_dump(mode="json")} if judged.rejection else {}),
        **tracker_update(before, tracker),
    }
    return NodeResult(update, step, events)


def _step(judged: Judged) -> str:
    if judged.rejection is None:
        assert judged.call.scope is not None
        return f"The scope is new: {judged.call.scope.summary[:80]}."
    if judged.rejection.error_code is RequestErrorCode.DUPLICATE_SCOPE:
        return f"The same scope was answered by {judged.rejection.duplicate_of_tool_call_id}."
    return "Too many results in a row taught nothing: this call is refused."
