"""Evidence tools with concrete envelopes shaped like the three real ones; they never run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from tools.contract import ControlView, InvalidInput, Scope
from tools.envelope import AgentToolCall, BusinessRequest
from tools.evidence_tool import CallContext, FactView, ToolOutcome


class Order(StrEnum):
    NEWEST = "NEWEST"
    OLDEST = "OLDEST"


class TimeRange(BusinessRequest):
    start: str = Field(description="RFC 3339 start.", max_length=40)
    end: str = Field(description="RFC 3339 end.", max_length=40)


class SearchRequest(BusinessRequest):
    query: str = Field(description="What to look for.", min_length=1, max_length=500)
    top_k: int = Field(default=5, ge=1, le=5, description="Documents to return.")


class LogsRequest(BusinessRequest):
    topic: str = Field(description="Name of the topic.")
    query: str = Field(default="", max_length=1000)
    time_range: TimeRange | None = Field(default=None, description="Window; the last 30 minutes if absent.")
    order: Order = Order.NEWEST
    limit: int = Field(default=20, ge=1, le=20)


class SqlRequest(BusinessRequest):
    datasource: str
    sql: str = Field(max_length=4000)
    parameters: list[str | int | float | bool | None] = Field(default_factory=list, max_length=20)


class SearchCall(AgentToolCall):
    """Search the runbooks."""

    input: SearchRequest


class LogsCall(AgentToolCall):
    """Query logs."""

    input: LogsRequest


class SqlCall(AgentToolCall):
    """Ask the database."""

    input: SqlRequest


@dataclass(frozen=True)
class StandIn:
    name: str
    envelope: type[BaseModel]
    description: str = "A tool."
    timeout_seconds: float = 1.0

    def check(self, request: BaseModel) -> InvalidInput | None:
        raise NotImplementedError

    def scope(self, request: BaseModel) -> Scope:
        raise NotImplementedError

    async def run(self, request: BaseModel, context: CallContext) -> ToolOutcome:
        raise NotImplementedError

    def control(self, agent_result: dict[str, Any], scope: Scope) -> ControlView:
        raise NotImplementedError

    def observe(self, tool_call_id: str, scope: Scope, agent_result: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def facts(self, scope: Scope, agent_result: dict[str, Any]) -> tuple[FactView, ...]:
        raise NotImplementedError


SEARCH = StandIn("search_knowledge", SearchCall)
LOGS = StandIn("query_logs", LogsCall)
SQL = StandIn("query_mysql", SqlCall)
TOOLS = (SEARCH, LOGS, SQL)

FIELDS = {
    "search_knowledge": {"query", "top_k"},
    "query_logs": {"topic", "query", "time_range", "order", "limit"},
    "query_mysql": {"datasource", "sql", "parameters"},
}
