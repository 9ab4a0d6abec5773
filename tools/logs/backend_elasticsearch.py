"""Logs in Elasticsearch or OpenSearch: a `_search` for the newest candidates of the window (R118, R128).

One request, or two different ones: where nothing was found, and where the topic's newest event ends the window.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tools.catalog import TopicEntry
from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.logs import endpoint
from tools.logs.backend import Lookback, ParsedQuery
from tools.logs.document import Roles, make_view
from tools.logs.elasticsearch_query import Target, is_tight, search_query
from tools.logs.http import HttpRequest, fetch, strict_json
from tools.logs.request import QueryLogsResponse
from tools.logs.sample import Found, Sample, make_response
from tools.logs.scan import Window

COUNT_UP_TO = 100_000
"""The server counts matches up to here; beyond, its count is a lower bound."""
_SERVER_SHARE = 0.8
"""Share of the time after which the server gives what it has, told as `timed_out`."""


class ElasticsearchBackend:
    """LogBackend over `_search`; `env` holds the secrets, `base` anchors certificate files."""

    def __init__(self, env: Mapping[str, str], base: Path) -> None:
        self._env = env
        self._base = base

    async def query(
        self, topic: TopicEntry, parsed_query: ParsedQuery, window: Lookback, limit: int, deadline: float
    ) -> QueryLogsResponse:
        """Search the topic's index. See LogBackend."""
        until = time.monotonic() + deadline
        now = window.now if window.now is not None else await self._newest(topic, window.reference, deadline)
        span = Window(now - window.minutes * 60.0, now)
        left = until - time.monotonic()
        body = await self._search(topic, search_body(topic, parsed_query, span, left * _SERVER_SHARE), left)
        # Reading a large answer takes time that other calls on this event loop need.
        response = await asyncio.to_thread(_respond, topic, parsed_query, span, body, limit)
        if response.total == 0 and window.now is not None:
            # A range over a field that no index knows matches nothing, without an error. Sorting by it fails.
            await self._newest(topic, window.reference, until - time.monotonic())
        return response

    async def _newest(self, topic: TopicEntry, reference: float, deadline: float) -> float:
        """Return the time of the topic's newest event, or `reference` when it holds none.

        Raises ToolFailure, also when the topic's documents have no time.
        """
        body = newest_body(topic, deadline * _SERVER_SHARE)
        answer = read_answer(topic, await self._search(topic, body, deadline))
        if answer.partial:
            raise ToolFailure(ToolErrorCode.PARTIAL_RESULT)
        times = [found.epoch for found in answer.found if found.epoch is not None]
        if answer.found and not times:
            raise ToolFailure(ToolErrorCode.BACKEND_ERROR)
        return max(times, default=reference)

    async def _search(self, topic: TopicEntry, body: dict[str, Any], deadline: float) -> bytes:
        path = quote(topic.index or "", safe="*,:+")
        request = HttpRequest(
            label=topic.name,
            url=f"{topic.url}/{path}/_search",
            headers=endpoint.headers(topic, self._env),
            # A pattern without any index behind it is a mistake, not an empty log.
            params={"allow_no_indices": "false", "ignore_unavailable": "false", "allow_partial_search_results": "true"},
            body=body,
            ca_file=endpoint.ca_file(topic, self._base),
        )
        return await fetch(request, deadline)


def search_body(topic: TopicEntry, query: ParsedQuery, window: Window, seconds: float) -> dict[str, Any]:
    """Write the search for the newest candidates of a window. Pure."""
    start, end = (str(round(moment * 1000)) for moment in (window.start, window.end))
    filters: list[dict[str, Any]] = [
        {"range": {topic.time_field: {"gte": start, "lte": end, "format": "epoch_millis"}}}
    ]
    wanted = search_query(query.node, Target(topic.search_fields, Roles.of(topic)))
    if wanted is not None:
        filters.append(wanted)
    return _body(topic, {"bool": {"filter": filters}}, topic.max_events, COUNT_UP_TO, seconds)


def newest_body(topic: TopicEntry, seconds: float) -> dict[str, Any]:
    """Write the search for the newest document. Pure."""
    return _body(topic, {"match_all": {}}, 1, False, seconds)


def _body(topic: TopicEntry, query: dict[str, Any], size: int, count: int | bool, seconds: float) -> dict[str, Any]:
    return {
        "query": query,
        "size": size,
        "track_total_hits": count,
        "timeout": f"{max(1, int(seconds * 1000))}ms",
        # No `unmapped_type`: a time field that no index knows is an error, not an empty log.
        "sort": [{topic.time_field: {"order": "desc"}}],
        "docvalue_fields": [{"field": topic.time_field, "format": "epoch_millis"}],
    }


@dataclass(frozen=True, slots=True)
class Answer:
    """A search's answer: the documents, newest first; `count` of the matches, `bounded` when there are more."""

    found: tuple[Found, ...]
    count: int
    bounded: bool
    partial: bool


def read_answer(topic: TopicEntry, body: bytes) -> Answer:
    """Read the answer of a `_search`. Raises ToolFailure with BACKEND_ERROR when it is none, or no index took part."""
    value = strict_json(body)
    try:
        shards, hits = value["_shards"], value["hits"]
        # Without `track_total_hits` there is no total.
        total = hits.get("total", {"value": len(hits["hits"]), "relation": "eq"})
        count, bounded = (total, False) if isinstance(total, int) else (total["value"], total["relation"] != "eq")
        roles = Roles.of(topic)
        found = tuple(_found(hit, topic, roles) for hit in hits["hits"])
        if shards["total"] < 1 or not isinstance(count, int):
            raise ToolFailure(ToolErrorCode.BACKEND_ERROR)
        clusters = value.get("_clusters", {})
        missing = sum(clusters.get(state, 0) for state in ("skipped", "partial", "failed"))
        partial = bool(value["timed_out"]) or shards["failed"] > 0 or missing > 0
        partial = partial or bool(value.get("terminated_early", False))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError):
        raise ToolFailure(ToolErrorCode.BACKEND_ERROR) from None
    return Answer(found, count, bounded, partial)


def _found(hit: dict[str, Any], topic: TopicEntry, roles: Roles) -> Found:
    times = hit.get("fields", {}).get(topic.time_field, [])
    source = hit.get("_source", {})
    if not isinstance(source, dict):
        raise TypeError
    return Found(float(times[0]) / 1000.0 if times else None, make_view(source, roles))


def _respond(topic: TopicEntry, query: ParsedQuery, window: Window, body: bytes, limit: int) -> QueryLogsResponse:
    answer = read_answer(topic, body)
    more = answer.bounded or answer.count > len(answer.found)
    matching = answer.count if is_tight(query.node) else None
    sample = Sample(answer.found, more=more, partial=answer.partial, matching=matching)
    return make_response(topic, query, window, sample, limit)
