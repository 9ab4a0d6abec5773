"""Node `release`: decides what is published and ends the Run by one compare-and-set (R5, R8, R80-R94, R108)."""

from __future__ import annotations

from dataclasses import replace

from graph.contract import TraceEvent, TraceEventType
from graph.state import DiagnosisState, load_tracker
from graph.tracker import DiagnosisProgressTracker
from nodes.contract import CollectionEnd, EndCause
from nodes.ending import Ending, decided_before
from nodes.events import event
from nodes.evidence import guarded_evidence
from nodes.guarding import load_draft, load_guard
from nodes.node_run import NodeResult, NodeRun
from nodes.usage import usage_of
from release.contract import AgentOutputFailure, DiagnosisDraft, ProgressSnapshot, ViolationCode
from release.decision import DiagnosisAgentExecution, DiagnosisReleaseUseCase, ReleaseDecision, ReleaseInput
from release.evidence_guard import check_references
from tools.canonical.store import CanonicalStoreUnavailable


async def release(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Decide, then write the end; an acknowledged cancel wins over every decision (R94)."""
    execution, events = await _execution(state, run)
    guard = load_guard(state)

    def decide(given: DiagnosisAgentExecution) -> ReleaseDecision:
        return DiagnosisReleaseUseCase().decide(
            ReleaseInput(state["query"], given, guard.evidence, guard.semantics, run.run.language)
        )

    decision = decided_before(run.record, lambda late: decide(replace(execution, cancelled=False, timed_out=late)))
    end = Ending(run, usage_of(state), execution.stop_reason)
    return end.result(decision or await end.write(decide(execution)), events)


async def _execution(state: DiagnosisState, run: NodeRun) -> tuple[DiagnosisAgentExecution, list[TraceEvent]]:
    tracker = load_tracker(state)
    end = CollectionEnd.model_validate(state["ended"])
    entry = run.ended_on_entry()
    causes = {end.cause, entry.cause if entry else end.cause}
    failure = state.get("output_failure")
    draft, events = (load_draft(state) if state.get("draft") else None), list[TraceEvent]()
    if draft is not None and draft.conclusion is None:
        draft, events = await _references_checked(draft, run, tracker)
    execution = DiagnosisAgentExecution(
        snapshot=ProgressSnapshot.model_validate(state["snapshot"]),
        index_empty=not tracker.index,
        draft=draft,
        output_failure=AgentOutputFailure(failure["failure"]) if failure else None,
        stop_reason=tracker.stop_reason,
        budget_crossed=end.cause is EndCause.BUDGET,
        fault=EndCause.FAULT in causes,
        timed_out=EndCause.TIMED_OUT in causes,
        cancelled=EndCause.CANCELLED in causes,
    )
    return execution, events


async def _references_checked(
    draft: DiagnosisDraft, run: NodeRun, tracker: DiagnosisProgressTracker
) -> tuple[DiagnosisDraft, list[TraceEvent]]:
    try:
        checked = check_references(draft, run.run.run_id, await guarded_evidence(run, tracker))
    except CanonicalStoreUnavailable:
        # What cannot be checked is not called invalid; nothing of the analyses is published either way (R88e).
        return draft.model_copy(update={"analyses": []}), []
    if not checked.invalid:
        return checked.draft, []
    codes = [ViolationCode.REFERENCE_INVALID.value]
    return checked.draft, [event(TraceEventType.EVIDENCE_GUARD, violations=codes, passed=False)]
