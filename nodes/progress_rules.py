"""The fixed order of R37 as pure functions over frozen values; the nodes only fetch, call these, and write down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from graph.contract import RequestErrorCode, ViolationType
from graph.tracker import CompletedCall, DiagnosisProgressTracker
from nodes.contract import CallInHand, Evaluation, Rejection, RequestedCall
from tools.contract import EvidenceStatus, InformationGain, InvalidInput, PreviousObservation
from tools.envelope_protocol import ProtocolFault, check_control_fields, check_input
from tools.evidence_tool import EvidenceTool


@dataclass(frozen=True, slots=True)
class Judged:
    """The call in hand after a step: what the tracker became, and why the call is refused, if it is."""

    tracker: DiagnosisProgressTracker
    call: CallInHand
    rejection: Rejection | None = None


@dataclass(frozen=True, slots=True)
class AppliedGain:
    """One evaluation that was applied, for the trace (R103)."""

    before: DiagnosisProgressTracker
    after: DiagnosisProgressTracker
    tool_call_id: str
    gain: InformationGain
    producer: str


def judge_request(
    tracker: DiagnosisProgressTracker, requested: Sequence[RequestedCall], tools: Mapping[str, EvidenceTool]
) -> Judged:
    """Step 1: parallel calls, tool name, control fields, business input; the first fault found decides (R28, R29)."""
    first = requested[0]
    judged = Judged(tracker, CallInHand(tool_call_id=first.tool_call_id, tool_name=first.tool_name))
    alone = len(requested) == 1
    if not alone:
        judged = replace(judged, tracker=tracker.with_violation())
        if judged.tracker.saturated:
            return _refused(
                judged, RequestErrorCode.PROGRESS_PROTOCOL_VIOLATED, violation_type=ViolationType.PARALLEL_TOOL_CALL
            )
    tool = tools.get(first.tool_name)
    if tool is None:
        return _refused(judged, RequestErrorCode.TOOL_NOT_AVAILABLE, available_tools=list(tools))
    control = check_control_fields(first.arguments, tracker.pending_tool_call_id, tracker.latest_answered_tool_call_id)
    if isinstance(control, ProtocolFault):
        return _protocol_fault(judged, control, alone)
    if alone:
        judged = replace(judged, tracker=judged.tracker.with_protocol_respected())
    assert first.arguments is not None
    return _judge_input(judged, tool, first.arguments["input"], control.evaluation)


def judge_scope(judged: Judged) -> tuple[Judged, tuple[AppliedGain, ...]]:
    """Steps 2 to 4: apply the evaluation, refuse at the threshold, refuse a duplicate scope (R37, R40, R45)."""
    tracker, call, gains = judged.tracker, judged.call, list[AppliedGain]()
    scope = call.scope
    assert scope is not None
    if call.evaluation is not None and tracker.pending_tool_call_id is not None:
        gain = call.evaluation.information_gain
        after = tracker.with_evaluation(gain)
        gains.append(AppliedGain(tracker, after, call.evaluation.tool_call_id, gain, "MODEL"))
        tracker = after
    judged = Judged(tracker, call)
    if tracker.saturated:
        return _refused(judged, RequestErrorCode.INFORMATION_SATURATED), tuple(gains)
    duplicate_of = tracker.duplicate_of(scope.key)
    if duplicate_of is None:
        return judged, tuple(gains)
    after = tracker.with_no_gain()
    gains.append(AppliedGain(tracker, after, call.tool_call_id, InformationGain.NO_GAIN, "HARNESS"))
    refused = _refused(Judged(after, call), RequestErrorCode.DUPLICATE_SCOPE, duplicate_of_tool_call_id=duplicate_of)
    return refused, tuple(gains)


def judge_result(
    tracker: DiagnosisProgressTracker, completed: CompletedCall, status: EvidenceStatus
) -> tuple[DiagnosisProgressTracker, tuple[AppliedGain, ...]]:
    """Step 6: index the call; NO_EVIDENCE is NO_GAIN, EVIDENCE_FOUND awaits the model, ERROR changes nothing (R37, R38).

    `completed` carries its scope; a failed call's scope is not remembered.
    """
    if status is EvidenceStatus.ERROR:
        return tracker.with_completed(completed.model_copy(update={"scope_key": None})), ()
    indexed = tracker.with_completed(completed)
    if status is EvidenceStatus.EVIDENCE_FOUND:
        return indexed.with_pending(completed.tool_call_id), ()
    after = indexed.with_no_gain()
    return after, (AppliedGain(indexed, after, completed.tool_call_id, InformationGain.NO_GAIN, "HARNESS"),)


def _judge_input(
    judged: Judged, tool: EvidenceTool, business: dict[str, Any], evaluation: PreviousObservation | None
) -> Judged:
    request = check_input(business, tool.envelope)
    invalid = request if isinstance(request, InvalidInput) else tool.check(request)
    if invalid is not None:
        return _refused(judged, RequestErrorCode.INVALID_TOOL_REQUEST, invalid_input=invalid)
    assert isinstance(request, BaseModel)
    ready = {
        "evaluation": Evaluation(**evaluation.model_dump()) if evaluation else None,
        "input": request.model_dump(mode="json", by_alias=True),
        "scope": tool.scope(request),
    }
    return replace(judged, call=judged.call.model_copy(update=ready))


def _protocol_fault(judged: Judged, fault: ProtocolFault, alone: bool) -> Judged:
    # A message counts at most once (R29): one with several calls has been counted already.
    tracker = judged.tracker.with_violation() if alone else judged.tracker
    code = (
        RequestErrorCode.PROGRESS_PROTOCOL_VIOLATED if tracker.saturated else RequestErrorCode.INVALID_PROGRESS_PROTOCOL
    )
    return _refused(
        replace(judged, tracker=tracker),
        code,
        violation_type=fault.violation_type,
        missing_field=fault.missing_field,
        expected_previous_tool_call_id=fault.expected_previous_tool_call_id,
    )


def _refused(judged: Judged, code: RequestErrorCode, **why: Any) -> Judged:
    return replace(judged, rejection=Rejection(error_code=code, **why))
