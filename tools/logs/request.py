"""Business request and response of the log tool (R128) and its agent-facing envelope (R20)."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from tools.contract import ContractModel
from tools.envelope import AgentToolCall, BusinessRequest

TOOL_NAME = "query_logs"
DEFAULT_LOOKBACK_MINUTES = 30
MIN_LOOKBACK_MINUTES = 1
MAX_LOOKBACK_MINUTES = 10_080
MAX_QUERY_CHARS = 500


class QueryLogsRequest(BusinessRequest):
    """What to look for in one log topic."""

    topic: str = Field(
        min_length=1, max_length=64, description="Name of one log topic, as listed in the tool description."
    )
    query: str = Field(
        default="",
        max_length=MAX_QUERY_CHARS,
        description=(
            'Words that must all occur (any case, parts of words match), "exact phrases", OR, NOT, parentheses, '
            "* inside a word, and key:value for JSON attributes, key=value text, level:error or file:name. Example: "
            "timeout (redis OR mysql) NOT level:debug. Empty: every line of the window."
        ),
    )
    lookback_minutes: int = Field(
        default=DEFAULT_LOOKBACK_MINUTES,
        ge=MIN_LOOKBACK_MINUTES,
        le=MAX_LOOKBACK_MINUTES,
        description="How many minutes to search before the time of the question; the result's scope tells from and to.",
    )
    limit: int = Field(
        default=20,
        ge=1,
        le=100,
        description=(
            "Most events to show. At most 20 fit, whatever is asked, and long messages are cut to make room: ask for 3 "
            "to 5 to read whole messages. total and the patterns' counts cover all matches that were looked at, also"
            " those not shown."
        ),
    )


class QueryLogsToolCall(AgentToolCall):
    """Envelope of `query_logs`: `{previous_observation?, input}`."""

    input: QueryLogsRequest = Field(description="The log query.")


class LogEvent(ContractModel):
    """One event. `timestamp` is ISO 8601 with a zone, or null where the file tells no time."""

    timestamp: str | None = None
    level: str | None = None
    service: str | None = None
    instance: str | None = None
    message: str = ""
    attributes: dict[str, Any] = Field(default_factory=dict)


class PatternValues(ContractModel):
    """Least and greatest of a pattern's varying number, as written in the log."""

    min: str
    max: str


class LogPattern(ContractModel):
    """Matched events of one shape, by the first line of their message.

    What varies is written `<num>`, `<ip>`, `<hex>` or `<*>` in the template; everything else is the same in all of
    them, so that a template without these is a line as logged. `values` is there where one measured number varies.
    `<other patterns>` stands for all that are not listed. `first` and `last` are ISO 8601 with a zone.
    """

    template: str
    count: int = Field(ge=1)
    first: str | None = None
    last: str | None = None
    values: PatternValues | None = None


class QueryLogsResponse(ContractModel):
    """A backend's answer (R128).

    `from`/`to` bound the searched window (null when nothing in the topic tells a time); `from` is later than the
    lookback says when the scan ended early. `total` counts all matches, at least so many when `total_is_lower_bound`.
    `events` are newest first, those without a time in file order; when more matched than fit, every pattern has its
    newest event before any has a second. The counts of `patterns`, and those of `levels` (`NONE`: no level stated), add
    up to `total`, where a backend can tell; else to the matches it looked at.
    `notes` tells the operator what was skipped.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    topic: str
    query: str
    from_: str | None = Field(default=None, alias="from")
    to: str | None = None
    total: int = Field(ge=0)
    total_is_lower_bound: bool = False
    returned: int = Field(ge=0)
    truncated: bool = False
    events: list[LogEvent] = Field(default_factory=list)
    patterns: list[LogPattern] = Field(default_factory=list)
    levels: dict[str, int] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)
