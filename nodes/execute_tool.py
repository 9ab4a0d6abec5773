"""Node `execute_tool`: the call enters the tool boundary and its canonical record is written (R37 step 5, R48)."""

from __future__ import annotations

from typing import Any

from graph.contract import TraceEventType
from graph.state import DiagnosisState, budget_update, load_budget
from nodes.contract import CallInHand, CollectionEnd, EndCause
from nodes.events import event
from nodes.node_run import NodeResult, NodeRun
from nodes.ports import ArchiveEntry
from nodes.tool_boundary import execute
from tools.canonical.store import CanonicalRecordTooLarge, CanonicalStoreUnavailable


async def execute_tool(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Run the tool once; a record of this very call that is already finished is reused."""
    call = CallInHand.model_validate(state["call"])
    ended = run.ended_on_entry()
    if ended is not None:
        return _ended(ended, f"Did not run {call.tool_name}: the run is {ended.cause.value.lower()}.")
    tool = run.resources.tools[call.tool_name]
    try:
        record = await execute(tool, call, run.run, run.resources.canonical, run.clock)
    except (CanonicalStoreUnavailable, CanonicalRecordTooLarge) as error:
        # What cannot be recorded cannot be proven: fail closed (R65).
        fault = "CANONICAL_STORE" if isinstance(error, CanonicalStoreUnavailable) else "CANONICAL_RECORD_TOO_LARGE"
        return _ended(CollectionEnd(cause=EndCause.FAULT, fault=fault), "The result could not be recorded.")
    budget = budget_update(load_budget(state).with_tool_call())
    if not await run.still_active():
        late = event(TraceEventType.LATE_RESULT_DROPPED, stage="tool")
        return NodeResult(
            {**budget, "ended": CollectionEnd(cause=EndCause.CANCELLED).model_dump(mode="json")},
            "The run was cancelled while the tool ran: its result is dropped.",
            [late],
        )
    archived = record.model_dump(mode="json", exclude={"raw_response"})
    status = record.evidence_status.value if record.evidence_status else record.status.value
    return NodeResult(
        budget,
        f"Ran {call.tool_name}: {status}.",
        archive=[ArchiveEntry("agent_result", call.tool_call_id, archived)],
    )


def _ended(end: CollectionEnd, step: str) -> NodeResult:
    update: dict[str, Any] = {"ended": end.model_dump(mode="json")}
    return NodeResult(update, step)
