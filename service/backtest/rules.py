"""Where a rule stops a foreign run: ours, driven through the real tracker, and the repetition rules of other agents. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from graph.tracker import CompletedCall, DiagnosisProgressTracker
from nodes.contract import CallInHand, Evaluation
from nodes.progress_rules import Judged, judge_result, judge_scope
from service.backtest.classify import ResultClass
from service.backtest.transcripts import ForeignCall
from tools.contract import EvidenceStatus, InformationGain
from tools.scope import make_scope

Run = Sequence[tuple[ForeignCall, ResultClass]]
Stop = int | None
"""Index of the call after which nothing more is asked; None where a rule never stops the run."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with the name that tables show."""

    name: str
    stops_at: Callable[[Run], Stop]


def ours(threshold: int, *, errors_count: bool = False) -> Rule:
    """The deterministic part of our rule at one threshold (R37); there is no model that evaluates what is new.

    With `errors_count` an error is no gain too, which it is not in this system (R38).
    """

    def stops_at(run: Run) -> Stop:
        tracker = DiagnosisProgressTracker(no_gain_threshold=threshold)
        for index, (call, found) in enumerate(run):
            tracker = _after(tracker, f"c{index}", call, found, errors_count)
            if tracker.saturated:
                return index
        return None

    return Rule(f"no gain {threshold}" + (", errors count" if errors_count else ""), stops_at)


def _after(
    tracker: DiagnosisProgressTracker, call_id: str, call: ForeignCall, found: ResultClass, errors_count: bool
) -> DiagnosisProgressTracker:
    scope = make_scope(call.tool, {"arguments": call.arguments}, call.tool)
    pending = tracker.pending_tool_call_id
    new = Evaluation(tool_call_id=pending, information_gain=InformationGain.GAINED) if pending else None
    in_hand = CallInHand(tool_call_id=call_id, tool_name=call.tool, evaluation=new, scope=scope)
    judged, _ = judge_scope(Judged(tracker, in_hand))
    if judged.rejection is not None:
        return judged.tracker
    done = CompletedCall(tool_call_id=call_id, tool_name=call.tool, canonical_key=call_id, scope_key=scope.key)
    after, _ = judge_result(judged.tracker, done, _STATUS[found])
    return after.with_no_gain() if errors_count and found is ResultClass.ERROR else after


_STATUS = {
    ResultClass.ERROR: EvidenceStatus.ERROR,
    ResultClass.EMPTY: EvidenceStatus.NO_EVIDENCE,
    ResultClass.REPEATED_CALL: EvidenceStatus.NO_EVIDENCE,
    ResultClass.REPEATED_RESULT: EvidenceStatus.NO_EVIDENCE,
    ResultClass.NEW: EvidenceStatus.EVIDENCE_FOUND,
}


def in_a_row(times: int, of: Callable[[ForeignCall], Hashable]) -> Callable[[Run], Stop]:
    """Stop when the same thing came `times` times in a row."""

    def stops_at(run: Run) -> Stop:
        keys, count = [of(call) for call, _ in run], 1
        for index, (before, now) in enumerate(pairwise(keys), start=1):
            count = count + 1 if before == now else 1
            if count >= times:
                return index
        return None

    return stops_at


def among_last(times: int, window: int, of: Callable[[ForeignCall], Hashable]) -> Callable[[Run], Stop]:
    """Stop when the same thing came `times` times among the last `window` calls."""

    def stops_at(run: Run) -> Stop:
        last = deque[Hashable](maxlen=window)
        for index, (call, _) in enumerate(run):
            last.append(of(call))
            if Counter(last)[last[-1]] >= times:
                return index
        return None

    return stops_at


def limit(steps: int) -> Callable[[Run], Stop]:
    """Stop after so many calls, whatever they brought."""
    return lambda run: steps - 1 if len(run) >= steps else None


def _call(call: ForeignCall) -> Hashable:
    return call.tool, call.arguments


def _call_and_result(call: ForeignCall) -> Hashable:
    return call.tool, call.arguments, call.result


def _result(call: ForeignCall) -> Hashable:
    return call.result


OTHERS = (
    Rule("same call and result 4 times", in_a_row(4, _call_and_result)),
    Rule("same call 3 times", in_a_row(3, _call)),
    Rule("same call 5 times", in_a_row(5, _call)),
    Rule("same result 3 times", in_a_row(3, _result)),
    Rule("same call 5 times in 10", among_last(5, 10, _call)),
    Rule("limit of 10 calls", limit(10)),
)
"""Repetition rules that agents in use have; docs/backtest.md says which."""


def rules_for(thresholds: Iterable[int]) -> tuple[Rule, ...]:
    """All rules of one comparison."""
    asked = tuple(thresholds)
    return (*map(ours, asked), *(ours(each, errors_count=True) for each in asked), *OTHERS)
