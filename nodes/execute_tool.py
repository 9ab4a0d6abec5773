"""Node `execute_tool`: the call enters the tool boundary and its canonical record is written (R37 step 5, R48)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graph.contract import TraceEventType
from graph.state import DiagnosisState, budget_update, load_budget, load_tracker, tracker_update
from nodes.contract import CallInHand, CollectionEnd, EndCause
from nodes.events import event
from nodes.node_run import NodeResult, NodeRun
from nodes.ports import ArchiveEntry
from nodes.tool_boundary import NotRecorded, execute, unrecorded


async def execute_tool(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Run the tool once; a record of this very call that is already finished is reused."""
    call = CallInHand.model_validate(state["call"])
    ended = run.ended_on_entry()
    if ended is not None:
        return _ended(ended, f"Did not run {call.tool_name}: the run is {ended.cause.value.lower()}.")
    tool = run.resources.tools[call.tool_name]
    try:
        record = await execute(tool, call, run.run, run.resources.canonical, run.clock)
    except NotRecorded as missing:
        return _not_recorded(state, run, call, missing)
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


def _not_recorded(state: DiagnosisState, run: NodeRun, call: CallInHand, missing: NotRecorded) -> NodeResult:
    """Fail closed: what cannot be recorded cannot be proven (R65). A tool that ran has ended all the same.

    Then the call counts in the budget (R108, R117) and stands in the index, where its record's absence is a limitation
    (R17).
    """
    result = _ended(CollectionEnd(cause=EndCause.FAULT, fault=missing.fault), "The result could not be recorded.")
    if not missing.ran:
        return result
    before = load_tracker(state)
    after = before.with_completed(unrecorded(run.run.run_id, call))
    update = result.update | budget_update(load_budget(state).with_tool_call()) | tracker_update(before, after)
    return replace(result, update=update)


def _ended(end: CollectionEnd, step: str) -> NodeResult:
    update: dict[str, Any] = {"ended": end.model_dump(mode="json")}
    return NodeResult(update, step)
