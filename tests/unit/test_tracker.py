"""The tracker's rules, one by one (R2, R11-R17, R34-R41)."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from graph.contract import CollectionState, DiagnosisStopReason
from graph.tracker import CompletedCall, DiagnosisProgressTracker
from tools.contract import InformationGain

KEY = "a" * 64


def pending(**fields: object) -> DiagnosisProgressTracker:
    done = CompletedCall(tool_call_id="c1", tool_name="t", canonical_key="k", scope_key=KEY)
    return DiagnosisProgressTracker(**fields).with_completed(done).with_pending("c1")  # type: ignore[arg-type]


def test_r2_thresholds_have_the_decided_defaults_and_minimums() -> None:
    tracker = DiagnosisProgressTracker()
    assert (tracker.no_gain_threshold, tracker.protocol_violation_threshold) == (3, 2)
    with pytest.raises(ValidationError):
        DiagnosisProgressTracker(no_gain_threshold=0)
    with pytest.raises(ValidationError):
        DiagnosisProgressTracker(protocol_violation_threshold=1)


def test_r11_a_transition_leaves_the_value_it_came_from_unchanged() -> None:
    before = pending()
    dump = before.model_dump()
    before.with_evaluation(InformationGain.NO_GAIN)
    before.with_violation()
    before.with_completed(CompletedCall(tool_call_id="c1", tool_name="t", canonical_key="k"))
    assert before.model_dump() == dump
    with pytest.raises(ValidationError):
        before.consecutive_no_gain = 2  # type: ignore[misc]


def test_r12_the_tracker_keeps_exactly_what_the_contract_names() -> None:
    assert set(DiagnosisProgressTracker.model_fields) == {
        "no_gain_threshold",
        "protocol_violation_threshold",
        "consecutive_no_gain",
        "state",
        "stop_reason",
        "pending_tool_call_id",
        "latest_answered_tool_call_id",
        "consecutive_protocol_violations",
        "stop_delivered_turn",
        "index",
    }


def test_r37_gained_zeroes_and_no_gain_adds_one() -> None:
    tracker = pending(consecutive_no_gain=1)
    assert tracker.with_evaluation(InformationGain.GAINED).consecutive_no_gain == 0
    assert tracker.with_evaluation(InformationGain.NO_GAIN).consecutive_no_gain == 2
    assert tracker.with_evaluation(InformationGain.GAINED).pending_tool_call_id is None


def test_r27_an_evaluation_without_a_pending_result_is_refused() -> None:
    with pytest.raises(ValueError, match="no result awaits"):
        DiagnosisProgressTracker().with_evaluation(InformationGain.GAINED)


def test_r37_the_threshold_saturates_with_information_saturated() -> None:
    tracker = DiagnosisProgressTracker(no_gain_threshold=2).with_no_gain()
    assert not tracker.saturated
    tracker = tracker.with_no_gain()
    assert tracker.state is CollectionState.SATURATED
    assert tracker.stop_reason is DiagnosisStopReason.INFORMATION_SATURATED


def test_r34_violations_count_apart_from_gain_and_reset() -> None:
    tracker = DiagnosisProgressTracker(protocol_violation_threshold=3).with_violation().with_violation()
    assert (tracker.consecutive_protocol_violations, tracker.consecutive_no_gain) == (2, 0)
    assert tracker.with_protocol_respected().consecutive_protocol_violations == 0


def test_r35_the_violation_threshold_saturates_and_leaves_the_pending_evaluation() -> None:
    tracker = pending().with_violation().with_violation()
    assert tracker.stop_reason is DiagnosisStopReason.PROGRESS_PROTOCOL_VIOLATED
    assert tracker.pending_tool_call_id == "c1"


def test_r15_the_first_stop_reason_wins() -> None:
    tracker = DiagnosisProgressTracker().stopped(DiagnosisStopReason.INFORMATION_SATURATED)
    again = tracker.stopped(DiagnosisStopReason.BUDGET_LIMIT_REACHED)
    assert again.stop_reason is DiagnosisStopReason.INFORMATION_SATURATED


def test_r16_gain_after_saturation_does_not_lead_back() -> None:
    tracker = pending(no_gain_threshold=1, consecutive_no_gain=0).with_no_gain()
    assert tracker.with_evaluation(InformationGain.GAINED).saturated


def test_r45_a_duplicate_is_found_by_key_and_names_the_first_call() -> None:
    tracker = pending()
    assert tracker.duplicate_of(KEY) == "c1"
    assert tracker.duplicate_of("b" * 64) is None


def test_r57_the_stop_counts_only_for_later_turns() -> None:
    tracker = DiagnosisProgressTracker().with_stop_delivered(4)
    assert not tracker.stop_was_delivered_before(4)
    assert tracker.stop_was_delivered_before(5)
    assert tracker.with_stop_delivered(9).stop_delivered_turn == 4
