"""From a backend's answer to the `agent_result`: masked, bounded, small enough for one observation (R51, R55). Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tools.logs.events import MAX_ATTRIBUTE_CHARS as RAW_ATTRIBUTE_CHARS
from tools.logs.excerpt import condense, cut_line
from tools.logs.levels import telling_rank
from tools.logs.pattern_list import bounded
from tools.logs.patterns import MAX_TEMPLATE_CHARS as RAW_TEMPLATE_CHARS
from tools.logs.patterns import PatternGrouper
from tools.logs.request import LogEvent, LogPattern, QueryLogsResponse
from tools.logs.select import Candidate, leaders, priority
from tools.masking import mask_text, mask_value

MAX_EVENTS = 20
MAX_MESSAGE_CHARS = 500
MAX_PATTERNS = 12
MAX_TEMPLATE_CHARS = 180
MAX_ATTRIBUTES = 10
MAX_ATTRIBUTE_CHARS = 120
PATTERN_BYTES = 1_800
CONTENT_BYTES = 6_600
"""UTF-8 JSON of events and patterns together; the rest of the 8 KiB is the scope's."""
_CUT_END_CHARS = 160
_MESSAGE_STEPS = (MAX_MESSAGE_CHARS, 400, 320, 250, 200, 150)


def json_bytes(value: Any) -> int:
    """Return the size of JSON data as UTF-8 text."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def make_agent_result(response: QueryLogsResponse, needles: Sequence[str]) -> dict[str, Any]:
    """Mask and bound a response. What does not fit is left out, the least telling first; then `truncated` is set."""
    patterns = _patterns(response.patterns)
    masked = [_masked(event) for event in response.events]
    kept = _fitting([_shortened(event, MAX_MESSAGE_CHARS, needles) for event in masked], _room(patterns), needles)
    events = list(kept.values())
    body = response.model_dump(mode="json", by_alias=True)
    return body | {
        "events": events,
        "patterns": patterns,
        "returned": len(events),
        "truncated": response.truncated
        or response.total > len(events)
        or any(event != masked[index] for index, event in kept.items()),
    }


def _room(patterns: list[dict[str, Any]]) -> int:
    return CONTENT_BYTES - json_bytes(patterns)


def _fitting(events: list[dict[str, Any]], room: int, needles: Sequence[str]) -> dict[int, dict[str, Any]]:
    """Keep the most telling events within `room` bytes, by position; one of every pattern is worth shortening them all."""
    candidates = _candidates(events)
    first = leaders(candidates)[:MAX_EVENTS]
    led: dict[int, dict[str, Any]] = {}
    for chars in _MESSAGE_STEPS:
        led = {index: _shortened(events[index], chars, needles) for index in first}
        if sum(json_bytes(event) + 2 for event in led.values()) <= room:
            break
    kept: dict[int, dict[str, Any]] = {}
    for index in priority(candidates):
        event = led.get(index, events[index])
        size = json_bytes(event) + 2
        if size <= room and len(kept) < MAX_EVENTS:
            kept[index] = event
            room -= size
    return dict(sorted(kept.items()))


def event_priority(events: Sequence[dict[str, Any]]) -> list[int]:
    """Return positions of events (newest first), the most telling first; see `select.priority`."""
    return priority(_candidates(events))


def _candidates(events: Sequence[dict[str, Any]]) -> list[Candidate]:
    grouper = PatternGrouper()
    ranks = [telling_rank(event.get("level"), str(event.get("message"))) for event in events]
    shapes = grouper.add([str(event.get("message")) for event in events], ranks=ranks)
    patterns, places = grouper.grouping.patterns, [grouper.grouping.places[shape] for shape in shapes]
    return [Candidate(place, rank, patterns[place].count) for place, rank in zip(places, ranks, strict=True)]


def _masked(event: LogEvent) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for key, value in event.attributes.items():
        if len(attributes) == MAX_ATTRIBUTES:
            break
        masked = mask_value(value, key)
        if isinstance(value, str) and isinstance(masked, str):
            masked = _without_cut_end(masked, len(value) >= RAW_ATTRIBUTE_CHARS)[:MAX_ATTRIBUTE_CHARS]
        attributes[mask_text(key)] = masked
    return {
        "timestamp": event.timestamp,
        "level": event.level,
        "service": mask_text(event.service) if event.service else None,
        "instance": mask_text(event.instance) if event.instance else None,
        "message": mask_text(event.message),
        "attributes": attributes,
    }


def _shortened(event: dict[str, Any], chars: int, needles: Sequence[str]) -> dict[str, Any]:
    attributes = event["attributes"] if chars > _MESSAGE_STEPS[-1] else {}
    return event | {"message": condense(event["message"], chars, needles), "attributes": attributes}


def _without_cut_end(masked: str, cut: bool) -> str:
    """Drop the end of text that had been cut before it was masked: half a secret is not recognised as one."""
    return masked[:-_CUT_END_CHARS] if cut else masked


def _patterns(patterns: Sequence[LogPattern]) -> list[dict[str, Any]]:
    kept = bounded([_pattern(pattern) for pattern in patterns], _patterns_fit)
    return [_pattern_json(pattern) for pattern in kept]


def _pattern(pattern: LogPattern) -> LogPattern:
    masked = mask_text(pattern.template)
    values = pattern.values if masked == pattern.template else None  # they may be of what was masked
    template = _without_cut_end(masked, len(pattern.template) >= RAW_TEMPLATE_CHARS)
    return pattern.model_copy(update={"template": template, "values": values})


def _pattern_json(pattern: LogPattern) -> dict[str, Any]:
    template = cut_line(pattern.template, MAX_TEMPLATE_CHARS)
    return pattern.model_dump(mode="json", exclude_none=True) | {"template": template}


def _patterns_fit(patterns: Sequence[LogPattern]) -> bool:
    if len(patterns) > MAX_PATTERNS:
        return False
    return sum(json_bytes(_pattern_json(pattern)) + 2 for pattern in patterns) <= PATTERN_BYTES
