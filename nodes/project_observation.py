"""Node `project_observation`: step 6 of the fixed order: index, gain by the harness, the model's view (R37, R50-R56)."""

from __future__ import annotations

from typing import Any

from graph.contract import RequestErrorCode, TraceEvent
from graph.state import DiagnosisState, budget_update, load_budget, load_tracker, tracker_update
from graph.tracker import CompletedCall, DiagnosisProgressTracker
from nodes.answering import answer_update, last_answered, others_rejected
from nodes.contract import CallInHand, CollectionEnd, EndCause, Rejection
from nodes.events import gain_events, tool_completed, tool_failed
from nodes.messages import error_observation
from nodes.node_run import NodeResult, NodeRun
from nodes.progress_rules import judge_result
from nodes.tool_boundary import observation_size, observe, unrecorded, withheld
from tools.canonical.store import CanonicalStoreUnavailable, canonical_key
from tools.contract import (
    CanonicalRecord,
    ControlView,
    EvidenceStatus,
    InvocationStatus,
    ToolErrorCode,
)
from tools.evidence_tool import EvidenceTool, ObservationContractViolation


async def project_observation(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Project the finished record into the control view and the whitelisted observation."""
    before = load_tracker(state)
    call = CallInHand.model_validate(state["call"])
    tool = run.resources.tools[call.tool_name]
    record = await _record(run, call)
    if record is None or record.status is InvocationStatus.PROJECTING:
        return _unavailable(before, call, run)
    completed = CompletedCall(
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        canonical_key=canonical_key(run.run.run_id, call.tool_call_id),
        scope_key=record.scope.key,
    )
    indexed, _ = judge_result(before, completed, EvidenceStatus.ERROR)
    if record.error_code is ToolErrorCode.OBSERVATION_CONTRACT_VIOLATION:
        return _violated(before, indexed, call, record)
    if record.status is InvocationStatus.ERROR or record.agent_result is None:
        return _error(state, before, indexed, call, record, run)
    try:
        control = tool.control(record.agent_result, record.scope)
        observation = observe(tool, call.tool_call_id, record, record.agent_result)
    except ObservationContractViolation:
        rejected = withheld(record)
        try:
            await run.resources.canonical.reject(rejected)
        except CanonicalStoreUnavailable:
            return _unavailable(before, call, run)
        return _violated(before, indexed, call, rejected)
    return _projected(state, run, tool, before, completed, call, control, observation)


def _projected(
    state: DiagnosisState,
    run: NodeRun,
    tool: EvidenceTool,
    before: DiagnosisProgressTracker,
    completed: CompletedCall,
    call: CallInHand,
    control: ControlView,
    observation: dict[str, Any],
) -> NodeResult:
    after, gains = judge_result(before, completed, control.evidence_status or EvidenceStatus.ERROR)
    events = [tool_completed(call, control), *gain_events(gains)]
    if control.evidence_status is EvidenceStatus.NO_EVIDENCE:
        step = f"{tool.name} found nothing: counted as no gain ({after.consecutive_no_gain} in a row)."
    else:
        step = f"{tool.name} returned {control.returned_count} items; the model must say whether they taught anything."
    return _answered(state, run, before, after, call, observation, events, step)


def _answered(
    state: DiagnosisState,
    run: NodeRun,
    before: DiagnosisProgressTracker,
    after: DiagnosisProgressTracker,
    call: CallInHand,
    observation: dict[str, Any],
    events: list[TraceEvent],
    step: str,
) -> NodeResult:
    budget = budget_update(load_budget(state).with_observation(observation_size(observation)))
    if after.saturated:
        prepared = call.model_copy(update={"observation": observation})
        update = {"call": prepared.model_dump(mode="json"), **budget, **tracker_update(before, after)}
        return NodeResult(update, f"{step} Collection is saturated.", events)
    final = after.with_answered(last_answered(state, call))
    update = answer_update(state, final, call, observation) | budget | tracker_update(before, final)
    return NodeResult(update, step, [*events, *others_rejected(state, call, final, frozenset(run.resources.tools))])


def _error(
    state: DiagnosisState,
    before: DiagnosisProgressTracker,
    indexed: DiagnosisProgressTracker,
    call: CallInHand,
    record: CanonicalRecord,
    run: NodeRun,
) -> NodeResult:
    code = record.error_code or ToolErrorCode.BACKEND_ERROR
    observation = error_observation(call.tool_call_id, code, run.run.language)
    completed = tool_failed(call, record, code)
    step = f"{call.tool_name} failed ({code.value}): no gain and no loss."
    return _answered(state, run, before, indexed, call, observation, [completed], step)


def _violated(
    before: DiagnosisProgressTracker, after: DiagnosisProgressTracker, call: CallInHand, record: CanonicalRecord
) -> NodeResult:
    rejection = Rejection(error_code=RequestErrorCode.OBSERVATION_CONTRACT_VIOLATION)
    update = {"rejection": rejection.model_dump(mode="json"), **tracker_update(before, after)}
    completed = tool_failed(call, record, ToolErrorCode.OBSERVATION_CONTRACT_VIOLATION)
    return NodeResult(update, f"The result of {call.tool_name} breaks its contract and is withheld.", [completed])


def _unavailable(before: DiagnosisProgressTracker, call: CallInHand, run: NodeRun) -> NodeResult:
    # The result is gone between two steps: answered like an ERROR, nothing is made up; the call ended, so it is
    # indexed and its record's absence becomes a limitation (R17, R65).
    gone = unrecorded(run.run.run_id, call)
    ended = CollectionEnd(cause=EndCause.FAULT, fault="CANONICAL_STORE")
    rejection = Rejection(error_code=RequestErrorCode.OBSERVATION_CONTRACT_VIOLATION)
    update = {
        "ended": ended.model_dump(mode="json"),
        "rejection": rejection.model_dump(mode="json"),
        **tracker_update(before, before.with_completed(gone)),
    }
    return NodeResult(update, f"The record of {call.tool_name} is not available any more.")


async def _record(run: NodeRun, call: CallInHand) -> CanonicalRecord | None:
    try:
        record = await run.resources.canonical.get(run.run.run_id, call.tool_call_id)
    except CanonicalStoreUnavailable:
        return None
    if record is None or (record.run_id, record.tool_call_id) != (run.run.run_id, call.tool_call_id):
        # A record of another Run or call is none of this one (R49).
        return None
    return record
