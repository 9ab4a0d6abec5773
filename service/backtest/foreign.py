"""A back-test over transcripts of other agents: what each rule would have saved, and what it would have cost. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.backtest.classify import ResultClass, classify
from service.backtest.rules import Rule, Run
from service.backtest.transcripts import Transcript


@dataclass(frozen=True, slots=True)
class RunStop:
    """Where one rule stopped one run; `call` counts from 1, `calls_after` is what was cut off."""

    run: str
    success: bool
    call: int
    calls_after: int


@dataclass(slots=True)
class RuleOutcome:
    """What one rule did over all runs.

    `stopped` counts the runs in which it fired, `lost` those of them that succeeded with calls that would have been cut off.
    `cut` counts the calls after the stop by class.
    """

    rule: str
    stopped: int = 0
    lost: int = 0
    cut: Counter[ResultClass] = field(default_factory=Counter)
    stops: list[RunStop] = field(default_factory=list)

    @property
    def useless_cut(self) -> int:
        """Calls cut off that could have been spared."""
        return _useless(self.cut)

    @property
    def other_cut(self) -> int:
        """Calls cut off that told something."""
        return self.cut.total() - self.useless_cut

    def as_json(self) -> dict[str, Any]:
        """JSON data."""
        return {
            "rule": self.rule,
            "stopped": self.stopped,
            "lost": self.lost,
            "cut": {each.value: self.cut[each] for each in ResultClass},
            "useless_cut": self.useless_cut,
            "other_cut": self.other_cut,
            "stops": [
                {"run": each.run, "success": each.success, "call": each.call, "calls_after": each.calls_after}
                for each in self.stops
            ],
        }


@dataclass(slots=True)
class ForeignBacktest:
    """All rules over the same runs."""

    runs: int = 0
    successes: int = 0
    classes: Counter[ResultClass] = field(default_factory=Counter)
    outcomes: list[RuleOutcome] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """Answered calls in all runs."""
        return self.classes.total()

    @property
    def useless(self) -> int:
        """Those that could have been spared."""
        return _useless(self.classes)

    def as_json(self) -> dict[str, Any]:
        """JSON data."""
        return {
            "runs": self.runs,
            "successes": self.successes,
            "calls": self.calls,
            "useless": self.useless,
            "classes": {each.value: self.classes[each] for each in ResultClass},
            "rules": [each.as_json() for each in self.outcomes],
        }


def backtest_transcripts(transcripts: Iterable[Transcript], rules: Sequence[Rule]) -> ForeignBacktest:
    """Apply every rule to every run; each run is read once. Raises what `transcripts` raises."""
    result = ForeignBacktest(outcomes=[RuleOutcome(rule.name) for rule in rules])
    for transcript in transcripts:
        classes = classify(transcript.calls)
        run = tuple(zip(transcript.calls, classes, strict=True))
        result.runs += 1
        result.successes += transcript.success
        result.classes.update(classes)
        for rule, outcome in zip(rules, result.outcomes, strict=True):
            _apply(rule, run, transcript, outcome)
    return result


def _apply(rule: Rule, run: Run, transcript: Transcript, outcome: RuleOutcome) -> None:
    at = rule.stops_at(run)
    if at is None:
        return
    after = [found for _, found in run[at + 1 :]]
    outcome.stopped += 1
    outcome.lost += bool(transcript.success and after)
    outcome.cut.update(after)
    outcome.stops.append(RunStop(transcript.name, transcript.success, at + 1, len(after)))


def _useless(classes: Counter[ResultClass]) -> int:
    return sum(count for found, count in classes.items() if found.useless)
