"""DiagnosisReleaseUseCase: the one place that decides what leaves a diagnosis (R5, R80-R88, R94). Pure.

`next_stage` says which guard comes next; `DiagnosisReleaseUseCase.decide` says what is published. The first rule that
applies decides: cancelled, fault or timeout, refused output, no draft, draft without conclusion, draft with one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graph.contract import DiagnosisStopReason, RunState
from release.answers.contract import PublishedChat, PublishedKnowledge
from release.contract import (
    AgentOutputFailure,
    DiagnosisDraft,
    FallbackReason,
    GuardOutcome,
    GuardViolation,
    LimitationCode,
    ProgressSnapshot,
    PublishedResult,
    ReleaseErrorCode,
    ReleaseOutcome,
    ReleaseReason,
    ReleaseStage,
    SafeFallback,
)
from release.fallback import build_fallback
from release.published import build_published
from release.snapshot import with_limitation


@dataclass(frozen=True, slots=True)
class DiagnosisAgentExecution:
    """What the tool loop ended with: a Draft or none, the snapshot, why collection stopped (R62, R63).

    `draft` and `output_failure` exclude each other. `index_empty` means that no call entered the ToolBoundary (R85).
    """

    snapshot: ProgressSnapshot
    index_empty: bool
    draft: DiagnosisDraft | None = None
    output_failure: AgentOutputFailure | None = None
    stop_reason: DiagnosisStopReason | None = None
    budget_crossed: bool = False
    fault: bool = False
    timed_out: bool = False
    cancelled: bool = False

    @property
    def aborted(self) -> bool:
        """True when no guard may run any more (R60, R94)."""
        return self.cancelled or self.timed_out or self.fault

    @property
    def budget_terminated(self) -> bool:
        """True when a budget was crossed, whatever the first stop reason was (R9, R94)."""
        return self.budget_crossed or self.stop_reason is DiagnosisStopReason.BUDGET_LIMIT_REACHED


@dataclass(frozen=True, slots=True)
class ReleaseInput:
    """All the release decision reads (R80).

    `evidence_guard` is the last verdict on the draft in `execution`, which is the repaired one if a repair was taken.
    `language` is `zh` or `en`.
    """

    query: str
    execution: DiagnosisAgentExecution
    evidence_guard: GuardOutcome = GuardOutcome.NOT_RUN
    semantic_guard: GuardOutcome = GuardOutcome.NOT_RUN
    language: str = "zh"


@dataclass(frozen=True, slots=True)
class ReleaseDecision:
    """What leaves the Run and how it ends (R94): exactly one of `published`, `fallback` and `error_code` is set.

    `internal_end` is the explicit mark of a termination that was handled: BUDGET_EXHAUSTED beside a fallback takes the
    place of the success transition (R140).
    """

    outcome: ReleaseOutcome
    internal_end: RunState
    reason: ReleaseReason
    published: PublishedResult | PublishedKnowledge | PublishedChat | None = None
    fallback: SafeFallback | None = None
    error_code: ReleaseErrorCode | None = None


def next_stage(
    draft: DiagnosisDraft | None,
    *,
    aborted: bool,
    violations: Sequence[GuardViolation] | None,
    can_repair: bool,
    repair_tried: bool,
) -> ReleaseStage:
    """Say where the Run goes after project_progress, guard_evidence and repair_evidence (R81, R82).

    `violations` are those of this very draft: None until the evidence guard has judged it, so also None right after a
    repair was taken. A repair that was not taken leaves them as they are, with `repair_tried` set.
    """
    if aborted or draft is None or draft.conclusion is None:
        return ReleaseStage.RELEASE
    if violations is None:
        return ReleaseStage.GUARD_EVIDENCE
    if not violations:
        return ReleaseStage.GUARD_SEMANTICS
    return ReleaseStage.REPAIR_EVIDENCE if can_repair and not repair_tried else ReleaseStage.RELEASE


class DiagnosisReleaseUseCase:
    """The sources' name for the release decision; stateless."""

    def decide(self, given: ReleaseInput) -> ReleaseDecision:
        """Decide; total over every input, and fail closed where an input contradicts itself."""
        execution = given.execution
        if execution.cancelled:
            return nothing_released(RunState.CANCELLED, ReleaseReason.CANCELLED, ReleaseErrorCode.CANCELLED)
        if execution.timed_out:
            return _with_facts(given, ReleaseReason.TIMED_OUT, ReleaseErrorCode.RUN_TIMED_OUT, fault=True)
        if execution.fault:
            return _with_facts(given, ReleaseReason.FAULT, ReleaseErrorCode.DIAGNOSIS_FAULT, fault=True)
        if execution.output_failure is not None:
            return _with_facts(given, ReleaseReason.OUTPUT_REJECTED, ReleaseErrorCode.AGENT_OUTPUT_REJECTED)
        if execution.draft is None:
            return _without_draft(given)
        if execution.draft.conclusion is None:
            return _without_conclusion(given, execution.draft, ReleaseReason.NO_CONCLUSION)
        return _with_conclusion(given, execution.draft)


def _without_draft(given: ReleaseInput) -> ReleaseDecision:
    """R83, R84, R88c: by the first stop reason."""
    stop = given.execution.stop_reason
    if stop is DiagnosisStopReason.INFORMATION_SATURATED:
        return _fallback(given, ReleaseReason.STOPPED_INFORMATION_SATURATED)
    if stop is DiagnosisStopReason.PROGRESS_PROTOCOL_VIOLATED:
        return _with_facts(given, ReleaseReason.STOPPED_PROTOCOL, ReleaseErrorCode.PROGRESS_PROTOCOL_VIOLATED)
    if given.execution.budget_terminated:
        return _fallback(given, ReleaseReason.STOPPED_BUDGET)
    return _with_facts(given, ReleaseReason.NO_DRAFT, ReleaseErrorCode.DIAGNOSIS_FAULT, fault=True)


def _without_conclusion(given: ReleaseInput, draft: DiagnosisDraft, reason: ReleaseReason) -> ReleaseDecision:
    """R85, R86, R88a, R88b, R88e: the snapshot speaks, the draft adds only what it misses."""
    missing = draft.limitations.missing_info
    if given.execution.index_empty and any(note.strip() for note in missing):
        why = FallbackReason.MISSING_REQUIRED_CONTEXT
        return _fallback(given, ReleaseReason.MISSING_REQUIRED_CONTEXT, why, missing)
    return _fallback(given, reason, FallbackReason.INSUFFICIENT_EVIDENCE, missing)


def _with_conclusion(given: ReleaseInput, draft: DiagnosisDraft) -> ReleaseDecision:
    """R81, R88d, R88f, R88g: published only if both guards ran and passed."""
    guards = (given.evidence_guard, given.semantic_guard)
    if GuardOutcome.FAILED in guards or given.execution.index_empty:
        reason = ReleaseReason.SEMANTICS_REJECTED
        if given.evidence_guard is not GuardOutcome.PASSED or given.execution.index_empty:
            reason = ReleaseReason.EVIDENCE_REJECTED
        return _rejected(given, draft, reason)
    if guards != (GuardOutcome.PASSED, GuardOutcome.PASSED):
        return _with_facts(given, ReleaseReason.GUARD_UNAVAILABLE, ReleaseErrorCode.GUARD_UNAVAILABLE, fault=True)
    return ReleaseDecision(
        outcome=ReleaseOutcome.CONCLUSION,
        internal_end=RunState.SUCCESS,
        reason=ReleaseReason.CONCLUSION_SUPPORTED,
        published=build_published(given.query, draft, given.execution.snapshot),
    )


def _rejected(given: ReleaseInput, draft: DiagnosisDraft, reason: ReleaseReason) -> ReleaseDecision:
    """A rejected draft's own words are not published (R88f), but for what it asks the user when no tool ran (R85)."""
    conclusion = " ".join(draft.conclusion.statement.split()) if draft.conclusion is not None else ""
    notes = [note for note in draft.limitations.missing_info if conclusion not in " ".join(note.split())]
    asked = draft.limitations.model_copy(update={"missing_info": notes if given.execution.index_empty else []})
    return _without_conclusion(given, draft.model_copy(update={"conclusion": None, "limitations": asked}), reason)


def _with_facts(
    given: ReleaseInput, reason: ReleaseReason, error: ReleaseErrorCode, *, fault: bool = False
) -> ReleaseDecision:
    """Publish what was verified; where nothing was, the Run failed (R60, R78, R84, R87, R88g)."""
    if given.execution.snapshot.observed_facts:
        return _fallback(given, reason, fault=fault)
    return nothing_released(RunState.TIMED_OUT if given.execution.timed_out else RunState.FAILED, reason, error)


def _fallback(
    given: ReleaseInput,
    reason: ReleaseReason,
    why: FallbackReason = FallbackReason.INSUFFICIENT_EVIDENCE,
    missing_info: Sequence[str] = (),
    *,
    fault: bool = False,
) -> ReleaseDecision:
    snapshot = given.execution.snapshot
    budget = given.execution.budget_terminated and not fault
    if fault:
        snapshot = with_limitation(snapshot, LimitationCode.FAULT)
    if given.execution.budget_terminated:
        snapshot = with_limitation(snapshot, LimitationCode.STOPPED_BUDGET)
    return ReleaseDecision(
        outcome=ReleaseOutcome.FALLBACK,
        internal_end=RunState.BUDGET_EXHAUSTED if budget else RunState.SUCCESS,
        reason=reason,
        fallback=build_fallback(why, snapshot, missing_info, given.language),
    )


def nothing_released(state: RunState, reason: ReleaseReason, error: ReleaseErrorCode) -> ReleaseDecision:
    """Decide that nothing leaves the Run."""
    return ReleaseDecision(outcome=ReleaseOutcome.NONE, internal_end=state, reason=reason, error_code=error)
