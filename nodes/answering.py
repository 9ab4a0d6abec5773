"""The update that answers the call in hand and every other call of its message (R29). Pure."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage

from graph.contract import RequestErrorCode, TraceEvent
from graph.state import DiagnosisState, cleared
from graph.tracker import DiagnosisProgressTracker
from nodes.contract import CallInHand, RequestedCall
from nodes.events import other_rejected
from nodes.messages import answer_others, tool_message


def requested_calls(state: DiagnosisState) -> list[RequestedCall]:
    """Return the calls of the last assistant message, in order; arguments stand in the message unless kept apart."""
    requested = state.get("requested") or []
    if not requested:
        return []
    last = next(m for m in reversed(state["messages"]) if isinstance(m, AIMessage))
    arguments = {call["id"]: call["args"] for call in last.tool_calls}
    return [RequestedCall(**{"arguments": arguments.get(call["tool_call_id"]), **call}) for call in requested]


def answer_update(
    state: DiagnosisState,
    tracker: DiagnosisProgressTracker,
    call: CallInHand,
    content: dict[str, Any],
    *,
    error: bool = False,
    at_threshold: bool = False,
) -> dict[str, Any]:
    """Write the ToolMessage of the call in hand and of all others, and put the call away."""
    answers = [tool_message(call.tool_call_id, call.tool_name, content, error=error)]
    answers += answer_others(
        requested_calls(state),
        call.tool_call_id,
        tracker.pending_tool_call_id,
        tracker.stop_reason if tracker.saturated else None,
        at_threshold=at_threshold,
    )
    return {"messages": answers, **cleared(state, "requested", "call", "rejection")}


def last_answered(state: DiagnosisState, call: CallInHand) -> str:
    """Tool Call ID of the answer that will stand last: the message's last call (R27)."""
    requested = requested_calls(state)
    return requested[-1].tool_call_id if requested else call.tool_call_id


def others_rejected(
    state: DiagnosisState,
    call: CallInHand,
    tracker: DiagnosisProgressTracker,
    known: frozenset[str],
    code: RequestErrorCode = RequestErrorCode.INVALID_PROGRESS_PROTOCOL,
) -> list[TraceEvent]:
    """Trace events of the calls that were not looked at (R106)."""
    return [
        other_rejected(other.tool_call_id, other.tool_name, code, tracker, known)
        for other in requested_calls(state)
        if other.tool_call_id != call.tool_call_id
    ]
