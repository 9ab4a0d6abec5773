"""Answers to tool calls: every call of a message gets exactly one ToolMessage, in order (R29, R58). Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import ToolMessage

from graph.contract import DiagnosisStopReason, RequestErrorCode, ViolationType
from nodes.contract import CallInHand, Rejection, RequestedCall
from tools.contract import InformationGain, ToolErrorCode

TOOL_ERROR_SENTENCES = {
    "zh": "该查询未能完成,其结果不可作为依据。",
    "en": "This query could not be completed; nothing can be concluded from it.",
}


def tool_message(tool_call_id: str, tool_name: str, content: dict[str, Any], *, error: bool = False) -> ToolMessage:
    """Build the one answer of a call; its id derives from the call's, so a re-executed node replaces it."""
    return ToolMessage(
        content=json.dumps(content, ensure_ascii=False, separators=(",", ":")),
        tool_call_id=tool_call_id,
        name=tool_name,
        id=f"answer-{tool_call_id}",
        status="error" if error else "success",
    )


def stop_pair(reason: DiagnosisStopReason) -> dict[str, Any]:
    """Return the stop directive (R56, R61)."""
    return {"stop_required": True, "reason": reason.value}


def protocol_observation(
    violation: ViolationType, missing_field: str | None, expected_previous_tool_call_id: str | None
) -> dict[str, Any]:
    """Return the repairable observation of a protocol error (R32, R33)."""
    observation: dict[str, Any] = {
        "error_code": RequestErrorCode.INVALID_PROGRESS_PROTOCOL.value,
        "repair_required": True,
        "violation_type": violation.value,
    }
    if missing_field is not None:
        observation["missing_field"] = missing_field
    if expected_previous_tool_call_id is not None:
        observation["expected_previous_tool_call_id"] = expected_previous_tool_call_id
    observation["allowed_information_gain"] = [gain.value for gain in InformationGain]
    return observation


def error_observation(tool_call_id: str, code: ToolErrorCode, language: str) -> dict[str, Any]:
    """Return what the model sees of a tool ERROR: a stable code and a fixed sentence, nothing of the cause (R51)."""
    return {
        "tool_call_id": tool_call_id,
        "evidence_status": "ERROR",
        "error_code": code.value,
        "message": TOOL_ERROR_SENTENCES.get(language, TOOL_ERROR_SENTENCES["en"]),
    }


def rejection_observation(rejection: Rejection, call: CallInHand, language: str) -> dict[str, Any]:
    """Return the answer of a call that is refused below any stop (R28, R32, R41, R42)."""
    code = rejection.error_code
    if code is RequestErrorCode.INVALID_PROGRESS_PROTOCOL and rejection.violation_type is not None:
        return protocol_observation(
            rejection.violation_type, rejection.missing_field, rejection.expected_previous_tool_call_id
        )
    if code is RequestErrorCode.OBSERVATION_CONTRACT_VIOLATION:
        return error_observation(call.tool_call_id, ToolErrorCode.OBSERVATION_CONTRACT_VIOLATION, language)
    observation: dict[str, Any] = {"error_code": code.value}
    if code is RequestErrorCode.DUPLICATE_SCOPE:
        observation["duplicate_of_tool_call_id"] = rejection.duplicate_of_tool_call_id
        observation["previous_observation_applied"] = call.evaluation_applied
    if rejection.invalid_input is not None:
        observation.update(rejection.invalid_input.model_dump())
        # The evaluation was not consumed (R28): the corrected request must carry it again.
        observation["previous_observation_applied"] = False
    if code is RequestErrorCode.TOOL_NOT_AVAILABLE:
        observation["available_tools"] = rejection.available_tools
    return observation


def stop_observation(call: CallInHand, reason: DiagnosisStopReason) -> dict[str, Any]:
    """Return the stop directive as the answer of the call in hand, or the pair added to its own observation (R56)."""
    if call.observation is not None:
        return {**call.observation, **stop_pair(reason)}
    applied = {"previous_observation_applied": True} if call.evaluation_applied else {}
    return {**stop_pair(reason), **applied}


def answer_others(
    requested: Sequence[RequestedCall],
    answered: str,
    expected_previous_tool_call_id: str | None,
    stop_reason: DiagnosisStopReason | None,
    *,
    at_threshold: bool = False,
) -> list[ToolMessage]:
    """Answer every other call of a message that carried several (R29); not executed, in order."""
    answers = []
    for other in requested:
        if other.tool_call_id == answered:
            continue
        content = (
            {}
            if at_threshold
            else protocol_observation(ViolationType.PARALLEL_TOOL_CALL, None, expected_previous_tool_call_id)
        )
        if stop_reason is not None:
            content = {**content, **stop_pair(stop_reason)}
        answers.append(tool_message(other.tool_call_id, other.tool_name, content, error=True))
    return answers
