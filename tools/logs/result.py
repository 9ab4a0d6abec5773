"""From a backend's answer to the `agent_result`: masked, bounded, small enough for one observation (R51, R55). Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tools.logs.excerpt import condense, cut_line
from tools.logs.levels import telling_rank
from tools.logs.patterns import PatternGrouper
from tools.logs.request import LogEvent, LogPattern, QueryLogsResponse
from tools.logs.select import Candidate, priority
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
_SHORT_MESSAGE_CHARS = 200
_MARGIN_CHARS = 400


def json_bytes(value: Any) -> int:
    """Return the size of JSON data as UTF-8 text."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def make_agent_result(response: QueryLogsResponse, needles: Sequence[str]) -> dict[str, Any]:
    """Mask and bound a response. What does not fit is left out in the order of `event_priority`."""
    patterns = _patterns(response.patterns)
    events = [_event(event, needles) for event in response.events]
    room = CONTENT_BYTES - json_bytes(patterns)
    kept: dict[int, dict[str, Any]] = {}
    for index in event_priority(events)[:MAX_EVENTS]:
        for candidate in (events[index], _shorter(events[index], needles)):
            size = json_bytes(candidate) + 2
            if size <= room:
                kept[index] = candidate
                room -= size
                break
    chosen = [kept[index] for index in sorted(kept)]
    body = response.model_dump(mode="json", by_alias=True)
    return body | {
        "events": chosen,
        "patterns": patterns,
        "returned": len(chosen),
        "truncated": response.truncated or response.total > len(chosen),
    }


def event_priority(events: Sequence[dict[str, Any]]) -> list[int]:
    """Return positions of events (newest first), the most telling first; see `select.priority`."""
    grouper = PatternGrouper()
    ranks = [telling_rank(event.get("level"), str(event.get("message"))) for event in events]
    groups = [grouper.add(str(event.get("message")), None, rank) for event, rank in zip(events, ranks, strict=True)]
    return priority(
        [Candidate(group, rank, grouper.patterns[group].count) for group, rank in zip(groups, ranks, strict=True)]
    )


def _event(event: LogEvent, needles: Sequence[str]) -> dict[str, Any]:
    message = condense(mask_text(event.message), MAX_MESSAGE_CHARS, needles)
    attributes: dict[str, Any] = {}
    for key, value in event.attributes.items():
        if len(attributes) == MAX_ATTRIBUTES:
            break
        masked = mask_value(value, key)
        attributes[mask_text(key)] = masked[:MAX_ATTRIBUTE_CHARS] if isinstance(masked, str) else masked
    return {
        "timestamp": event.timestamp,
        "level": event.level,
        "service": mask_text(event.service) if event.service else None,
        "instance": mask_text(event.instance) if event.instance else None,
        "message": message,
        "attributes": attributes,
    }


def _shorter(event: dict[str, Any], needles: Sequence[str]) -> dict[str, Any]:
    return event | {"message": condense(event["message"], _SHORT_MESSAGE_CHARS, needles), "attributes": {}}


def _patterns(patterns: Sequence[LogPattern]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    room = PATTERN_BYTES
    for pattern in patterns:
        template = cut_line(mask_text(pattern.template), MAX_TEMPLATE_CHARS)
        item = pattern.model_dump(mode="json") | {"template": template}
        size = json_bytes(item) + 2
        if len(kept) < MAX_PATTERNS and size <= room:
            kept.append(item)
            room -= size
    return kept
