"""The knowledge search as an evidence tool: request, scope, backend and observation tied together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tools.catalog import Catalog, CatalogError
from tools.contract import ControlView, EvidenceKind, InvalidInput, InvocationStatus, Scope
from tools.evidence_tool import CallContext, FactView, ToolOutcome
from tools.rag import observation
from tools.rag.backend import RagBackend
from tools.rag.backend_fts import FtsBackend
from tools.rag.backend_joined import JoinedBackend
from tools.rag.backend_vector import OpenStore, VectorBackend
from tools.rag.request import MAX_QUERY_CHARS, RagRequest, RagToolCall
from tools.rag.scope import TOOL_NAME, project_scope

TIMEOUT_SECONDS = 5.0
_PURPOSE = (
    "Search the knowledge base (runbooks, alert descriptions, guides) for how to diagnose a symptom. Documents say "
    "what to check and why; they are not evidence of what happened, so follow them up in logs or data. "
    "relevance_level HIGH: the document covers much of the query; REFERENCE: part of it. Folders: "
)
_MAX_FOLDERS_CHARS = 1500


@dataclass(frozen=True, slots=True)
class RagTool:
    """`search_runbooks` (R18, R129). `folders` describes the catalogue's knowledge to the model."""

    backend: RagBackend
    folders: str

    @property
    def name(self) -> str:
        """Wire name the model calls."""
        return TOOL_NAME

    @property
    def description(self) -> str:
        """What the tool is for, and the catalogue's knowledge folders."""
        return _PURPOSE + self.folders

    @property
    def envelope(self) -> type[BaseModel]:
        """RagToolCall."""
        return RagToolCall

    @property
    def kind(self) -> EvidenceKind:
        """Documents, which alone are never evidence (R71)."""
        return EvidenceKind.DOCUMENTS

    @property
    def timeout_seconds(self) -> float:
        """5 s (R55)."""
        return TIMEOUT_SECONDS

    def check(self, request: BaseModel) -> InvalidInput | None:
        """Refuse a blank query (R28)."""
        if project_scope(_rag(request)).normalized["query"]:
            return None
        allowed = f"1 to {MAX_QUERY_CHARS} characters, not only whitespace"
        return InvalidInput(field="input.query", rule="NOT_BLANK", allowed=allowed)

    def scope(self, request: BaseModel) -> Scope:
        """Project the normalized query (R43)."""
        return project_scope(_rag(request))

    async def run(self, request: BaseModel, context: CallContext) -> ToolOutcome:
        """Search. Raises ToolFailure, ObservationContractViolation."""
        rag = _rag(request)
        raw = await self.backend.search(rag, min(context.deadline_seconds, TIMEOUT_SECONDS))
        result = observation.agent_result(raw, project_scope(rag))
        return ToolOutcome(
            raw_response=raw,
            agent_result=result.model_dump(mode="json"),
            evidence_status=observation.evidence_status(result),
            returned_count=len(result.documents),
            truncated=result.truncated,
            relevance_level=result.relevance_level,
        )

    def control(self, agent_result: dict[str, Any], scope: Scope) -> ControlView:
        """Read the control view (R50). Raises ObservationContractViolation."""
        result = observation.read_agent_result(agent_result)
        return ControlView(
            status=InvocationStatus.READY,
            evidence_status=observation.evidence_status(result),
            returned_count=len(result.documents),
            truncated=result.truncated,
            relevance_level=result.relevance_level,
            scope=scope,
        )

    def observe(self, tool_call_id: str, scope: Scope, agent_result: dict[str, Any]) -> dict[str, Any]:
        """Serialize the model observation (R51, R52). Raises ObservationContractViolation."""
        return observation.observe(tool_call_id, scope, observation.read_agent_result(agent_result))

    def facts(self, scope: Scope, agent_result: dict[str, Any]) -> tuple[FactView, ...]:
        """None: documents are never facts (R68)."""
        return ()


def build_rag_tool(catalog: Catalog, index_dir: Path, open_store: OpenStore | None = None) -> RagTool | None:
    """Build the tool on the embedded index and on vector stores; None when the catalogue names no knowledge.

    Touches no index and no store yet. Raises CatalogError: a store that cannot be opened.
    """
    if not catalog.knowledge:
        return None
    backends: list[RagBackend] = [FtsBackend(catalog, index_dir)] if catalog.folders else []
    if catalog.stores:
        if open_store is None:
            raise CatalogError(f"knowledge {catalog.stores[0].name}: store: vector stores are not available here")
        backends.append(VectorBackend([(entry, open_store(catalog, entry)) for entry in catalog.stores]))
    named = (f"{entry.name} ({entry.description})" if entry.description else entry.name for entry in catalog.knowledge)
    return RagTool(
        backends[0] if len(backends) == 1 else JoinedBackend(backends), "; ".join(named)[:_MAX_FOLDERS_CHARS] + "."
    )


def _rag(request: BaseModel) -> RagRequest:
    if not isinstance(request, RagRequest):
        raise TypeError(f"{TOOL_NAME} takes a RagRequest")
    return request
