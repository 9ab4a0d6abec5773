"""The release decision, branch by branch and over every combination (R5, R60, R78, R80-R88, R94)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.contract import DiagnosisStopReason, RunState
from release.contract import (
    AgentOutputFailure,
    DiagnosisDraft,
    FallbackReason,
    GuardOutcome,
    GuardViolation,
    LimitationCode,
    ReleaseErrorCode,
    ReleaseOutcome,
    ReleaseReason,
    ReleaseStage,
    ViolationCode,
)
from release.decision import (
    DiagnosisAgentExecution,
    DiagnosisReleaseUseCase,
    ReleaseDecision,
    ReleaseInput,
    next_stage,
)
from release.snapshot import project_snapshot
from tests.release_builders import RUN, documents, draft, empty_logs, logs, observation

MARKER = "ROOT CAUSE MARKER"
CONCLUDING = draft(
    observation(1, "finding marker", "log-1"), conclusion=MARKER, missing_info=["region", f"is it {MARKER}?"]
)
NO_CONCLUSION = draft(observation(), conclusion=None, missing_info=["region"])
EMPTY_DRAFT = draft(conclusion=None)
FACTS = project_snapshot(RUN, [logs(facts=["HTTP 503"])], None, False, False)
NEGATIVE = project_snapshot(RUN, [empty_logs()], None, False, False)
PROCESS_ONLY = project_snapshot(RUN, [documents()], None, False, False)
NOTHING = project_snapshot(RUN, [], None, False, False)
PASSED, FAILED = GuardOutcome.PASSED, GuardOutcome.FAILED
NOT_RUN, TECHNICAL = GuardOutcome.NOT_RUN, GuardOutcome.TECHNICAL_FAILURE
SATURATED = DiagnosisStopReason.INFORMATION_SATURATED
BUDGET = DiagnosisStopReason.BUDGET_LIMIT_REACHED
PROTOCOL = DiagnosisStopReason.PROGRESS_PROTOCOL_VIOLATED


def decide(guards: tuple[GuardOutcome, GuardOutcome] = (NOT_RUN, NOT_RUN), **execution: Any) -> ReleaseDecision:
    options: dict[str, Any] = {"snapshot": FACTS, "index_empty": False, **execution}
    return DiagnosisReleaseUseCase().decide(
        ReleaseInput("why?", DiagnosisAgentExecution(**options), guards[0], guards[1], "en")
    )


def assert_fallback(
    decision: ReleaseDecision, why: str = "INSUFFICIENT_EVIDENCE", state: RunState = RunState.SUCCESS
) -> None:
    assert decision.outcome is ReleaseOutcome.FALLBACK
    assert decision.fallback is not None
    assert decision.fallback.reason is FallbackReason(why)
    assert decision.internal_end is state


def assert_failed(decision: ReleaseDecision, error: str, state: RunState = RunState.FAILED) -> None:
    assert decision.outcome is ReleaseOutcome.NONE
    assert decision.error_code is ReleaseErrorCode(error)
    assert decision.internal_end is state


def notes(decision: ReleaseDecision) -> list[LimitationCode]:
    assert decision.fallback is not None
    return decision.fallback.limitations.notes


def test_r81_a_guarded_conclusion_is_published() -> None:
    decision = decide((PASSED, PASSED), draft=CONCLUDING)
    assert decision.outcome is ReleaseOutcome.CONCLUSION
    assert decision.internal_end is RunState.SUCCESS
    assert decision.published is not None
    assert decision.published.conclusion == MARKER


@pytest.mark.parametrize("stop", DiagnosisStopReason)
def test_r88d_a_conclusion_after_a_stop_is_a_normal_draft(stop: DiagnosisStopReason) -> None:
    decision = decide((PASSED, PASSED), draft=CONCLUDING, stop_reason=stop)
    assert decision == decide((PASSED, PASSED), draft=CONCLUDING)


def test_r83_saturation_without_draft_is_a_fallback_from_the_snapshot() -> None:
    for snapshot in (FACTS, NOTHING):
        assert_fallback(decide(snapshot=snapshot, stop_reason=SATURATED))


def test_r83_r88c_r94_budget_without_draft_is_a_fallback_and_stays_budget_exhausted() -> None:
    for snapshot in (FACTS, NOTHING):
        decision = decide(snapshot=snapshot, stop_reason=BUDGET, budget_crossed=True)
        assert_fallback(decision, state=RunState.BUDGET_EXHAUSTED)
        assert LimitationCode.STOPPED_BUDGET in notes(decision)
        assert decision.reason is ReleaseReason.STOPPED_BUDGET


def test_r94_budget_exhausted_at_the_moment_of_saturation() -> None:
    snapshot = project_snapshot(RUN, [logs(facts=["f"])], SATURATED, True, False)
    decision = decide(snapshot=snapshot, stop_reason=SATURATED, budget_crossed=True)
    assert_fallback(decision, state=RunState.BUDGET_EXHAUSTED)
    assert decision.reason is ReleaseReason.STOPPED_INFORMATION_SATURATED
    assert notes(decision) == [LimitationCode.STOPPED_INFORMATION_SATURATED, LimitationCode.STOPPED_BUDGET]


def test_r94_other_fallbacks_take_the_success_transition() -> None:
    for decision in (decide(draft=NO_CONCLUSION), decide(stop_reason=SATURATED), decide(fault=True)):
        assert decision.internal_end is RunState.SUCCESS


def test_r84_protocol_stop_without_draft_needs_verified_facts() -> None:
    assert_fallback(decide(stop_reason=PROTOCOL))
    assert_fallback(decide(snapshot=NEGATIVE, stop_reason=PROTOCOL))
    for snapshot in (NOTHING, PROCESS_ONLY):
        assert_failed(decide(snapshot=snapshot, stop_reason=PROTOCOL), "PROGRESS_PROTOCOL_VIOLATED")


def test_r85_zero_tools_and_missing_info() -> None:
    decision = decide(snapshot=NOTHING, index_empty=True, draft=NO_CONCLUSION)
    assert_fallback(decision, "MISSING_REQUIRED_CONTEXT")
    assert decision.fallback is not None
    assert decision.fallback.limitations.missing_info == ["region"]


def test_r88a_zero_tools_without_missing_info() -> None:
    for blank in ([], [" "]):
        decision = decide(snapshot=NOTHING, index_empty=True, draft=draft(conclusion=None, missing_info=blank))
        assert_fallback(decision)
        assert decision.fallback is not None
        assert decision.fallback.process == []


def test_r86_r88b_tools_used_and_missing_info_is_shown() -> None:
    decision = decide(draft=NO_CONCLUSION)
    assert_fallback(decision)
    assert decision.fallback is not None
    assert decision.fallback.limitations.missing_info == ["region"]
    assert [fact.statement for fact in decision.fallback.observed_facts] == ["HTTP 503"]


def test_r88e_nothing_valid_left_is_still_insufficient_evidence() -> None:
    assert_fallback(decide(snapshot=NOTHING, draft=EMPTY_DRAFT))


def test_r82_a_null_draft_after_a_protocol_stop_is_a_legal_end() -> None:
    assert_fallback(decide(snapshot=PROCESS_ONLY, draft=EMPTY_DRAFT, stop_reason=PROTOCOL))


@pytest.mark.parametrize(
    ("guards", "reason"),
    [((FAILED, NOT_RUN), ReleaseReason.EVIDENCE_REJECTED), ((PASSED, FAILED), ReleaseReason.SEMANTICS_REJECTED)],
)
def test_r88f_a_rejected_conclusion_becomes_a_fallback_from_the_snapshot(guards: Any, reason: ReleaseReason) -> None:
    for snapshot in (FACTS, NOTHING):
        decision = decide(guards, snapshot=snapshot, draft=CONCLUDING)
        assert_fallback(decision)
        assert decision.reason is reason
        assert decision.fallback is not None
        assert decision.fallback.limitations.missing_info == []
        assert "marker" not in decision.fallback.model_dump_json().lower()


def test_r85_r88f_a_conclusion_without_any_call_asks_for_what_is_missing() -> None:
    decision = decide((FAILED, NOT_RUN), snapshot=NOTHING, index_empty=True, draft=CONCLUDING)
    assert_fallback(decision, "MISSING_REQUIRED_CONTEXT")
    assert decision.fallback is not None
    assert decision.fallback.limitations.missing_info == ["region"]
    bare = CONCLUDING.model_copy(update={"limitations": EMPTY_DRAFT.limitations})
    assert_fallback(decide((FAILED, NOT_RUN), snapshot=NOTHING, index_empty=True, draft=bare))


@pytest.mark.parametrize("guards", [(TECHNICAL, NOT_RUN), (PASSED, TECHNICAL), (PASSED, NOT_RUN), (NOT_RUN, NOT_RUN)])
def test_r88g_a_guard_that_could_not_run_is_no_verdict(guards: Any) -> None:
    decision = decide(guards, draft=CONCLUDING)
    assert_fallback(decision)
    assert decision.reason is ReleaseReason.GUARD_UNAVAILABLE
    assert LimitationCode.FAULT in notes(decision)
    assert_failed(decide(guards, draft=CONCLUDING, snapshot=PROCESS_ONLY), "GUARD_UNAVAILABLE")


@pytest.mark.parametrize("failure", AgentOutputFailure)
@pytest.mark.parametrize("stop", [None, *DiagnosisStopReason])
def test_r78_an_output_failure_needs_verified_facts_also_after_a_stop(
    failure: AgentOutputFailure, stop: DiagnosisStopReason | None
) -> None:
    state = RunState.BUDGET_EXHAUSTED if stop is BUDGET else RunState.SUCCESS
    assert_fallback(decide(output_failure=failure, stop_reason=stop), state=state)
    assert_failed(decide(output_failure=failure, stop_reason=stop, snapshot=PROCESS_ONLY), "AGENT_OUTPUT_REJECTED")


def test_r60_r87_a_fault_is_published_only_with_verified_facts() -> None:
    for stop in (None, *DiagnosisStopReason):
        decision = decide(fault=True, stop_reason=stop)
        assert_fallback(decision)
        assert LimitationCode.FAULT in notes(decision)
        assert decision.reason is ReleaseReason.FAULT
        assert_failed(decide(fault=True, stop_reason=stop, snapshot=PROCESS_ONLY), "DIAGNOSIS_FAULT")


def test_r60_a_run_timeout_follows_the_same_rule() -> None:
    decision = decide(timed_out=True)
    assert_fallback(decision)
    assert LimitationCode.FAULT in notes(decision)
    assert_failed(decide(timed_out=True, snapshot=NOTHING), "RUN_TIMED_OUT", RunState.TIMED_OUT)


def test_r60_no_draft_without_any_reason_is_a_fault() -> None:
    assert_fallback(decide())
    assert_failed(decide(snapshot=NOTHING), "DIAGNOSIS_FAULT")


def test_r94_a_cancelled_run_publishes_nothing() -> None:
    decision = decide((PASSED, PASSED), draft=CONCLUDING, cancelled=True, fault=True, timed_out=True)
    assert_failed(decision, "CANCELLED", RunState.CANCELLED)


EXECUTIONS: dict[str, list[Any]] = {
    "draft": [None, CONCLUDING, NO_CONCLUSION, EMPTY_DRAFT],
    "output_failure": [None, AgentOutputFailure.NOT_JSON],
    "snapshot": [FACTS, NEGATIVE, PROCESS_ONLY, NOTHING],
    "stop_reason": [None, *DiagnosisStopReason],
    "budget_crossed": [False, True],
    "fault": [False, True],
    "timed_out": [False, True],
    "cancelled": [False, True],
    "index_empty": [False, True],
}


def assert_legal(decision: ReleaseDecision, given_execution: dict[str, Any], guards: Any) -> None:
    """The rules that hold for every input, written without the decision's own order."""
    carried = (decision.published is not None, decision.fallback is not None, decision.error_code is not None)
    assert sum(carried) == 1
    assert carried.index(True) == [ReleaseOutcome.CONCLUSION, ReleaseOutcome.FALLBACK, ReleaseOutcome.NONE].index(
        decision.outcome
    )
    aborted = given_execution["cancelled"] or given_execution["fault"] or given_execution["timed_out"]
    clean = not aborted and given_execution["output_failure"] is None
    made: DiagnosisDraft | None = given_execution["draft"]
    verified = bool(given_execution["snapshot"].observed_facts)
    may_publish = clean and made is CONCLUDING and guards == (PASSED, PASSED) and not given_execution["index_empty"]
    assert (decision.outcome is ReleaseOutcome.CONCLUSION) is may_publish
    if given_execution["cancelled"]:
        assert decision.internal_end is RunState.CANCELLED
    elif verified:
        assert decision.outcome is not ReleaseOutcome.NONE
    elif not clean:
        assert decision.outcome is ReleaseOutcome.NONE
    if decision.outcome is ReleaseOutcome.FALLBACK:
        assert decision.internal_end in (RunState.SUCCESS, RunState.BUDGET_EXHAUSTED)
        assert decision.fallback is not None
        text = decision.fallback.model_dump_json()
        assert MARKER not in text
        assert "finding marker" not in text
        asked = clean and made is not None and made is not EMPTY_DRAFT and given_execution["index_empty"]
        assert (decision.fallback.reason is FallbackReason.MISSING_REQUIRED_CONTEXT) is asked
        assert (LimitationCode.STOPPED_BUDGET in decision.fallback.limitations.notes) is (
            given_execution["budget_crossed"] or given_execution["stop_reason"] is BUDGET
        )
    if decision.outcome is ReleaseOutcome.NONE and not given_execution["cancelled"]:
        ended = RunState.TIMED_OUT if given_execution["timed_out"] else RunState.FAILED
        assert decision.internal_end is ended
    if decision.internal_end is RunState.BUDGET_EXHAUSTED:  # the mark of a handled termination (R140)
        assert decision.fallback is not None


REASONS_OF_ANSWERS = {
    ReleaseReason.KNOWLEDGE_ANSWERED,
    ReleaseReason.KNOWLEDGE_NOT_FOUND,
    ReleaseReason.CHAT_ANSWERED,
    ReleaseReason.INTENT_ROUTING_FAILED,
}
"""Reasons of Runs that asked for no diagnosis: `release.answers.decision` gives them."""


def test_r80_every_combination_has_exactly_one_legal_outcome() -> None:
    guards = list(itertools.product(GuardOutcome, GuardOutcome))
    seen: set[ReleaseReason] = set()
    combinations: itertools.product[tuple[Any, ...]] = itertools.product(*EXECUTIONS.values())
    for values in combinations:
        execution = dict(zip(EXECUTIONS, values, strict=True))
        plain = not (execution["cancelled"] or execution["timed_out"] or execution["fault"])
        for pair in guards if plain and execution["draft"] is CONCLUDING else [(NOT_RUN, NOT_RUN), (PASSED, PASSED)]:
            decision = decide(pair, **execution)
            assert_legal(decision, execution, pair)
            seen.add(decision.reason)
    assert seen == set(ReleaseReason) - REASONS_OF_ANSWERS


text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40).filter(str.strip)


@given(
    st.lists(text, max_size=4),
    st.lists(text, max_size=4),
    st.sampled_from([*itertools.product(GuardOutcome, GuardOutcome)]),
    st.booleans(),
    st.sampled_from(["zh", "en"]),
)
@settings(max_examples=200)
def test_r88f_no_fallback_ever_carries_the_conclusion_or_a_statement(
    before: list[str], notes_: list[str], guards: Any, index_empty: bool, language: str
) -> None:
    made = draft(
        observation(1, f"statement {MARKER}-1"),
        conclusion=f"{MARKER}  {' '.join(before)}"[:1000],
        missing_info=[*notes_, f"{MARKER} {' '.join(before)} really?"[:200]],
        unverified=[MARKER],
    )
    execution = DiagnosisAgentExecution(snapshot=FACTS, index_empty=index_empty, draft=made)
    decision = DiagnosisReleaseUseCase().decide(ReleaseInput("q", execution, guards[0], guards[1], language))
    assert (decision.published is not None) is (guards == (PASSED, PASSED) and not index_empty)
    if decision.fallback is not None:
        assert MARKER not in decision.fallback.model_dump_json()


VIOLATIONS = [GuardViolation(code=ViolationCode.UNKNOWN_TOOL_CALL, analysis_id="A1")]


@pytest.mark.parametrize(
    ("violations", "can_repair", "tried", "stage"),
    [
        (None, False, False, "GUARD_EVIDENCE"),
        (None, True, True, "GUARD_EVIDENCE"),
        ([], False, False, "GUARD_SEMANTICS"),
        ([], False, True, "GUARD_SEMANTICS"),
        (VIOLATIONS, True, False, "REPAIR_EVIDENCE"),
        (VIOLATIONS, True, True, "RELEASE"),
        (VIOLATIONS, False, False, "RELEASE"),
    ],
)
def test_r81_stages_of_a_conclusion(violations: Any, can_repair: bool, tried: bool, stage: str) -> None:
    options: dict[str, Any] = {"violations": violations, "can_repair": can_repair, "repair_tried": tried}
    assert next_stage(CONCLUDING, aborted=False, **options) is ReleaseStage(stage)
    assert next_stage(CONCLUDING, aborted=True, **options) is ReleaseStage.RELEASE


def test_r82_no_guard_for_a_draft_without_conclusion() -> None:
    for made, violations in itertools.product((None, NO_CONCLUSION, EMPTY_DRAFT), (None, [], VIOLATIONS)):
        stage = next_stage(made, aborted=False, violations=violations, can_repair=True, repair_tried=False)
        assert stage is ReleaseStage.RELEASE


def test_r137_no_path_repairs_twice() -> None:
    repairs, tried = 0, False
    violations: list[GuardViolation] | None = None
    stage = ReleaseStage.GUARD_EVIDENCE
    while stage is not ReleaseStage.RELEASE:
        if stage is ReleaseStage.GUARD_EVIDENCE:
            violations = VIOLATIONS
        elif stage is ReleaseStage.REPAIR_EVIDENCE:
            repairs, violations, tried = repairs + 1, None, True
        stage = next_stage(CONCLUDING, aborted=False, violations=violations, can_repair=True, repair_tried=tried)
    assert repairs == 1


def test_r66_a_negative_fact_counts_as_verified() -> None:
    assert_fallback(decide(snapshot=NEGATIVE, fault=True))
