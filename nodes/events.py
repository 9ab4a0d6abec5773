"""Trace events of the harness, built from control values only (R103-R106). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graph.contract import RequestErrorCode, TraceEvent, TraceEventType, ViolationType
from graph.tracker import DiagnosisProgressTracker
from nodes.contract import CallInHand, Rejection
from nodes.progress_rules import AppliedGain
from tools.contract import CanonicalRecord, ControlView, EvidenceStatus, ToolErrorCode


def event(kind: TraceEventType, **fields: Any) -> TraceEvent:
    """Build an event; fields that are None are left out."""
    return TraceEvent(type=kind, fields={name: value for name, value in fields.items() if value is not None})


def gain_events(gains: Iterable[AppliedGain]) -> list[TraceEvent]:
    """Record applied evaluations and, where one saturated the tracker, the saturation (R103, R108)."""
    events = list[TraceEvent]()
    for gain in gains:
        applied = event(
            TraceEventType.INFORMATION_GAIN_APPLIED,
            tool_call_id=gain.tool_call_id,
            producer=gain.producer,
            information_gain=gain.gain.value,
            before=gain.before.consecutive_no_gain,
            after=gain.after.consecutive_no_gain,
            collection_state=gain.after.state.value,
        )
        events += [applied, *saturation(gain.before, gain.after)]
    return events


def saturation(before: DiagnosisProgressTracker, after: DiagnosisProgressTracker) -> list[TraceEvent]:
    """Record the move from COLLECTING to SATURATED, if this step made it."""
    if before.saturated or not after.saturated or after.stop_reason is None:
        return []
    return [
        event(
            TraceEventType.COLLECTION_SATURATED,
            stop_reason=after.stop_reason.value,
            collection_state=after.state.value,
        )
    ]


def request_rejected(
    call: CallInHand, rejection: Rejection, tracker: DiagnosisProgressTracker, known_tools: frozenset[str]
) -> TraceEvent:
    """Record that a request was not executed or not delivered (R105, R106)."""
    protocol = rejection.violation_type is not None
    stop = tracker.stop_reason.value if protocol and tracker.stop_reason else None
    return event(
        TraceEventType.TOOL_REQUEST_REJECTED,
        tool_call_id=call.tool_call_id,
        # A name that is no tool's is the model's own text and stays out of the trace.
        tool_name=call.tool_name if call.tool_name in known_tools else "unknown",
        error_code=rejection.error_code.value,
        violation_type=rejection.violation_type.value if rejection.violation_type else None,
        repair_prompt_delivered=(not tracker.saturated) if protocol else None,
        consecutive_protocol_violations=tracker.consecutive_protocol_violations if protocol else None,
        stop_reason=stop,
        rule=rejection.invalid_input.rule if rejection.invalid_input else None,
    )


def other_rejected(
    tool_call_id: str,
    tool_name: str,
    code: RequestErrorCode,
    tracker: DiagnosisProgressTracker,
    known_tools: frozenset[str],
) -> TraceEvent:
    """Record the answer of a call that was never looked at because its message carried several (R29, R105, R106)."""
    return event(
        TraceEventType.TOOL_REQUEST_REJECTED,
        tool_call_id=tool_call_id,
        tool_name=tool_name if tool_name in known_tools else "unknown",
        error_code=code.value,
        violation_type=ViolationType.PARALLEL_TOOL_CALL.value,
        repair_prompt_delivered=not tracker.saturated,
        consecutive_protocol_violations=tracker.consecutive_protocol_violations,
        stop_reason=tracker.stop_reason.value if tracker.stop_reason else None,
    )


def tool_completed(call: CallInHand, control: ControlView) -> TraceEvent:
    """Record a call that ended with a result (R103, R108)."""
    return event(
        TraceEventType.TOOL_CALL_COMPLETED,
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        scope_summary=control.scope.summary,
        scope_hash=control.scope.key,
        evidence_status=control.evidence_status.value if control.evidence_status else None,
        returned_count=control.returned_count,
        truncated=control.truncated,
        relevance_level=control.relevance_level.value if control.relevance_level else None,
    )


def tool_failed(call: CallInHand, record: CanonicalRecord, code: ToolErrorCode) -> TraceEvent:
    """Record a call that ended without one: its stable code alone."""
    return event(
        TraceEventType.TOOL_CALL_COMPLETED,
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        scope_summary=record.scope.summary,
        scope_hash=record.scope.key,
        evidence_status=EvidenceStatus.ERROR.value,
        error_code=code.value,
    )
