"""Runs the real chat graph with scripted answers over in-memory stores."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from graph.chat import build_chat_graph
from graph.context import DiagnosisContext
from graph.contract import Component, Intent
from graph.diagnosis import recursion_limit
from nodes.ports import ModelReply, ModelRequest
from tests.fakes import SUPPORTED, Answer, ProbeTool, text
from tests.loop import Loop, make_loop
from tools.contract import (
    ControlView,
    EvidenceKind,
    EvidenceStatus,
    InvalidInput,
    InvocationStatus,
    RelevanceLevel,
    Scope,
    ToolErrorCode,
)
from tools.envelope import AgentToolCall
from tools.evidence_tool import CallContext, FactView, ObservationContractViolation, ToolFailure, ToolOutcome
from tools.rag.request import RagRequest
from tools.scope import make_scope

VIEW = {"topics": [{"name": "app", "description": "logs of the shop"}], "documents": ["Handling a full pool"]}


class DocumentCall(AgentToolCall):
    input: RagRequest


@dataclass
class DocumentTool(ProbeTool):
    """A knowledge search whose outcome is written in its query: none…, error…, violate…, crash…, else two documents."""

    name: str = "search_documents"
    envelope: type[BaseModel] = DocumentCall
    kind: EvidenceKind = EvidenceKind.DOCUMENTS

    def check(self, request: BaseModel) -> InvalidInput | None:
        return None

    def scope(self, request: BaseModel) -> Scope:
        query = self._query(request)
        return make_scope(self.name, {"query": query}, query[:80])

    async def run(self, request: BaseModel, context: CallContext) -> ToolOutcome:
        query = self._query(request)
        self.ran.append(query)
        if self.before_run is not None:
            await self.before_run(query)
        if query.startswith("error"):
            raise ToolFailure(ToolErrorCode.BACKEND_UNAVAILABLE)
        if query.startswith("crash"):
            raise RuntimeError("MARKER-EXCEPTION-TEXT")
        found = not query.startswith("none")
        documents = [_document(number) for number in (1, 2)] if found else []
        result = {"documents": documents, "violate": query.startswith("violate"), "internal": "MARKER-AGENT-RESULT"}
        status = EvidenceStatus.EVIDENCE_FOUND if found else EvidenceStatus.NO_EVIDENCE
        return ToolOutcome({"raw": "MARKER-RAW-PAYLOAD"}, result, status, len(documents), False)

    def control(self, agent_result: dict[str, Any], scope: Scope) -> ControlView:
        documents = agent_result["documents"]
        status = EvidenceStatus.EVIDENCE_FOUND if documents else EvidenceStatus.NO_EVIDENCE
        return ControlView(
            status=InvocationStatus.READY,
            evidence_status=status,
            returned_count=len(documents),
            truncated=False,
            relevance_level=RelevanceLevel.HIGH if documents else None,
            scope=scope,
        )

    def observe(self, tool_call_id: str, scope: Scope, agent_result: dict[str, Any]) -> dict[str, Any]:
        if agent_result.get("violate"):
            raise ObservationContractViolation
        shown = [{k: v for k, v in each.items() if k != "score"} for each in agent_result["documents"]]
        return {"tool_call_id": tool_call_id, "scope": scope.normalized, "documents": shown, "truncated": False}

    def facts(self, scope: Scope, agent_result: dict[str, Any]) -> tuple[FactView, ...]:
        return ()

    @staticmethod
    def _query(request: BaseModel) -> str:
        assert isinstance(request, RagRequest)
        return request.query


def _document(number: int) -> dict[str, Any]:
    return {
        "document_id": f"runbooks/pool.md#{number}",
        "title": f"Pool {number}",
        "source": "pool.md",
        "content": f"Step {number}: raise the pool.",
        "score": 0.5,
        "relevance_level": "HIGH",
    }


@dataclass
class Chat(Loop):
    """A loop over the chat graph; `state` is what a user gets of the last Run."""

    async def run(
        self,
        query: str = "why?",
        thread: str = "t",
        run_id: uuid.UUID | None = None,
        session: str | None = None,
        **context: Any,
    ) -> dict[str, Any]:
        settings = DiagnosisContext(**context)
        config = {**self.config(thread, run_id), "recursion_limit": recursion_limit(settings.budget)}
        given = {"query": query, **({"session_id": session} if session else {})}
        self.state = await self.graph.ainvoke(given, config, context=settings)
        return self.state

    @property
    def outcome(self) -> dict[str, Any]:
        return self.state

    @property
    def run_id(self) -> str:
        return str(self.state["run_id"])


def make_chat(answers: Sequence[Answer] | Any, **options: Any) -> Chat:
    """Build a chat; options replace Resources fields."""
    documents = options.pop("documents", None) or DocumentTool()
    options.setdefault("more_tools", (documents,))
    options.setdefault("describe_system", describe)
    loop = make_loop(answers, build=build_chat_graph, loop=Chat, **options)
    assert isinstance(loop, Chat)
    return loop


async def describe() -> Mapping[str, Any]:
    return VIEW


def routed(intent: Intent | str) -> ModelReply:
    """The router's answer."""
    return text(json.dumps({"intent": str(intent)}))


def knowledge(*items: tuple[str, str, list[str]], not_found: bool | None = None) -> ModelReply:
    """A knowledge answer; items are (text, tool_call_id, document_ids)."""
    written = [{"text": t, "tool_call_id": call, "document_ids": ids} for t, call, ids in items]
    return text(json.dumps({"items": written, "not_found": not items if not_found is None else not_found}))


def by_component(**scripts: Sequence[Answer] | Answer) -> Callable[[ModelRequest], Any]:
    """A script keyed by component and round: `intent_router=[…], system_chat=…`."""
    answers = {"semantic_guard": [SUPPORTED] * 4, **scripts}

    def answer(request: ModelRequest) -> Any:
        script = answers[Component(request.component).value.lower()]
        listed = list(script) if isinstance(script, Sequence) else [script]
        given = listed[request.round_ - 1] if request.round_ <= len(listed) else text("")
        return given(request) if callable(given) else given

    return answer
