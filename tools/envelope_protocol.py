"""Strict check of one agent-facing envelope (R23-R28, R33): control fields first, then the business input. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from graph.contract import ViolationType
from tools.contract import InformationGain, InvalidInput, PreviousObservation

CONTROL_FIELDS = frozenset({"previous_observation", "input"})
PREVIOUS_FIELDS = frozenset({"tool_call_id", "information_gain"})


@dataclass(frozen=True, slots=True)
class ProtocolFault:
    """The first broken control field (R28, R33); only names and the expected id, never what was sent."""

    violation_type: ViolationType
    missing_field: str | None = None
    expected_previous_tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ControlFields:
    """Control fields that passed. `evaluation` is None when nothing is pending, also where a tolerated one was sent (R27)."""

    evaluation: PreviousObservation | None


def check_control_fields(
    arguments: dict[str, Any] | None, pending_id: str | None, latest_answered_id: str | None
) -> ControlFields | ProtocolFault:
    """Check `{previous_observation?, input}` in the order of R28 against what the tracker expects."""
    if not isinstance(arguments, dict) or not CONTROL_FIELDS.issuperset(arguments) or not _is_json(arguments):
        return ProtocolFault(ViolationType.MALFORMED_ENVELOPE, expected_previous_tool_call_id=pending_id)
    previous = arguments.get("previous_observation")
    if previous is not None and not _well_formed_previous(previous):
        return ProtocolFault(ViolationType.MALFORMED_ENVELOPE, expected_previous_tool_call_id=pending_id)
    business = arguments.get("input")
    if business is not None and not isinstance(business, dict):
        return ProtocolFault(ViolationType.MALFORMED_ENVELOPE, expected_previous_tool_call_id=pending_id)
    missing = _missing_field(business, previous)
    if missing is not None:
        return ProtocolFault(ViolationType.MISSING_FIELD, missing, pending_id)
    return _check_reference(previous, pending_id, latest_answered_id)


def check_input(business: Any, envelope: type[BaseModel]) -> BaseModel | InvalidInput:
    """Validate the business input strictly against the envelope's own `input` type (R23, R28)."""
    request_type = envelope.model_fields["input"].annotation
    assert isinstance(request_type, type)
    assert issubclass(request_type, BaseModel)
    try:
        return request_type.model_validate_json(json.dumps(business), strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        return _invalid_input(first["loc"], first["type"], first["msg"], request_type)


def _check_reference(
    previous: dict[str, Any] | None, pending_id: str | None, latest_answered_id: str | None
) -> ControlFields | ProtocolFault:
    if previous is None:
        if pending_id is None:
            return ControlFields(None)
        return ProtocolFault(ViolationType.MISSING_PREVIOUS_OBSERVATION, "previous_observation", pending_id)
    if previous["information_gain"] not in set(InformationGain):
        return ProtocolFault(ViolationType.INVALID_INFORMATION_GAIN, expected_previous_tool_call_id=pending_id)
    named = previous["tool_call_id"]
    if pending_id is not None:
        if named != pending_id:
            return ProtocolFault(ViolationType.PREVIOUS_TOOL_CALL_MISMATCH, expected_previous_tool_call_id=pending_id)
        gain = InformationGain(previous["information_gain"])
        return ControlFields(PreviousObservation(tool_call_id=named, information_gain=gain))
    if named == latest_answered_id:
        return ControlFields(None)
    return ProtocolFault(ViolationType.UNEXPECTED_PREVIOUS_OBSERVATION)


def _missing_field(business: Any, previous: dict[str, Any] | None) -> str | None:
    if business is None:
        return "input"
    for name in ("tool_call_id", "information_gain"):
        if previous is not None and previous.get(name) is None:
            return f"previous_observation.{name}"
    return None


def _well_formed_previous(previous: Any) -> bool:
    if not isinstance(previous, dict) or not PREVIOUS_FIELDS.issuperset(previous):
        return False
    # An information_gain of another type is an invalid value (R33); an id of another type is no envelope at all.
    return isinstance(previous.get("tool_call_id"), str | None) and not isinstance(
        previous.get("information_gain"), dict | list
    )


def _is_json(arguments: dict[str, Any]) -> bool:
    # Numbers like NaN and lone surrogates pass Python's parser but are not JSON.
    try:
        json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def _invalid_input(
    location: Sequence[int | str], kind: str, message: str, request_type: type[BaseModel]
) -> InvalidInput:
    known = ", ".join(request_type.model_fields)
    if kind == "extra_forbidden":
        # The unknown key is the model's own text and is not echoed.
        return InvalidInput(field="input", rule="unknown_field", allowed=f"fields: {known}"[:512])
    safe = [str(part) for part in location if isinstance(part, int) or part in request_type.model_fields]
    field = ".".join(["input", *safe])[:64]
    return InvalidInput(field=field, rule=kind[:64], allowed=message[:512])
