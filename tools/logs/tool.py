"""The log tool: request, scope, backend and observation behind one EvidenceTool (R18, R128)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tools.catalog import Catalog, CatalogError, TopicEntry
from tools.contract import ControlView, EvidenceKind, InvalidInput, Scope, ToolErrorCode
from tools.evidence_tool import CallContext, EvidenceTool, FactView, ToolFailure, ToolOutcome
from tools.logs.backend import LogBackend, Lookback, ParsedQuery
from tools.logs.backend_files import FilesBackend
from tools.logs.observation import control_view, evidence_status, project_facts, project_observation
from tools.logs.query import needles
from tools.logs.request import TOOL_NAME, QueryLogsRequest, QueryLogsToolCall
from tools.logs.result import make_agent_result
from tools.logs.scope import effective_lookback, normalize_topic, project_scope

TIMEOUT_SECONDS = 15.0
MAX_DESCRIPTION_CHARS = 6_000
_BACKEND_SHARE = 0.85
"""Share of the call's time that the backend may use; the rest is for turning the answer into a result."""
_ALLOWED_CHARS = 512


class LogsTool:
    """EvidenceTool `query_logs` over the catalogue's topics."""

    name = TOOL_NAME
    envelope: type[BaseModel] = QueryLogsToolCall
    kind = EvidenceKind.LOG_OR_DATABASE
    timeout_seconds = TIMEOUT_SECONDS

    def __init__(self, catalog: Catalog, backends: dict[str, LogBackend]) -> None:
        self._now = catalog.now
        self._backends = backends
        self._topics = {topic.name.lower(): topic for topic in catalog.topics}
        self.description = _description(catalog.topics)

    def check(self, request: BaseModel) -> InvalidInput | None:
        """Refuse a topic that the catalogue does not name (R28)."""
        if normalize_topic(_typed(request).topic) in self._topics:
            return None
        names = ", ".join(topic.name for topic in self._topics.values())
        allowed = names if len(names) <= _ALLOWED_CHARS else names[: _ALLOWED_CHARS - 1] + "…"
        return InvalidInput(field="input.topic", rule="unknown_topic", allowed=allowed)

    def scope(self, request: BaseModel) -> Scope:
        """Project topic, query and lookback (R43)."""
        return project_scope(_typed(request))

    async def run(self, request: BaseModel, context: CallContext) -> ToolOutcome:
        """Search the topic. Raises ToolFailure, CancelledError."""
        typed = _typed(request)
        topic = self._topics.get(normalize_topic(typed.topic))
        if topic is None:
            raise ToolFailure(ToolErrorCode.UNKNOWN_TOPIC)
        query = ParsedQuery.of(typed.query)
        lookback = Lookback(effective_lookback(typed.lookback_minutes), self._moment(context), context.now)
        deadline = min(context.deadline_seconds, self.timeout_seconds) * _BACKEND_SHARE
        response = await self._backends[topic.backend].query(topic, query, lookback, typed.limit, deadline)
        agent_result = make_agent_result(response, needles(query.node))
        return ToolOutcome(
            raw_response=response.model_dump(mode="json", by_alias=True),
            agent_result=agent_result,
            evidence_status=evidence_status(response.total),
            returned_count=agent_result["returned"],
            truncated=agent_result["truncated"],
        )

    def _moment(self, context: CallContext) -> float | None:
        """Return the end of the window; None for the topic's newest event."""
        if context.at_given or self._now is None:
            return context.now
        return None if self._now == "latest" else self._now

    def control(self, agent_result: dict[str, Any], scope: Scope) -> ControlView:
        """Read the control view (R50). Raises ObservationContractViolation."""
        return control_view(agent_result, scope)

    def observe(self, tool_call_id: str, scope: Scope, agent_result: dict[str, Any]) -> dict[str, Any]:
        """Serialize the model observation (R51, R52). Raises ObservationContractViolation."""
        return project_observation(tool_call_id, scope, agent_result)

    def facts(self, scope: Scope, agent_result: dict[str, Any]) -> tuple[FactView, ...]:
        """Return excerpts of the events, most telling first (R66)."""
        return project_facts(agent_result)


def _typed(request: BaseModel) -> QueryLogsRequest:
    if not isinstance(request, QueryLogsRequest):
        raise TypeError("query_logs takes a QueryLogsRequest")
    return request


def _description(topics: tuple[TopicEntry, ...]) -> str:
    text = (
        "Search logs. Returns how many events match (total), their patterns with counts that add up to it, and at most "
        '20 events, newest first, each pattern before any twice. Words must all occur; OR, NOT, "phrases", parentheses, '
        "* and key:value work (level:error; status:5* where lines are JSON or key=value, else words of the line: "
        '" 504 "). Start narrow (an error text, a service) or with the empty query for an overview. In a pattern <num>, '
        "<ip>, <hex> and <*> stand for what varies (values: least and greatest number); quote events or the fixed text "
        "only. truncated: not everything is shown; narrow by more words, leave out what you have seen with NOT, or ask "
        "with limit 3 to 5 for whole messages. Lines without a time are searched "
        "whatever the lookback and shown last, in file order, with the section they stand in.\nTopics:"
    )
    for index, topic in enumerate(topics):
        line = f"\n- {topic.name}" + (f": {topic.description}" if topic.description else "")
        if len(text) + len(line) > MAX_DESCRIPTION_CHARS:
            return text + f"\n- and {len(topics) - index} more"
        text += line
    return text


def build_logs_tool(catalog: Catalog, env: Mapping[str, str] = os.environ) -> EvidenceTool | None:
    """Build the tool over the catalogue's topics; None when it names none. Touches no network.

    `env` holds the secrets of servers; one that is missing shows in `endpoint.problems` and fails that topic's calls.
    Raises CatalogError naming the key.
    """
    for index, topic in enumerate(catalog.topics):
        try:
            b"a".decode(topic.encoding, "replace")
        except LookupError:
            raise CatalogError(f"topic.{index}.encoding: must be a known text encoding, e.g. utf-8 or gbk") from None
    backends: dict[str, LogBackend] = {
        name: _backend(name, catalog.base, env) for name in {topic.backend for topic in catalog.topics}
    }
    return LogsTool(catalog, backends) if catalog.topics else None


def _backend(name: str, base: Path, env: Mapping[str, str]) -> LogBackend:
    """Build one backend; an HTTP client is imported only for a topic behind one."""
    if name == "elasticsearch":
        from tools.logs.backend_elasticsearch import ElasticsearchBackend

        return ElasticsearchBackend(env, base)
    if name == "loki":
        from tools.logs.backend_loki import LokiBackend

        return LokiBackend(env, base)
    return FilesBackend(base)
