"""Node `project_progress`: closes the tool loop and makes the one bounded snapshot (R58, R64-R66, R79)."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import ToolMessage

from graph.contract import RequestErrorCode, TraceEvent, TraceEventType
from graph.state import DiagnosisState, cleared, load_tracker
from graph.tracker import DiagnosisProgressTracker
from nodes.answering import requested_calls
from nodes.contract import CallInHand, CollectionEnd, EndCause, Rejection
from nodes.events import event, request_rejected
from nodes.evidence import indexed_records
from nodes.messages import tool_message
from nodes.node_run import NodeResult, NodeRun
from release.contract import ProgressSnapshot
from release.snapshot import project_snapshot


async def project_progress(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Answer what is still open with COLLECTION_STOPPED and project the Run's index into the snapshot."""
    tracker = load_tracker(state)
    end = CollectionEnd.model_validate(state["ended"])
    answers, rejections = _close(state, run, tracker)
    snapshot = project_snapshot(
        run.run.run_id,
        await indexed_records(run, tracker),
        tracker.stop_reason,
        end.cause is EndCause.BUDGET,
        end.cause in (EndCause.FAULT, EndCause.TIMED_OUT),
    )
    events = [*_stop_events(end, tracker, bool(answers)), *rejections, *_output_events(state, snapshot)]
    events.append(
        event(
            TraceEventType.PROGRESS_PROJECTED,
            checked=len(snapshot.checked),
            observed_facts=len(snapshot.observed_facts),
            limitations=[code.value for code in snapshot.limitations],
        )
    )
    update: dict[str, Any] = {
        "snapshot": snapshot.model_dump(mode="json"),
        **cleared(state, "requested", "call", "rejection"),
    }
    if answers:
        update["messages"] = answers
    step = (
        f"Collection ended ({end.cause.value}): {len(snapshot.checked)} scopes checked, "
        f"{len(snapshot.observed_facts)} facts verified."
    )
    return NodeResult(update, step, events)


def _close(
    state: DiagnosisState, run: NodeRun, tracker: DiagnosisProgressTracker
) -> tuple[list[ToolMessage], list[TraceEvent]]:
    # The thread must stay valid for providers and for replay: no call is left without an answer (R58).
    known = frozenset(run.resources.tools)
    in_hand = CallInHand.model_validate(state["call"]) if state.get("call") else None
    answers, events = list[ToolMessage](), list[TraceEvent]()
    for requested in requested_calls(state):
        content: dict[str, Any] = {"error_code": RequestErrorCode.COLLECTION_STOPPED.value}
        same = in_hand is not None and in_hand.tool_call_id == requested.tool_call_id
        if same and in_hand is not None and in_hand.evaluation_applied:
            content["previous_observation_applied"] = True
        answers.append(tool_message(requested.tool_call_id, requested.tool_name, content, error=True))
        call = CallInHand(tool_call_id=requested.tool_call_id, tool_name=requested.tool_name)
        stopped = Rejection(error_code=RequestErrorCode.COLLECTION_STOPPED)
        events.append(request_rejected(call, stopped, tracker, known))
    return answers, events


def _stop_events(end: CollectionEnd, tracker: DiagnosisProgressTracker, open_calls: bool) -> list[TraceEvent]:
    if end.cause in (EndCause.DRAFT, EndCause.OUTPUT_FAILURE) and not open_calls:
        return []
    return [
        event(
            TraceEventType.COLLECTION_STOPPED,
            stop_reason=tracker.stop_reason.value if tracker.stop_reason else None,
            dimension=end.dimension.value if end.dimension else None,
            cause=end.cause.value,
            fault=end.fault,
        )
    ]


def _output_events(state: DiagnosisState, snapshot: ProgressSnapshot) -> list[TraceEvent]:
    failure = state.get("output_failure")
    if not failure:
        return []
    return [
        event(
            TraceEventType.AGENT_OUTPUT_REJECTED,
            failure=failure["failure"],
            output_bytes=failure["output_bytes"],
            has_publishable_progress=bool(snapshot.observed_facts),
        )
    ]
