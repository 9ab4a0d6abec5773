"""Scope projector of the log tool (R43, R47). Pure."""

from __future__ import annotations

from tools.contract import Scope
from tools.logs.query import collapse_outside_quotes
from tools.logs.request import MAX_LOOKBACK_MINUTES, MIN_LOOKBACK_MINUTES, TOOL_NAME, QueryLogsRequest
from tools.scope import make_scope


def normalize_topic(topic: str) -> str:
    """Trim and lower-case a topic's name."""
    return topic.strip().lower()


def effective_lookback(minutes: int) -> int:
    """Clamp minutes into the allowed range."""
    return min(max(minutes, MIN_LOOKBACK_MINUTES), MAX_LOOKBACK_MINUTES)


def project_scope(request: QueryLogsRequest) -> Scope:
    """Project topic, query and effective lookback; `limit` is no part of it. The summary leaves the query out."""
    topic, minutes = normalize_topic(request.topic), effective_lookback(request.lookback_minutes)
    normalized = {"topic": topic, "query": collapse_outside_quotes(request.query), "lookback_minutes": minutes}
    return make_scope(TOOL_NAME, normalized, f"{topic} / last {minutes} min")
