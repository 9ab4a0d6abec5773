"""What a log backend is: one async query over one topic. Adapters live in `backend_*.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tools.catalog import TopicEntry
from tools.logs.parser import parse_query
from tools.logs.query import Node, collapse_outside_quotes
from tools.logs.request import QueryLogsResponse


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query as normalized text and as syntax tree; equal text means equal meaning."""

    text: str
    node: Node

    @staticmethod
    def of(text: str) -> ParsedQuery:
        """Normalize and parse any text."""
        normal = collapse_outside_quotes(text)
        return ParsedQuery(normal, parse_query(normal))


@dataclass(frozen=True, slots=True)
class Lookback:
    """The searched window: `minutes` back from `now`.

    `now` is in seconds since the epoch; None stands for the topic's newest event. `reference` is the Run's clock: it
    settles the year of timestamps without one.
    """

    minutes: int
    now: float | None
    reference: float


class LogBackend(Protocol):
    """One kind of log store."""

    async def query(
        self, topic: TopicEntry, parsed_query: ParsedQuery, window: Lookback, limit: int, deadline: float
    ) -> QueryLogsResponse:
        """Search one topic, newest first, within `deadline` seconds.

        A scan that ended early answers with `total_is_lower_bound`. Raises ToolFailure with BACKEND_UNAVAILABLE,
        BACKEND_ERROR, or, when it ended early without a match, PARTIAL_RESULT or TOOL_TIMEOUT; CancelledError.
        """
