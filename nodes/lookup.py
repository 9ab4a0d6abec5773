"""The one lookup of a knowledge answer: the registry's search by its business request, at the tool boundary (R95, R96)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graph.budget import RunBudget
from graph.contract import TraceEvent, TraceEventType
from nodes.contract import CallInHand
from nodes.events import event, tool_completed, tool_failed
from nodes.node_run import NodeRun
from nodes.ports import ArchiveEntry
from nodes.tool_boundary import NotRecorded, execute, observation_size, observe, withheld
from release.answers.contract import LOOKUP_ID
from release.contract import ReleaseErrorCode
from tools.canonical.store import CanonicalStoreUnavailable
from tools.contract import CanonicalRecord, EvidenceKind, InvalidInput, InvocationStatus, ToolErrorCode
from tools.envelope_protocol import check_input
from tools.evidence_tool import EvidenceTool, ObservationContractViolation

MAX_QUERY_CHARS = 500
"""Characters of a question that are searched for (R129)."""
DOCUMENTS = 5
"""Documents asked for: the most there are (R129)."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """What the lookup came to: the model's view of it, or why there is none; `late` when the Run was cancelled meanwhile."""

    budget: RunBudget
    observation: dict[str, Any] | None = None
    error: ReleaseErrorCode | None = None
    late: bool = False
    events: Sequence[TraceEvent] = ()
    archive: Sequence[ArchiveEntry] = ()


async def look_up(question: str, run: NodeRun, budget: RunBudget) -> Lookup:
    """Search once, within the budget; a record of this very call that is already finished is reused."""
    if budget.crossed_before_tool(run.clock.now()) is not None:
        return Lookup(budget, error=ReleaseErrorCode.BUDGET_LIMIT_REACHED)
    tool = next((each for each in run.resources.tools.values() if each.kind is EvidenceKind.DOCUMENTS), None)
    call = _call(tool, question) if tool is not None else None
    if tool is None or call is None:
        return Lookup(budget, error=ReleaseErrorCode.KNOWLEDGE_LOOKUP_FAILED)
    try:
        record = await execute(tool, call, run.run, run.resources.canonical, run.clock)
    except NotRecorded as missing:
        # What cannot be recorded cannot be cited: fail closed (R65). A lookup that was made counts all the same.
        return Lookup(
            budget.with_tool_call() if missing.ran else budget, error=ReleaseErrorCode.KNOWLEDGE_LOOKUP_FAILED
        )
    asked = budget.with_tool_call()
    if not await run.still_active():
        return Lookup(asked, late=True, events=[event(TraceEventType.LATE_RESULT_DROPPED, stage="tool")])
    return await _projected(tool, call, record, run, asked)


def _call(tool: EvidenceTool, question: str) -> CallInHand | None:
    request = {"query": question[:MAX_QUERY_CHARS], "top_k": DOCUMENTS}
    checked = check_input(request, tool.envelope)
    if isinstance(checked, InvalidInput) or tool.check(checked) is not None:
        return None
    return CallInHand(tool_call_id=LOOKUP_ID, tool_name=tool.name, input=request, scope=tool.scope(checked))


async def _projected(
    tool: EvidenceTool, call: CallInHand, record: CanonicalRecord, run: NodeRun, budget: RunBudget
) -> Lookup:
    archived = [ArchiveEntry("agent_result", LOOKUP_ID, record.model_dump(mode="json", exclude={"raw_response"}))]
    if record.status is not InvocationStatus.READY or record.agent_result is None:
        return _failed(call, record, record.error_code or ToolErrorCode.BACKEND_ERROR, budget, archived)
    try:
        control = tool.control(record.agent_result, record.scope)
        observation = observe(tool, LOOKUP_ID, record, record.agent_result)
    except ObservationContractViolation:
        with contextlib.suppress(CanonicalStoreUnavailable):
            await run.resources.canonical.reject(withheld(record))
        return _failed(call, record, ToolErrorCode.OBSERVATION_CONTRACT_VIOLATION, budget, archived)
    paid = budget.with_observation(observation_size(observation))
    return Lookup(paid, observation, events=[tool_completed(call, control)], archive=archived)


def _failed(
    call: CallInHand,
    record: CanonicalRecord,
    code: ToolErrorCode,
    budget: RunBudget,
    archived: Sequence[ArchiveEntry],
) -> Lookup:
    error = ReleaseErrorCode.KNOWLEDGE_LOOKUP_FAILED
    return Lookup(budget, error=error, events=[tool_failed(call, record, code)], archive=archived)
