"""What other thresholds would have done to one recorded run. Pure: its tracker moves are made again, nothing else is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graph.contract import Component, TraceEventType
from graph.tracker import DiagnosisProgressTracker
from release.contract import ReleaseOutcome
from service.replay.bundle import Bundle
from tools.contract import InformationGain


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The two thresholds of the stop rule (R2)."""

    no_gain: int
    protocol: int


@dataclass(frozen=True, slots=True)
class Move:
    """One move of the tracker: an applied gain, or how the count of protocol violations changed. `step` counts from 1."""

    step: int
    gain: InformationGain | None = None
    violation: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """One thing that was done: a completed call (its id) or a model round (its tokens), at seconds since the epoch."""

    step: int
    at: float
    tool_call_id: str | None = None
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """What a back-test needs of a bundle, read once.

    `began` holds the counts of no gain and of violations with which the run began: a fork brings those of its parent.
    """

    run_id: str
    recorded: Thresholds
    began: tuple[int, int]
    stop_reason: str | None
    moves: tuple[Move, ...]
    work: tuple[Work, ...]
    gained: frozenset[str]
    cited: frozenset[str]
    has_conclusion: bool


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What one pair of thresholds would have done.

    `stopped_at` is the step of the run at which collection would have been over; None where the recorded run holds no stop
    under these thresholds: it ends before one, or they are looser than its own. What is saved is what came after the stop, the
    model's last round aside, which writes the draft. `gained_lost` and `cited_lost` are calls after the stop.
    """

    stopped_at: int | None
    calls_saved: int = 0
    tokens_saved: int = 0
    seconds_saved: float = 0.0
    gained_lost: int = 0
    cited_lost: int = 0
    conclusion_lost: bool = False


def history_of(bundle: Bundle) -> History:
    """Take from a bundle what a back-test needs."""
    context = bundle.settings["context"]
    events = [event for event in bundle.trace if event["node"] is not None]
    run, forked = bundle.run, bundle.by_kind["fork"].get("state", {}).get("state", {}).get("tracker") or {}
    began = int(forked.get("consecutive_no_gain", 0)), int(forked.get("consecutive_protocol_violations", 0))
    published = run.published_result or {}
    return History(
        run_id=bundle.run_id,
        recorded=Thresholds(context["no_gain_threshold"], context["protocol_violation_threshold"]),
        began=began,
        stop_reason=run.stop_reason,
        moves=tuple(_moves(bundle.by_kind["step"], events, began[1])),
        work=tuple(_work(events)),
        gained=frozenset(
            event["fields"]["tool_call_id"]
            for event in events
            if event["type"] == TraceEventType.INFORMATION_GAIN_APPLIED
            and event["fields"]["information_gain"] == InformationGain.GAINED
        ),
        cited=frozenset(call for finding in published.get("findings", ()) for call in finding["tool_call_ids"]),
        has_conclusion=run.release_outcome is ReleaseOutcome.CONCLUSION,
    )


def what_if(history: History, thresholds: Thresholds) -> WhatIf:
    """Say where the run would have stopped under other thresholds, and what that would have saved and cost."""
    stop = _stop(history, thresholds)
    if stop is None:
        return WhatIf(None)
    after = [each for each in history.work if each.step > stop]
    calls = {each.tool_call_id for each in after if each.tool_call_id}
    rounds = [each for each in after if each.tool_call_id is None]
    spared = [each for each in after if not rounds or each is not rounds[-1]]
    begun = max((each.at for each in history.work if each.step <= stop), default=0.0)
    return WhatIf(
        stopped_at=stop,
        calls_saved=len(calls),
        tokens_saved=sum(each.tokens for each in spared),
        seconds_saved=max(0.0, max((each.at for each in spared), default=begun) - begun),
        gained_lost=len(calls & history.gained),
        cited_lost=len(calls & history.cited),
        conclusion_lost=history.has_conclusion and bool(calls & history.cited),
    )


def _stop(history: History, thresholds: Thresholds) -> int | None:
    tracker = DiagnosisProgressTracker(
        no_gain_threshold=thresholds.no_gain,
        protocol_violation_threshold=thresholds.protocol,
        consecutive_no_gain=history.began[0],
        consecutive_protocol_violations=history.began[1],
    )
    for move in history.moves:
        if move.gain is not None:
            tracker = tracker.with_pending("pending").with_evaluation(move.gain)
        else:
            tracker = tracker.with_violation() if move.violation else tracker.with_protocol_respected()
        if tracker.saturated:
            return move.step
    return None


def _moves(
    steps: Mapping[str, Mapping[str, Any]], events: Sequence[Mapping[str, Any]], violations: int
) -> Iterable[Move]:
    """Per node execution: first its protocol count, as step 1 of the rule comes before the gains (R37)."""
    gains: dict[str, list[InformationGain]] = {}
    for event in events:
        if event["type"] == TraceEventType.INFORMATION_GAIN_APPLIED:
            gains.setdefault(event["node"], []).append(InformationGain(event["fields"]["information_gain"]))
    for key, payload in steps.items():
        step, tracker = _step_of(key), payload.get("tracker")
        if tracker is not None and tracker["consecutive_protocol_violations"] != violations:
            more = tracker["consecutive_protocol_violations"] > violations
            violations = tracker["consecutive_protocol_violations"]
            yield Move(step, violation=more)
        for gain in gains.get(key, ()):
            yield Move(step, gain=gain)


def _work(events: Iterable[Mapping[str, Any]]) -> Iterable[Work]:
    for event in events:
        fields, step, at = event["fields"], _step_of(event["node"]), float(event["at"])
        if event["type"] == TraceEventType.TOOL_CALL_COMPLETED:
            yield Work(step, at, tool_call_id=str(fields["tool_call_id"]))
        elif event["type"] == TraceEventType.MODEL_CALL and fields["component"] == Component.DIAGNOSIS_AGENT:
            yield Work(step, at, tokens=int(fields.get("total_tokens") or 0))


def _step_of(node: str) -> int:
    return int(node.partition(":")[0])
