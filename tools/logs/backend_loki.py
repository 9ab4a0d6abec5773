"""Logs in Grafana Loki: one `query_range` for the newest candidate lines of the window (R118, R128)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from tools.catalog import TopicEntry
from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.logs import endpoint
from tools.logs.backend import Lookback, ParsedQuery
from tools.logs.events import EventView
from tools.logs.http import HttpRequest, fetch, strict_json
from tools.logs.loki_labels import Labels
from tools.logs.loki_query import log_query
from tools.logs.query import Everything
from tools.logs.request import MAX_LOOKBACK_MINUTES, QueryLogsResponse
from tools.logs.sample import Found, Sample, make_response
from tools.logs.scan import Window
from tools.logs.timestamps import TimestampReader, detect_formats

_SAMPLE_LINES = 400
_NANO = 1_000_000_000
Entry = tuple[int, str, Mapping[str, str]]
"""Nanoseconds since the epoch, line, labels of its stream."""


class LokiBackend:
    """LogBackend over `query_range`; `env` holds the secrets, `base` anchors certificate files."""

    def __init__(self, env: Mapping[str, str], base: Path) -> None:
        self._env = env
        self._base = base

    async def query(
        self, topic: TopicEntry, parsed_query: ParsedQuery, window: Lookback, limit: int, deadline: float
    ) -> QueryLogsResponse:
        """Search the topic's streams. See LogBackend."""
        until = time.monotonic() + deadline
        now = window.now if window.now is not None else await self._newest(topic, window.reference, deadline)
        span = Window(now - window.minutes * 60.0, now)
        params = query_params(topic, parsed_query, span, topic.max_events)
        body = await self._query_range(topic, params, until - time.monotonic())
        # Reading a large answer takes time that other calls on this event loop need.
        return await asyncio.to_thread(_respond, topic, parsed_query, window, span, body, limit)

    async def _newest(self, topic: TopicEntry, reference: float, deadline: float) -> float:
        """Return the time of the newest line of the longest lookback before `reference`, or `reference`."""
        span = Window(reference - MAX_LOOKBACK_MINUTES * 60.0, reference)
        params = query_params(topic, ParsedQuery("", Everything()), span, 1)
        entries, partial = read_answer(await self._query_range(topic, params, deadline))
        if partial:
            raise ToolFailure(ToolErrorCode.PARTIAL_RESULT)
        return entries[0][0] / _NANO if entries else reference

    async def _query_range(self, topic: TopicEntry, params: dict[str, str], deadline: float) -> bytes:
        request = HttpRequest(
            label=topic.name,
            url=f"{topic.url}/loki/api/v1/query_range",
            headers=endpoint.headers(topic, self._env),
            params=params,
            ca_file=endpoint.ca_file(topic, self._base),
        )
        return await fetch(request, deadline)


def query_params(topic: TopicEntry, query: ParsedQuery, window: Window, limit: int) -> dict[str, str]:
    """Write the parameters; Loki's `end` is exclusive, ours is not. Pure."""
    return {
        "query": log_query(topic.selector or "", query.node, Labels.of(topic)),
        "start": str(_nanoseconds(window.start)),
        "end": str(_nanoseconds(window.end) + 1),
        "limit": str(limit),
        "direction": "backward",
    }


def _nanoseconds(epoch: float) -> int:
    return round(epoch * 1_000_000) * 1_000


def read_answer(body: bytes) -> tuple[list[Entry], bool]:
    """Return the entries, newest first, and whether Loki says that they are not all it should have given.

    Raises ToolFailure with BACKEND_ERROR when it is no answer to a log query.
    """
    value = strict_json(body)
    try:
        data = value["data"]
        if value["status"] != "success" or data["resultType"] != "streams":
            raise ToolFailure(ToolErrorCode.BACKEND_ERROR)
        entries = [
            entry for stream in data["result"] or () for item in stream["values"] for entry in [_entry(item, stream)]
        ]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError):
        raise ToolFailure(ToolErrorCode.BACKEND_ERROR) from None
    entries.sort(key=lambda entry: -entry[0])
    return entries, bool(value.get("warnings") or data.get("warnings"))


def _entry(item: list[Any], stream: dict[str, Any]) -> Entry:
    labels = stream["stream"]
    if not isinstance(item[1], str) or not all(isinstance(value, str) for value in labels.values()):
        raise TypeError
    return int(item[0]), item[1], labels


def _respond(
    topic: TopicEntry, query: ParsedQuery, lookback: Lookback, window: Window, body: bytes, limit: int
) -> QueryLogsResponse:
    entries, partial = read_answer(body)
    # The last of a full answer only tells that there is more.
    more = len(entries) >= topic.max_events
    kept = entries[: topic.max_events - 1] if more else entries
    found = tuple(_found(topic, lookback.reference, kept))
    return make_response(topic, query, window, Sample(found, more=more, partial=partial), limit)


def _found(topic: TopicEntry, reference: float, entries: list[Entry]) -> list[Found]:
    zone, labels = ZoneInfo(topic.timezone), Labels.of(topic)
    lines = [line.encode("utf-8", "replace") for _, line, _ in entries]
    formats = detect_formats(lines[:_SAMPLE_LINES], zone, reference)
    reader = TimestampReader(formats, zone, reference) if formats else None
    known: dict[int, dict[str, str]] = {}
    found = []
    for (nanoseconds, _, stream), line in zip(entries, lines, strict=True):
        stamp = reader.find(line) if reader is not None and not line.lstrip().startswith(b"{") else None
        if id(stream) not in known:
            known[id(stream)] = labels.read(stream)
        found.append(Found(nanoseconds / _NANO, EventView(line, stamp.end if stamp else 0, known[id(stream)])))
    return found
