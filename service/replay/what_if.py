"""Where a recorded Run would have stopped under other thresholds, and what that would have saved and cost. Pure.

The tracker's recorded moves are made again under other thresholds; nothing else is run. After the stop the model is taken to
write the Draft it wrote, from what it had seen by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graph.contract import Component, DiagnosisStopReason, TraceEventType
from graph.tracker import DiagnosisProgressTracker
from release.contract import ReleaseOutcome
from service.replay.bundle import Bundle
from tools.contract import InformationGain

BY_PROGRESS = (DiagnosisStopReason.INFORMATION_SATURATED, DiagnosisStopReason.PROGRESS_PROTOCOL_VIOLATED)
"""The stops that thresholds decide."""


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
    """What the question needs of a bundle, read once.

    `began` is the tracker with which the run began: a fork brings its parent's. `asked_at` are the steps that asked the model;
    a fork goes on counting turns after its parent's `first_turn`. `gained` and `cited` are Tool Call IDs: results that the
    model called GAINED, and those that a published finding cites.
    """

    run_id: str
    recorded: Thresholds
    began: DiagnosisProgressTracker
    stop_reason: str | None
    moves: tuple[Move, ...]
    work: tuple[Work, ...]
    first_turn: int
    asked_at: tuple[int, ...]
    gained: frozenset[str]
    cited: frozenset[str]
    has_conclusion: bool

    @property
    def calls(self) -> int:
        """Completed calls; what a fork took over was another Run's."""
        return sum(each.tool_call_id is not None for each in self.work)

    @property
    def stopped_by_progress(self) -> bool:
        """Whether the thresholds ended collection; what would have followed under looser ones nobody knows."""
        return self.stop_reason in BY_PROGRESS


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What one pair of thresholds would have done.

    `stopped_at` is the step of the run at which collection would have been over, `turn` the model turn whose answer led there;
    None where the recorded run holds no stop under these thresholds: it ends before one, or they are looser than its own. What
    is saved is what came after the stop, the model's last round aside, which writes the draft. `gained_lost` and `cited_lost`
    are the calls after the stop.
    """

    stopped_at: int | None
    turn: int | None = None
    stop_reason: DiagnosisStopReason | None = None
    calls_saved: int = 0
    tokens_saved: int = 0
    seconds_saved: float = 0.0
    gained_lost: tuple[str, ...] = ()
    cited_lost: tuple[str, ...] = ()
    conclusion_lost: bool = False


def history_of(bundle: Bundle) -> History:
    """Take from a bundle what the question needs."""
    context = bundle.settings["context"]
    events = [event for event in bundle.trace if event["node"] is not None]
    begun = bundle.by_kind["fork"].get("state", {}).get("state", {})
    began = DiagnosisProgressTracker.model_validate(begun.get("tracker") or {})
    run, published = bundle.run, bundle.run.published_result or {}
    return History(
        run_id=bundle.run_id,
        recorded=Thresholds(context["no_gain_threshold"], context["protocol_violation_threshold"]),
        began=began,
        stop_reason=run.stop_reason,
        moves=tuple(_moves(bundle.by_kind["step"], events, began.consecutive_protocol_violations)),
        work=tuple(_work(events)),
        first_turn=int((begun.get("position") or {}).get("turn", 0)),
        asked_at=tuple(_step_of(key) for key in bundle.path if key.endswith(":model_step")),
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
    stop, reason = _stop(history, thresholds)
    if stop is None:
        return WhatIf(None)
    after = [each for each in history.work if each.step > stop]
    calls = list(dict.fromkeys(each.tool_call_id for each in after if each.tool_call_id))
    rounds = [each for each in after if each.tool_call_id is None]
    spared = [each for each in after if not rounds or each is not rounds[-1]]
    begun = max((each.at for each in history.work if each.step <= stop), default=0.0)
    cited = tuple(each for each in calls if each in history.cited)
    return WhatIf(
        stopped_at=stop,
        turn=history.first_turn + sum(each <= stop for each in history.asked_at),
        stop_reason=reason,
        calls_saved=len(calls),
        tokens_saved=sum(each.tokens for each in spared),
        seconds_saved=max(0.0, max((each.at for each in spared), default=begun) - begun),
        gained_lost=tuple(each for each in calls if each in history.gained),
        cited_lost=cited,
        conclusion_lost=history.has_conclusion and bool(cited),
    )


def as_json(history: History, asked: Iterable[tuple[Thresholds, WhatIf]]) -> dict[str, Any]:
    """JSON data of one run and what was asked of it."""
    return {
        "run_id": history.run_id,
        "recorded": asdict(history.recorded),
        "stop_reason": history.stop_reason,
        "calls": history.calls,
        "what_if": [asdict(pair) | asdict(found) for pair, found in asked],
    }


def _stop(history: History, thresholds: Thresholds) -> tuple[int | None, DiagnosisStopReason | None]:
    limits = {"no_gain_threshold": thresholds.no_gain, "protocol_violation_threshold": thresholds.protocol}
    tracker = history.began.model_copy(update=limits)
    if tracker.saturated:
        return None, None  # a fork of a Run whose collection was over
    for move in history.moves:
        if move.gain is not None:
            tracker = tracker.with_pending("pending").with_evaluation(move.gain)
        else:
            tracker = tracker.with_violation() if move.violation else tracker.with_protocol_respected()
        if tracker.saturated:
            return move.step, tracker.stop_reason
    return None, None


def _moves(
    steps: Mapping[str, Mapping[str, Any]], events: Sequence[Mapping[str, Any]], violations: int
) -> Iterator[Move]:
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


def _work(events: Iterable[Mapping[str, Any]]) -> Iterator[Work]:
    for event in events:
        fields, step, at = event["fields"], _step_of(event["node"]), float(event["at"])
        if event["type"] == TraceEventType.TOOL_CALL_COMPLETED:
            yield Work(step, at, tool_call_id=str(fields["tool_call_id"]))
        elif event["type"] == TraceEventType.MODEL_CALL and fields["component"] == Component.DIAGNOSIS_AGENT:
            yield Work(step, at, tokens=int(fields.get("total_tokens") or 0))


def _step_of(node: str) -> int:
    return int(node.partition(":")[0])
