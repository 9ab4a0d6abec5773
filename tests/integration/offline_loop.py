"""The harness's order of R37 in one small loop, over the real tools and the real offline model; no graph."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from graph.contract import Component
from nodes.ports import ModelRequest
from release.contract import DiagnosisDraft
from release.evidence import EvidenceView
from service.offline.client import OfflineClient
from tools.catalog import Catalog
from tools.contract import EvidenceKind, EvidenceStatus, InvocationStatus
from tools.evidence_tool import CallContext, EvidenceTool, ToolFailure
from tools.logs.tool import build_logs_tool
from tools.mysql.tool import build_mysql_tool
from tools.rag.tool import build_rag_tool

NO_GAIN_THRESHOLD = 3
RUN = "run-1"


def build_tools(catalog: Catalog, index_dir: Path) -> list[EvidenceTool]:
    """The catalogue's tools in the order models see them."""
    built = (build_rag_tool(catalog, index_dir), build_logs_tool(catalog), build_mysql_tool(catalog, {}))
    return [tool for tool in built if tool is not None]


@dataclass
class Loop:
    """One run; `evidence` is what guards see of its calls, `log` one line per call for the eye."""

    tools: Sequence[EvidenceTool]
    question: str
    now: float
    evidence: dict[str, EvidenceView] = field(default_factory=dict)
    facts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    stopped: bool = False
    violations: int = 0
    count: int = 0
    pending: str = ""
    scopes: set[str] = field(default_factory=set)

    async def run(self) -> DiagnosisDraft:
        """Drive the offline model to its draft."""
        messages: list[BaseMessage] = [SystemMessage("Diagnose."), HumanMessage(self.question)]
        client = OfflineClient()
        for round_ in range(1, 25):
            request = ModelRequest(Component.DIAGNOSIS_AGENT, round_, messages, self.tools, DiagnosisDraft)
            reply = await client.complete(request)
            if not reply.calls:
                return DiagnosisDraft.model_validate_json(reply.text)
            assert not self.stopped
            (call,) = reply.calls
            answer = await self._answer(call.tool_call_id, call.tool_name, call.arguments or {})
            messages += [
                reply.message,
                ToolMessage(json.dumps(answer, ensure_ascii=False), tool_call_id=call.tool_call_id),
            ]
            assert isinstance(reply.message, AIMessage)
        raise AssertionError("no draft after 24 rounds")

    async def _answer(self, call_id: str, name: str, args: dict[str, Any]) -> dict[str, Any]:
        tool = next(tool for tool in self.tools if tool.name == name)
        envelope: Any = tool.envelope.model_validate_json(json.dumps(args))
        previous = envelope.previous_observation
        if (previous.tool_call_id if previous else "") != self.pending:
            self.violations += 1
            return {"error_code": "INVALID_PROGRESS_PROTOCOL", "expected_previous_tool_call_id": self.pending or None}
        invalid = tool.check(envelope.input)
        if invalid is not None:
            self.log.append(f"{name} refused {invalid.field} {invalid.rule} {args['input']}")
            return {"error_code": "INVALID_TOOL_REQUEST", **invalid.model_dump()}
        if previous:
            self.count = 0 if previous.information_gain.value == "GAINED" else self.count + 1
        scope = tool.scope(envelope.input)
        verdict = previous.information_gain.value if previous else "-"
        self.log.append(f"{verdict:8}{name} {json.dumps(args['input'], ensure_ascii=False)[:150]}")
        self.pending = ""
        if self.count < NO_GAIN_THRESHOLD and scope.key in self.scopes:
            self.count += 1
            return self._stop({"error_code": "DUPLICATE_SCOPE", "previous_observation_applied": True})
        if self.count >= NO_GAIN_THRESHOLD:
            return self._stop({})
        self.scopes.add(scope.key)
        try:
            outcome = await tool.run(envelope.input, CallContext(self.now, False, tool.timeout_seconds))
        except ToolFailure as failure:
            return {"tool_call_id": call_id, "evidence_status": "ERROR", "error_code": failure.code.value}
        found = outcome.evidence_status is EvidenceStatus.EVIDENCE_FOUND
        self.pending, self.count = (call_id, self.count) if found else ("", self.count + 1)
        documents = "documents" in outcome.agent_result
        self.evidence[call_id] = EvidenceView(
            call_id,
            RUN,
            EvidenceKind.DOCUMENTS if documents else EvidenceKind.LOG_OR_DATABASE,
            InvocationStatus.READY,
            outcome.evidence_status,
            scope.normalized,
            outcome.agent_result,
        )
        self.facts[call_id] = tuple(fact.excerpt for fact in tool.facts(scope, outcome.agent_result)) if found else ()
        return self._stop(tool.observe(call_id, scope, outcome.agent_result))

    def _stop(self, answer: dict[str, Any]) -> dict[str, Any]:
        if self.count < NO_GAIN_THRESHOLD:
            return answer
        self.stopped = True
        return {**answer, "stop_required": True, "reason": "INFORMATION_SATURATED"}
