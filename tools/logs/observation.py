"""Whitelist projector from `agent_result` to what the model sees, and to facts (R51, R52, R55, R66). Pure."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError

from tools.contract import MAX_OBSERVATION_BYTES, ControlView, EvidenceStatus, InvocationStatus, Scope
from tools.evidence_tool import FactView, ObservationContractViolation
from tools.logs.excerpt import condense
from tools.logs.keys import FILE_KEY
from tools.logs.levels import canonical_level
from tools.logs.request import LogEvent, LogPattern, QueryLogsResponse
from tools.logs.result import MAX_ATTRIBUTE_CHARS, MAX_EVENTS, MAX_MESSAGE_CHARS, event_priority, json_bytes
from tools.masking import MASK

MAX_FACT_CHARS = 300
MAX_TIME_CHARS = 40
_FIRST_WORD = re.compile(r"[\s\[(<|]{0,8}([A-Za-z]{3,13})\b")
_PLACES = frozenset({FILE_KEY, "section"})
_EVENT_KEYS = ("timestamp", "level", "service", "instance", "message", "attributes")


def read_result(agent_result: dict[str, Any]) -> QueryLogsResponse:
    """Check the whitelisted part of an `agent_result`; other keys are ignored. Raises ObservationContractViolation."""
    try:
        events = [_known(event, _EVENT_KEYS) for event in agent_result["events"]]
        patterns = [_known(pattern, tuple(LogPattern.model_fields)) for pattern in agent_result["patterns"]]
        result = QueryLogsResponse.model_validate(
            {
                "topic": "",
                "query": "",
                "total": agent_result["total"],
                "total_is_lower_bound": agent_result.get("total_is_lower_bound", False),
                "returned": agent_result["returned"],
                "truncated": agent_result["truncated"],
                "events": events,
                "patterns": patterns,
            },
            strict=True,
        )
    except (KeyError, TypeError, AttributeError, ValidationError):
        raise ObservationContractViolation from None
    if result.returned != len(result.events) or result.returned > result.total:
        raise ObservationContractViolation
    return result


def _known(value: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError
    return {key: value[key] for key in keys if key in value}


def evidence_status(total: int) -> EvidenceStatus:
    """Return what so many matches mean."""
    return EvidenceStatus.EVIDENCE_FOUND if total else EvidenceStatus.NO_EVIDENCE


def control_view(agent_result: dict[str, Any], scope: Scope) -> ControlView:
    """Return what the harness reads of a READY result (R50). Raises ObservationContractViolation."""
    result = read_result(agent_result)
    return ControlView(
        status=InvocationStatus.READY,
        evidence_status=evidence_status(result.total),
        returned_count=result.returned,
        truncated=result.truncated,
        scope=scope,
    )


def project_observation(tool_call_id: str, scope: Scope, agent_result: dict[str, Any]) -> dict[str, Any]:
    """Return the model's view of a result, at most 8 KiB; the least telling events go when it does not fit.

    Raises ObservationContractViolation.
    """
    result = read_result(agent_result)
    events = [_event(event) for event in result.events[:MAX_EVENTS]]
    observation: dict[str, Any] = {
        "tool_call_id": tool_call_id,
        "scope": scope.normalized | _window(agent_result),
        "evidence_status": evidence_status(result.total).value,
        "total": result.total,
        "total_is_lower_bound": result.total_is_lower_bound,
        "events": events,
        "patterns": [pattern.model_dump(mode="json", exclude_none=True) for pattern in result.patterns],
        "truncated": result.truncated,
    }
    order = event_priority(events)
    gone: set[int] = set()
    while json_bytes(observation) > MAX_OBSERVATION_BYTES:
        if order:
            gone.add(order.pop())
            observation["events"] = [event for index, event in enumerate(events) if index not in gone]
        else:
            raise ObservationContractViolation
        observation["truncated"] = True
    return observation


def _window(agent_result: dict[str, Any]) -> dict[str, str]:
    """The actual scope in time: a lookback alone tells nobody what it counts back from."""
    told = {name: agent_result.get(name) for name in ("from", "to")}
    return {name: time for name, time in told.items() if isinstance(time, str) and len(time) <= MAX_TIME_CHARS}


def _event(event: LogEvent) -> dict[str, Any]:
    """Keep what is told: fields without a value are left out."""
    data = {key: value for key, value in event.model_dump(mode="json").items() if value not in (None, {})}
    return data | {"message": event.message[:MAX_MESSAGE_CHARS]}


def project_facts(agent_result: dict[str, Any]) -> tuple[FactView, ...]:
    """Return one excerpt per event, the most telling first, newest first among equals, at most 300 characters each."""
    events = [event.model_dump(mode="json") for event in read_result(agent_result).events]
    return tuple(FactView(_excerpt(events[index])) for index in event_priority(events))


def _excerpt(event: dict[str, Any]) -> str:
    level = "" if _begins_with_level(event["message"], event["level"]) else event["level"]
    head = " ".join(str(part) for part in (event["timestamp"], level, event["service"]) if part)
    text = f"{head} {condense(event['message'], MAX_FACT_CHARS - len(head) - 1)}".strip()
    for pair in _untold_pairs(event):
        if len(text) + 1 + len(pair) <= MAX_FACT_CHARS:
            text += f" {pair}"
    return text[:MAX_FACT_CHARS]


def _untold_pairs(event: dict[str, Any]) -> list[str]:
    """Attributes that the message does not tell: of JSON lines they are often what explains it."""
    shown = ((key, str(value)) for key, value in event["attributes"].items() if key not in _PLACES)
    return [
        f"{key}={value}"
        for key, value in shown
        if 0 < len(value) < MAX_ATTRIBUTE_CHARS and "\n" not in value and MASK not in value
        if re.search(rf"(?<!\w){re.escape(value)}(?!\w)", event["message"]) is None
    ]


def _begins_with_level(message: str, level: str | None) -> bool:
    """Say whether a message states its level itself, as `[WARN] slow` and `WARNING: slow` do."""
    word = _FIRST_WORD.match(message)
    return level is not None and word is not None and canonical_level(word[1]) == level
