"""A scripted evidence tool and a scripted model for tests of the loop; everything else in those tests is real."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

from langchain_core.messages import AIMessage
from pydantic import BaseModel, Field

from graph.contract import Component
from nodes.ports import ModelCallFailed, ModelFailureKind, ModelReply, ModelRequest, RequestedCall, TokenUsage
from tools.contract import (
    ControlView,
    EvidenceKind,
    EvidenceStatus,
    InvalidInput,
    InvocationStatus,
    Scope,
    ToolErrorCode,
)
from tools.envelope import AgentToolCall, BusinessRequest
from tools.evidence_tool import CallContext, FactView, ObservationContractViolation, ToolFailure, ToolOutcome
from tools.scope import collapse_whitespace, make_scope


class ProbeRequest(BusinessRequest):
    """Business request of the scripted tool. `query` names the outcome: found…, none…, error…, violate…"""

    query: str = Field(min_length=1, max_length=200)


class ProbeToolCall(AgentToolCall):
    """Envelope of the scripted tool."""

    input: ProbeRequest


@dataclass
class ProbeTool:
    """An evidence tool whose outcome is written in its query; counts what it ran."""

    name: str = "query_probe"
    description: str = "A scripted probe."
    timeout_seconds: float = 5.0
    envelope: type[BaseModel] = ProbeToolCall
    kind: EvidenceKind = EvidenceKind.LOG_OR_DATABASE
    ran: list[str] = field(default_factory=list)
    before_run: Callable[[str], Any] | None = None
    size: int = 20

    def check(self, request: BaseModel) -> InvalidInput | None:
        query = self._query(request)
        if query.startswith("invalid"):
            return InvalidInput(field="input.query", rule="not_allowed", allowed="anything else")
        return None

    def scope(self, request: BaseModel) -> Scope:
        query = collapse_whitespace(self._query(request))
        return make_scope(self.name, {"query": query}, f"probe {query}")

    async def run(self, request: BaseModel, context: CallContext) -> ToolOutcome:
        query = self._query(request)
        self.ran.append(query)
        if self.before_run is not None:
            await self.before_run(query)
        if query.startswith("error"):
            raise ToolFailure(ToolErrorCode.BACKEND_ERROR)
        if query.startswith("crash"):
            raise RuntimeError("MARKER-EXCEPTION-TEXT")
        found = not query.startswith("none")
        lines = [f"line about {query} " + "x" * self.size] if found else []
        result = {"lines": lines, "violate": query.startswith("violate"), "internal": "MARKER-AGENT-RESULT"}
        status = EvidenceStatus.EVIDENCE_FOUND if found else EvidenceStatus.NO_EVIDENCE
        return ToolOutcome({"raw": "MARKER-RAW-PAYLOAD"}, result, status, len(lines), False)

    def control(self, agent_result: dict[str, Any], scope: Scope) -> ControlView:
        lines = self._lines(agent_result)
        status = EvidenceStatus.EVIDENCE_FOUND if lines else EvidenceStatus.NO_EVIDENCE
        return ControlView(
            status=InvocationStatus.READY,
            evidence_status=status,
            returned_count=len(lines),
            truncated=False,
            scope=scope,
        )

    def observe(self, tool_call_id: str, scope: Scope, agent_result: dict[str, Any]) -> dict[str, Any]:
        if agent_result.get("violate"):
            raise ObservationContractViolation
        status = self.control(agent_result, scope).evidence_status
        return {
            "tool_call_id": tool_call_id,
            "scope": scope.normalized,
            "evidence_status": status,
            "events": agent_result["lines"],
            "truncated": False,
        }

    def facts(self, scope: Scope, agent_result: dict[str, Any]) -> tuple[FactView, ...]:
        return tuple(FactView(line[:300]) for line in self._lines(agent_result))

    @staticmethod
    def _lines(agent_result: dict[str, Any]) -> list[str]:
        lines = agent_result.get("lines")
        if not isinstance(lines, list):
            raise ObservationContractViolation
        return lines

    @staticmethod
    def _query(request: BaseModel) -> str:
        assert isinstance(request, ProbeRequest)
        return request.query


USAGE = TokenUsage(100, 20)
Answer = Callable[[ModelRequest], Any] | ModelReply | ModelFailureKind | Exception
"""A reply, a failure, or a function of the request that gives (or awaits) either."""


@dataclass
class ScriptedModel:
    """A model client that answers by (component, round), as a replay does; what it was asked is kept."""

    answers: Sequence[Answer] | Callable[[ModelRequest], Any]
    name: str = "scripted"
    semantic_guard_is_lexical: bool = False
    requests: list[ModelRequest] = field(default_factory=list)

    def client(self, name: str | None) -> ScriptedModel:
        """Serve as its own factory."""
        return self

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Answer from the script; past its end, an empty text."""
        self.requests.append(request)
        place = len(self.requests) - 1
        answer: Any = self.answers
        if not callable(answer):
            answer = answer[place] if place < len(answer) else text("")
        if callable(answer):
            answer = answer(request)
        if isawaitable(answer):
            answer = await answer
        if isinstance(answer, ModelFailureKind):
            raise ModelCallFailed(answer)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, ModelReply)
        return answer

    def asked(self, component: Component) -> list[ModelRequest]:
        """The attempts one component made."""
        return [request for request in self.requests if request.component is component]


def envelope(query: str, previous: tuple[str, str] | None = None) -> dict[str, Any]:
    """Arguments of a scripted call."""
    arguments: dict[str, Any] = {"input": {"query": query}}
    if previous is not None:
        arguments["previous_observation"] = {"tool_call_id": previous[0], "information_gain": previous[1]}
    return arguments


def calls(*requested: tuple[str, str, dict[str, Any] | None], usage: TokenUsage | None = USAGE) -> ModelReply:
    """A reply with tool calls (id, name, arguments); arguments None are malformed."""
    valid = [{"id": i, "name": n, "args": a, "type": "tool_call"} for i, n, a in requested if a is not None]
    invalid = [
        {"id": i, "name": n, "args": "[1", "error": None, "type": "invalid_tool_call"}
        for i, n, a in requested
        if a is None
    ]
    message = AIMessage(content="", tool_calls=valid, invalid_tool_calls=invalid)
    return ModelReply(message, tuple(RequestedCall(i, n, a) for i, n, a in requested), "", usage)


def call(tool_call_id: str, query: str, previous: tuple[str, str] | None = None) -> ModelReply:
    """A reply with one well-formed call of the scripted tool."""
    return calls((tool_call_id, "query_probe", envelope(query, previous)))


def text(content: str, usage: TokenUsage | None = USAGE) -> ModelReply:
    """A final text."""
    return ModelReply(AIMessage(content=content), (), content, usage)


def draft(
    conclusion: str | None = None,
    analyses: Sequence[tuple[str, str, str, list[str]]] = (),
    missing_info: Sequence[str] = (),
) -> ModelReply:
    """A final text that is a Draft; analyses are (id, kind, statement, tool_call_ids)."""
    body = {
        "conclusion": {"statement": conclusion, "supporting_analysis_ids": [analyses[0][0]]} if conclusion else None,
        "analyses": [{"analysis_id": i, "kind": k, "statement": s, "tool_call_ids": ids} for i, k, s, ids in analyses],
        "limitations": {"missing_info": list(missing_info), "unverified": []},
    }
    return text(json.dumps(body, ensure_ascii=False))


SUPPORTED = text('{"verdict":"SUPPORTED","unsupported_analysis_ids":[]}')
UNSUPPORTED = text('{"verdict":"UNSUPPORTED","unsupported_analysis_ids":["A1"]}')


def by_round(
    agent: Sequence[Answer], repair: Sequence[Answer] = (), semantics: Sequence[Answer] = (SUPPORTED,) * 4
) -> Callable[[ModelRequest], Any]:
    """A script keyed by component and round, as a replay is: a step that runs again gets the same answer."""
    scripts = {
        Component.DIAGNOSIS_AGENT: agent,
        Component.EVIDENCE_REPAIR: repair,
        Component.SEMANTIC_GUARD: semantics,
    }

    def answer(request: ModelRequest) -> Any:
        script = scripts[request.component]
        given = script[request.round_ - 1] if request.round_ <= len(script) else text("")
        return given(request) if callable(given) else given

    return answer
