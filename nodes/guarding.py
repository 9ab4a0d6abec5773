"""The guard record in the state, and what every guard node shares. Pure."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field

from graph.contract import TraceEventType
from graph.state import DiagnosisState
from nodes.contract import NodeModel
from nodes.events import event
from nodes.model_calls import ModelCallOutcome
from nodes.node_run import NodeResult, NodeRun
from release.contract import DiagnosisDraft, GuardOutcome, GuardViolation, ReleaseStage


class GuardRecord(NodeModel):
    """What the guards found so far. `next` is where the graph goes; `violations` are those of the draft in the state."""

    next: ReleaseStage = ReleaseStage.GUARD_EVIDENCE
    violations: list[GuardViolation] = Field(default_factory=list)
    repair_tried: bool = False
    evidence: GuardOutcome = GuardOutcome.NOT_RUN
    semantics: GuardOutcome = GuardOutcome.NOT_RUN


def load_guard(state: DiagnosisState) -> GuardRecord:
    """Read the guard record; a fresh one before the first guard."""
    return GuardRecord.model_validate(state.get("guard") or {})


def load_draft(state: DiagnosisState) -> DiagnosisDraft:
    """Read the draft in the state, in JSON mode: enums arrive as text."""
    return DiagnosisDraft.model_validate_json(json.dumps(state["draft"]))


def guard_update(guard: GuardRecord, **more: Any) -> dict[str, Any]:
    """Update that writes the guard record."""
    return {"guard": guard.model_dump(mode="json"), **more}


def late_verdict(guard: GuardRecord, outcome: ModelCallOutcome) -> NodeResult:
    """Drop what a guard's model answered after a cancel (R120); what it cost stays counted."""
    after = guard.model_copy(update={"next": ReleaseStage.RELEASE})
    late = event(TraceEventType.LATE_RESULT_DROPPED, stage="guard")
    return NodeResult(
        guard_update(after, **outcome.accounts()),
        "The run was cancelled while a guard's model answered: its answer is dropped.",
        [*outcome.events, late],
        archive=outcome.archive,
    )


def cancelled(run: NodeRun) -> bool:
    """Whether the Run is cancelled or out of time: then no guard runs (R94, R119)."""
    return run.ended_on_entry() is not None
