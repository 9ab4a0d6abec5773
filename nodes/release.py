"""Node `release`: decides what is published and ends the Run by one compare-and-set (R5, R8, R80-R94, R108)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from graph.contract import DiagnosisStopReason, RunState, TraceEvent, TraceEventType
from graph.state import DiagnosisState, load_tracker
from graph.tracker import DiagnosisProgressTracker
from nodes.contract import CollectionEnd, EndCause
from nodes.events import event
from nodes.evidence import guarded_evidence
from nodes.guarding import load_draft, load_guard
from nodes.node_run import ACTIVE, NodeResult, NodeRun
from nodes.ports import ArchiveEntry, RunEnd, RunRecord
from nodes.usage import end_fields, usage_of
from release.contract import (
    AgentOutputFailure,
    DiagnosisDraft,
    ProgressSnapshot,
    ReleaseErrorCode,
    ReleaseOutcome,
    ReleaseReason,
    ViolationCode,
)
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

    usage = usage_of(state)
    decision = _decided_before(run.record, execution, decide)
    if decision is None:
        decision = await _end(run, decide(execution), execution, usage)
    outcome = _outcome(decision, execution, usage)
    events += [_decided(decision), _ended(decision, execution, usage)]
    step = f"Released {decision.outcome.value}: {decision.reason.value}."
    return NodeResult({"outcome": outcome}, step, events, archive=[ArchiveEntry("result", "result", outcome)])


async def _end(
    run: NodeRun, decision: ReleaseDecision, execution: DiagnosisAgentExecution, usage: dict[str, Any]
) -> ReleaseDecision:
    ended_at, runs, run_id = run.clock.now(), run.resources.runs, run.run.run_id
    if await runs.transition(run_id, ACTIVE, decision.internal_end, _run_end(decision, execution, usage, ended_at)):
        return decision
    decision = _cancelled()
    still = frozenset({RunState.CANCEL_REQUESTED})
    await runs.transition(run_id, still, RunState.CANCELLED, _run_end(decision, execution, usage, ended_at))
    return decision


def _decided_before(
    record: RunRecord | None,
    execution: DiagnosisAgentExecution,
    decide: Callable[[DiagnosisAgentExecution], ReleaseDecision],
) -> ReleaseDecision | None:
    """Find the decision that this very execution had written when it was interrupted: there is one end (R8)."""
    if record is None or record.ended_at is None:
        return None
    for timed_out in (False, True):
        decision = decide(replace(execution, cancelled=False, timed_out=timed_out))
        published = decision.published.model_dump(mode="json") if decision.published else None
        written = (record.internal_state, record.release_outcome, record.published_result, record.fallback)
        if written == (decision.internal_end, decision.outcome, published, _fallback(decision)):
            return decision
    return None


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


def _cancelled() -> ReleaseDecision:
    return ReleaseDecision(
        outcome=ReleaseOutcome.NONE,
        internal_end=RunState.CANCELLED,
        reason=ReleaseReason.CANCELLED,
        error_code=ReleaseErrorCode.CANCELLED,
    )


def _run_end(
    decision: ReleaseDecision, execution: DiagnosisAgentExecution, usage: dict[str, Any], ended_at: float
) -> RunEnd:
    return RunEnd(
        release_outcome=decision.outcome,
        ended_at=ended_at,
        published_result=decision.published.model_dump(mode="json") if decision.published else None,
        fallback=_fallback(decision),
        stop_reason=execution.stop_reason.value if execution.stop_reason else None,
        error_code=decision.error_code.value if decision.error_code else None,
        total_token_count=usage["total_tokens"],
        usage=usage,
    )


def _fallback(decision: ReleaseDecision) -> dict[str, Any] | None:
    return decision.fallback.model_dump(mode="json") if decision.fallback else None


def _outcome(decision: ReleaseDecision, execution: DiagnosisAgentExecution, usage: dict[str, Any]) -> dict[str, Any]:
    stop: DiagnosisStopReason | None = execution.stop_reason
    return {
        "release_outcome": decision.outcome.value,
        "internal_state": decision.internal_end.value,
        "reason": decision.reason.value,
        "published_result": decision.published.model_dump(mode="json") if decision.published else None,
        "fallback": _fallback(decision),
        "error_code": decision.error_code.value if decision.error_code else None,
        "stop_reason": stop.value if stop else None,
        "usage": usage,
    }


def _decided(decision: ReleaseDecision) -> TraceEvent:
    return event(TraceEventType.RELEASE_DECIDED, release_outcome=decision.outcome.value, reason=decision.reason.value)


def _ended(decision: ReleaseDecision, execution: DiagnosisAgentExecution, usage: dict[str, Any]) -> TraceEvent:
    return event(
        TraceEventType.RUN_ENDED,
        internal_state=decision.internal_end.value,
        stop_reason=execution.stop_reason.value if execution.stop_reason else None,
        **end_fields(usage),
    )
