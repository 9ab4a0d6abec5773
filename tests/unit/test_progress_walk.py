"""Every move from every reachable state of the pure core, and random walks, against the oracle (R26-R42, R57, R153)."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from graph.contract import RequestErrorCode
from graph.tracker import CompletedCall, DiagnosisProgressTracker
from nodes.contract import RequestedCall
from nodes.progress_rules import judge_request, judge_result, judge_scope
from tests.fakes import ProbeTool, envelope
from tests.oracle import MOVES, OUTCOMES, PREVIOUS, Move, Oracle
from tools.contract import EvidenceStatus

TOOL = ProbeTool()
RESULTS = {"ERROR": EvidenceStatus.ERROR, "NO_EVIDENCE": EvidenceStatus.NO_EVIDENCE}


def requested(oracle: Oracle, move: Move) -> list[RequestedCall]:
    """The message of a move, as it stands in the state."""
    previous, outcome = move
    named = oracle.named_id(previous)
    turn = oracle.turn + 1
    value = previous if previous in ("GAINED", "NO_GAIN") else "GAINED"
    query = Oracle.query(_at(oracle, turn), outcome)
    arguments = envelope(query, (named, value) if named else None)
    name = "no_such_tool" if outcome == "unknown tool" else TOOL.name
    calls = [RequestedCall(tool_call_id=f"c{turn}", tool_name=name, arguments=arguments)]
    if outcome == "extra call":
        calls.append(
            RequestedCall(tool_call_id=f"c{turn}-extra", tool_name=TOOL.name, arguments=envelope("found extra"))
        )
    return calls


def _at(oracle: Oracle, turn: int) -> Oracle:
    moved = copy.deepcopy(oracle)
    moved.turn = turn
    return moved


def advance(tracker: DiagnosisProgressTracker, oracle: Oracle, move: Move) -> tuple[DiagnosisProgressTracker, str]:
    """One turn of the pure core, composed as the graph composes it; returns the answer's code too."""
    turn = oracle.turn + 1
    if move[1] in ("draft", "empty output", "bad id"):
        return tracker, "END"
    if tracker.stop_was_delivered_before(turn):
        return tracker, "COLLECTION_STOPPED"
    judged = judge_request(tracker, requested(oracle, move), {TOOL.name: TOOL})
    if judged.rejection is None:
        judged, _ = judge_scope(judged)
    if judged.rejection is not None:
        after, answer = judged.tracker, _code(judged.rejection.error_code, judged.rejection.violation_type)
        answer = "STOP" if after.saturated else answer
    else:
        status = RESULTS.get(move[1], EvidenceStatus.EVIDENCE_FOUND)
        assert judged.call.scope is not None
        done = CompletedCall(
            tool_call_id=judged.call.tool_call_id,
            tool_name=TOOL.name,
            canonical_key="k",
            scope_key=judged.call.scope.key,
        )
        after, _ = judge_result(judged.tracker, done, status)
        answer = status.value + ("+STOP" if after.saturated else "")
    after = after.with_answered(requested(oracle, move)[-1].tool_call_id)
    return (after.with_stop_delivered(turn) if after.saturated else after), answer


def _code(code: RequestErrorCode, violation: Any) -> str:
    return str(violation.value) if violation is not None else code.value


def shape(tracker: DiagnosisProgressTracker) -> tuple[Any, ...]:
    """What of a tracker decides its future: counters, state, what is pending; ids and turns only by presence."""
    return (
        tracker.consecutive_no_gain,
        tracker.consecutive_protocol_violations,
        tracker.stop_reason,
        tracker.pending_tool_call_id is not None,
        tracker.latest_answered_tool_call_id is not None,
        tracker.stop_delivered_turn is not None,
        any(call.scope_key == SAME for call in tracker.index),
    )


SAME = TOOL.scope(TOOL.envelope.model_validate({"input": {"query": "found same"}}).input).key  # type: ignore[attr-defined]


def assert_agree(tracker: DiagnosisProgressTracker, oracle: Oracle) -> None:
    assert tracker.consecutive_no_gain == oracle.no_gain
    assert tracker.consecutive_protocol_violations == oracle.violations
    assert (tracker.stop_reason.value if tracker.stop_reason else None) == oracle.stop_reason
    assert tracker.saturated == (oracle.stop_reason is not None)
    assert tracker.pending_tool_call_id == oracle.pending
    assert len(tracker.index) == oracle.indexed
    assert sum(call.scope_key is not None for call in tracker.index) == len(oracle.scopes)


def test_r37_every_move_from_every_reachable_state_agrees_with_the_written_order() -> None:
    start = DiagnosisProgressTracker(no_gain_threshold=2, protocol_violation_threshold=2)
    seen, queue, moves = {shape(start)}, deque([(start, Oracle())]), 0
    while queue:
        tracker, oracle = queue.popleft()
        for move in MOVES:
            moves += 1
            expected = copy.deepcopy(oracle)
            expected.step(move)
            after, answer = advance(tracker, oracle, move)
            if expected.ended in (None, "STOPPED"):
                assert answer == expected.answers[-1][0], (move, oracle)
            assert_agree(after, expected)
            if tracker.saturated:
                assert expected.executed == oracle.executed, "no tool runs after the stop"
            if expected.ended is None and shape(after) not in seen:
                seen.add(shape(after))
                queue.append((after, expected))
    assert moves == len(seen) * len(MOVES)
    assert {s[2] for s in seen} >= {None, "INFORMATION_SATURATED", "PROGRESS_PROTOCOL_VIOLATED"}
    assert len(seen) > 20


class TrackerMachine(RuleBasedStateMachine):
    """Random walks with random thresholds (R2, R153)."""

    @initialize(no_gain=st.integers(1, 4), violations=st.integers(2, 4))
    def start(self, no_gain: int, violations: int) -> None:
        self.tracker = DiagnosisProgressTracker(no_gain_threshold=no_gain, protocol_violation_threshold=violations)
        self.oracle = Oracle(no_gain, violations)
        self.was_saturated = False

    @precondition(lambda self: self.oracle.ended is None)
    @rule(previous=st.sampled_from(PREVIOUS), outcome=st.sampled_from(OUTCOMES))
    def move(self, previous: str, outcome: str) -> None:
        self.was_saturated = self.tracker.saturated
        executed = self.oracle.executed
        self.tracker, answer = advance(self.tracker, self.oracle, (previous, outcome))
        self.oracle.step((previous, outcome))
        if self.was_saturated:
            assert self.oracle.executed == executed
        if self.oracle.ended in (None, "STOPPED"):
            assert answer == self.oracle.answers[-1][0]

    @precondition(lambda self: self.oracle.ended is not None)
    @rule(no_gain=st.integers(1, 4), violations=st.integers(2, 4))
    def next_run(self, no_gain: int, violations: int) -> None:
        """A new Run inherits nothing (R1)."""
        self.start(no_gain, violations)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "tracker"):
            return
        assert_agree(self.tracker, self.oracle)
        assert self.tracker.saturated or not self.was_saturated, "never back to COLLECTING (R16)"
        assert self.tracker.saturated == (self.tracker.stop_reason is not None)
        assert self.tracker.consecutive_no_gain <= self.tracker.no_gain_threshold + 1


TestTrackerMachine = TrackerMachine.TestCase
TestTrackerMachine.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
