"""The MySQL evidence tool: request, gate, scope, backend and observation tied together (R43, R50-R55, R121-R126)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from tools.catalog import Catalog
from tools.contract import ControlView, EvidenceKind, InvalidInput, InvocationStatus, Scope, ToolErrorCode
from tools.evidence_tool import CallContext, FactView, ToolFailure, ToolOutcome
from tools.mysql import observation
from tools.mysql.backend import Query, SqlBackend
from tools.mysql.backend_sqlite import SqliteBackend
from tools.mysql.contract import GateRule, GateVerdict
from tools.mysql.datasources import Datasource, problems, read_datasources
from tools.mysql.description import allowed_names, describe
from tools.mysql.gate import HINTS, judge
from tools.mysql.grants import GrantReport
from tools.mysql.request import MysqlQueryRequest, MysqlToolCall
from tools.mysql.scope import project_scope
from tools.mysql.secret_columns import secret_positions

__all__ = ["MysqlTool", "build_mysql_tool", "problems"]

TOOL_NAME = "query_mysql"
TIMEOUT_SECONDS = 3.0
"""Time of one call (R55)."""

QUERY_SHARE = 0.93
"""Share of it that the query may take: the rest is for stopping it, so that the answer is QUERY_TIMEOUT."""


class MysqlTool:
    """`EvidenceTool` over the datasources of a catalogue; backends are opened at their first query."""

    def __init__(self, datasources: Mapping[str, Datasource], fixed_now: float | None) -> None:
        self._datasources = dict(datasources)
        self._fixed_now = fixed_now
        self._backends: dict[str, SqlBackend] = {}
        self._description = describe([source.entry for source in self._datasources.values()])

    @property
    def name(self) -> str:
        """Wire name."""
        return TOOL_NAME

    @property
    def description(self) -> str:
        """What the model reads: datasources, tables, columns."""
        return self._description

    @property
    def envelope(self) -> type[BaseModel]:
        """`MysqlToolCall`."""
        return MysqlToolCall

    @property
    def kind(self) -> EvidenceKind:
        """Database rows (R71)."""
        return EvidenceKind.LOG_OR_DATABASE

    @property
    def timeout_seconds(self) -> float:
        """Three seconds (R55)."""
        return TIMEOUT_SECONDS

    def check(self, request: BaseModel) -> InvalidInput | None:
        """Refuse an unknown datasource, a text the gate refuses, or a wrong number of parameters (R28, R126)."""
        query = _request(request)
        source = self._source(query)
        if source is None:
            names = allowed_names([one.entry.name for one in self._datasources.values()])
            return InvalidInput(field="input.datasource", rule="unknown_datasource", allowed=f"one of: {names}")
        verdict = judge(query.sql, source.tables)
        if verdict.rule is not None:
            return InvalidInput(field="input.sql", rule=verdict.rule.value, allowed=_hint(verdict.rule, source))
        if verdict.placeholders != len(query.params):
            count = f"exactly {verdict.placeholders} values, one per ? outside literals"
            return InvalidInput(field="input.params", rule="param_count_mismatch", allowed=count)
        return None

    def scope(self, request: BaseModel) -> Scope:
        """Project datasource, normalized text and parameters (R43)."""
        query = _request(request)
        source = self._source(query)
        verdict = judge(query.sql, source.tables) if source else GateVerdict()
        return project_scope(TOOL_NAME, query, verdict.tables)

    async def run(self, request: BaseModel, context: CallContext) -> ToolOutcome:
        """Run an accepted query; what `check` would refuse fails here too. Raises ToolFailure or CancelledError."""
        query = _request(request)
        source = self._source(query)
        if source is None:
            raise ToolFailure(ToolErrorCode.UNKNOWN_DATASOURCE)
        verdict = judge(query.sql, source.tables)
        if not verdict.allowed:
            raise ToolFailure(ToolErrorCode.SQL_REJECTED)
        if verdict.placeholders != len(query.params):
            raise ToolFailure(ToolErrorCode.PARAM_COUNT_MISMATCH)
        seconds = min(TIMEOUT_SECONDS, context.deadline_seconds) * QUERY_SHARE
        now = self._now(source, context)
        offset = _offset(source, context.now if now is None else now)
        result = await self._backend(source).query(Query(query.sql, tuple(query.params), now, offset, seconds))
        secret = secret_positions(query.sql, result.columns, query.params)
        response = observation.build_response(self.scope(query), result, secret)
        return ToolOutcome(
            raw_response=_raw(asdict(result)),
            agent_result=response.model_dump(mode="json"),
            evidence_status=observation.evidence_status(response),
            returned_count=response.returned,
            truncated=response.truncated,
        )

    def control(self, agent_result: dict[str, Any], scope: Scope) -> ControlView:
        """Read the control view (R50)."""
        response = observation.read_response(agent_result)
        return ControlView(
            status=InvocationStatus.READY,
            evidence_status=observation.evidence_status(response),
            returned_count=response.returned,
            truncated=response.truncated,
            scope=scope,
        )

    def observe(self, tool_call_id: str, scope: Scope, agent_result: dict[str, Any]) -> dict[str, Any]:
        """Serialize the whitelist (R51, R52)."""
        return observation.project(tool_call_id, scope, observation.read_response(agent_result))

    def facts(self, scope: Scope, agent_result: dict[str, Any]) -> tuple[FactView, ...]:
        """Give excerpts of rows (R66)."""
        return observation.facts(observation.read_response(agent_result))

    async def account(self, name: str) -> GrantReport | None:
        """Say what the account of a datasource may do beyond reading its tables; None for an SQLite file.

        Raises ToolFailure as a query does.
        """
        source = self._datasources.get(name.strip().lower())
        if source is None:
            raise ToolFailure(ToolErrorCode.UNKNOWN_DATASOURCE)
        return await self._backend(source).account(TIMEOUT_SECONDS)

    async def close(self) -> None:
        """Close what was opened."""
        for backend in self._backends.values():
            await backend.close()
        self._backends.clear()

    def _source(self, query: MysqlQueryRequest) -> Datasource | None:
        return self._datasources.get(query.datasource.strip().lower())

    def _now(self, source: Datasource, context: CallContext) -> float | None:
        if context.at_given:
            return context.now
        if self._fixed_now is not None:
            return self._fixed_now
        # A server has a clock of its own; an SQLite file has the Run's.
        return context.now if source.path is not None else None

    def _backend(self, source: Datasource) -> SqlBackend:
        key = source.entry.name.lower()
        if key not in self._backends:
            self._backends[key] = _open_backend(source)
        return self._backends[key]


def build_mysql_tool(catalog: Catalog, env: Mapping[str, str]) -> MysqlTool | None:
    """Build the tool, or None when the catalogue has no datasource.

    A datasource with a problem (see `problems`) is still named; its queries fail with BACKEND_UNAVAILABLE.
    """
    if not catalog.datasources:
        return None
    fixed_now = catalog.now if isinstance(catalog.now, float) else None
    return MysqlTool(read_datasources(catalog, env), fixed_now)


def _request(request: BaseModel) -> MysqlQueryRequest:
    if not isinstance(request, MysqlQueryRequest):
        raise TypeError("MysqlQueryRequest expected")
    return request


def _hint(rule: GateRule, source: Datasource) -> str:
    if rule is GateRule.TABLE_NOT_ALLOWED:
        note = ", written exactly so" if source.tables.case_sensitive else ""
        return f"tables of this datasource{note}: {allowed_names(sorted(source.entry.tables))}"
    return HINTS[rule]


def _offset(source: Datasource, at: float) -> timedelta:
    # A fixed offset instead of the zone's name: servers often lack the tables of named zones.
    return datetime.fromtimestamp(at, ZoneInfo(source.entry.timezone)).utcoffset() or timedelta()


def _raw(result: dict[str, Any]) -> dict[str, Any]:
    return {**result, "columns": list(result["columns"]), "rows": [list(row) for row in result["rows"]]}


def _open_backend(source: Datasource) -> SqlBackend:
    if source.path is not None:
        return SqliteBackend(source.path)
    if source.url is None:
        raise ToolFailure(ToolErrorCode.BACKEND_UNAVAILABLE)
    try:
        # Imported here: the driver is an extra, the example runs without it.
        from tools.mysql.backend_sqlalchemy import SqlAlchemyBackend
    except ImportError:
        raise ToolFailure(ToolErrorCode.BACKEND_UNAVAILABLE) from None
    return SqlAlchemyBackend(source.url, source.account_rule)
