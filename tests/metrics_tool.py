"""A fourth evidence tool: the points of one metric from a CSV file of `seconds since the epoch,metric,value`."""

from __future__ import annotations

import asyncio
import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from service.registry import Site
from tools.contract import ControlView, EvidenceKind, EvidenceStatus, InvalidInput, Scope, ToolErrorCode
from tools.contract import InvocationStatus as Status
from tools.envelope import AgentToolCall, BusinessRequest
from tools.evidence_tool import (
    CallContext,
    EvidenceTool,
    FactView,
    ObservationContractViolation,
    ToolFailure,
    ToolOutcome,
)
from tools.scope import make_scope

METRICS, MAX_POINTS = ("pool_in_use", "error_rate"), 20


class MetricsRequest(BusinessRequest):
    """What the model may ask."""

    metric: str = Field(max_length=64, description=f"One of {', '.join(METRICS)}.")
    lookback_minutes: int = Field(default=30, ge=1, le=1440, description="Minutes back from now.")


class MetricsToolCall(AgentToolCall):
    """Envelope: the request beside the verdict on the previous result."""

    input: MetricsRequest


@dataclass(frozen=True)
class MetricsTool:
    """Implements EvidenceTool; the harness has parsed every `request` into a MetricsRequest."""

    path: Path
    name: str = "read_metrics"
    description: str = "Read the points of one metric of the shop, newest first."
    envelope: type[BaseModel] = MetricsToolCall
    kind: EvidenceKind = EvidenceKind.LOG_OR_DATABASE
    timeout_seconds: float = 5.0

    def check(self, request: Any) -> InvalidInput | None:
        if request.metric in METRICS:
            return None
        return InvalidInput(field="input.metric", rule="unknown_metric", allowed=", ".join(METRICS))

    def scope(self, request: Any) -> Scope:
        return make_scope(self.name, request.model_dump(), f"{self.name} {request.metric}")

    async def run(self, request: Any, context: CallContext) -> ToolOutcome:
        metric, since = request.metric, context.now - request.lookback_minutes * 60
        try:
            text = await asyncio.to_thread(self.path.read_text, "utf-8")
            rows = [(float(at), float(value)) for at, name, value in csv.reader(text.splitlines()) if name == metric]
        except (OSError, ValueError):
            raise ToolFailure(ToolErrorCode.BACKEND_UNAVAILABLE) from None
        newest = sorted((row for row in rows if since <= row[0] <= context.now), reverse=True)
        points = [f"{metric} was {value:g} at {at:.0f}" for at, value in newest]
        shown, truncated = points[:MAX_POINTS], len(points) > MAX_POINTS
        status = EvidenceStatus.EVIDENCE_FOUND if shown else EvidenceStatus.NO_EVIDENCE
        return ToolOutcome(points, {"points": shown, "truncated": truncated}, status, len(shown), truncated)

    def control(self, agent_result: dict[str, Any], scope: Scope) -> ControlView:
        points, truncated = agent_result.get("points"), agent_result.get("truncated")
        if not isinstance(points, list) or not isinstance(truncated, bool):
            raise ObservationContractViolation
        status = EvidenceStatus.EVIDENCE_FOUND if points else EvidenceStatus.NO_EVIDENCE
        counts = {"returned_count": len(points), "truncated": truncated}
        return ControlView(status=Status.READY, evidence_status=status, scope=scope, **counts)

    def observe(self, tool_call_id: str, scope: Scope, agent_result: dict[str, Any]) -> dict[str, Any]:
        view = self.control(agent_result, scope)
        told = {"scope": scope.normalized, "evidence_status": view.evidence_status, "truncated": view.truncated}
        return {"tool_call_id": tool_call_id, **told, "points": agent_result["points"]}

    def facts(self, scope: Scope, agent_result: dict[str, Any]) -> tuple[FactView, ...]:
        return tuple(FactView(point) for point in agent_result["points"])


def build_metrics_tool(site: Site) -> EvidenceTool | None:
    """What the registry calls; None where there is nothing to ask."""
    path = site.env.get("SHOP_METRICS")
    return MetricsTool(Path(path)) if path else None
