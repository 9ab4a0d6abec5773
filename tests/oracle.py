"""The stop rule written down a second time, plainly and imperatively from R26-R42 and R57, to judge the code by."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

PREVIOUS = ("absent", "GAINED", "NO_GAIN", "wrong id")
OUTCOMES = (
    "FOUND",
    "NO_EVIDENCE",
    "ERROR",
    "duplicate",
    "invalid input",
    "unknown tool",
    "bad id",
    "extra call",
)
MOVES = (*product(PREVIOUS, OUTCOMES), ("", "draft"), ("", "empty output"))
"""Everything a model may do in one turn of the walk."""

Move = tuple[str, str]


@dataclass
class Oracle:
    """What must have happened after the moves so far. `answers` are the codes the calls were answered with."""

    no_gain_threshold: int = 2
    violation_threshold: int = 2
    no_gain: int = 0
    violations: int = 0
    stop_reason: str | None = None
    pending: str | None = None
    latest: str | None = None
    stop_delivered: bool = False
    scopes: set[str] = field(default_factory=set)
    executed: int = 0
    indexed: int = 0
    ended: str | None = None
    turn: int = 0
    answers: list[list[str]] = field(default_factory=list)

    def step(self, move: Move) -> None:
        """Apply one turn."""
        assert self.ended is None
        self.turn += 1
        previous, outcome = move
        if outcome == "draft":
            self.ended = "DRAFT"
            return
        if outcome in ("empty output", "bad id"):
            self.ended = "OUTPUT_FAILURE"
            return
        if self.stop_delivered:
            self.ended = "STOPPED"
            self.answers.append(["COLLECTION_STOPPED"] * (2 if outcome == "extra call" else 1))
            return
        answers = [self._handle(previous, outcome)]
        self.latest = self.call_id
        if outcome == "extra call":
            self.latest = f"{self.call_id}-extra"
            at_threshold = self.violations >= self.violation_threshold
            answers.append("STOP" if at_threshold else "PARALLEL_TOOL_CALL" + ("+STOP" if self.stop_reason else ""))
        if self.stop_reason:
            self.stop_delivered = True
        self.answers.append(answers)

    @property
    def call_id(self) -> str:
        """Id of this turn's (first) call."""
        return f"c{self.turn}"

    def query(self, outcome: str) -> str:
        """Query of this turn's call: only the duplicate move repeats one."""
        return {
            "FOUND": f"found {self.turn}",
            "NO_EVIDENCE": f"none {self.turn}",
            "ERROR": f"error {self.turn}",
            "duplicate": "found same",
            "invalid input": "invalid",
            "unknown tool": f"found {self.turn}",
            "extra call": f"found {self.turn}",
        }[outcome]

    def _handle(self, previous: str, outcome: str) -> str:
        alone = outcome != "extra call"
        if not alone and self._violate():
            return "STOP"
        if outcome == "unknown tool":
            return "TOOL_NOT_AVAILABLE"
        violation = self._protocol(previous)
        if violation:
            if alone and self._violate():
                return "STOP"
            return violation
        if alone:
            self.violations = 0
        if outcome == "invalid input":
            return "INVALID_TOOL_REQUEST"
        return self._admit(previous, outcome)

    def _admit(self, previous: str, outcome: str) -> str:
        if self.pending:
            self.pending = None
            self.no_gain = 0 if previous == "GAINED" else self.no_gain + 1
            if self._saturate():
                return "STOP"
        query = self.query(outcome)
        if query in self.scopes:
            self.no_gain += 1
            return "STOP" if self._saturate() else "DUPLICATE_SCOPE"
        self.executed += 1
        self.indexed += 1
        if outcome == "ERROR":
            return "ERROR"
        self.scopes.add(query)
        if outcome != "NO_EVIDENCE":
            self.pending = self.call_id
            return "EVIDENCE_FOUND"
        self.no_gain += 1
        return "NO_EVIDENCE+STOP" if self._saturate() else "NO_EVIDENCE"

    def _protocol(self, previous: str) -> str | None:
        if previous == "absent":
            return "MISSING_PREVIOUS_OBSERVATION" if self.pending else None
        if previous == "wrong id":
            return "PREVIOUS_TOOL_CALL_MISMATCH" if self.pending else "UNEXPECTED_PREVIOUS_OBSERVATION"
        if self.pending or self.latest:
            return None
        return "UNEXPECTED_PREVIOUS_OBSERVATION"

    def named_id(self, previous: str) -> str | None:
        """Id the move's evaluation names: the pending one, else the latest answered, as a willing model would."""
        if previous == "absent":
            return None
        return "wrong" if previous == "wrong id" else (self.pending or self.latest or "c0")

    def _violate(self) -> bool:
        self.violations += 1
        if self.violations >= self.violation_threshold:
            self.stop_reason = self.stop_reason or "PROGRESS_PROTOCOL_VIOLATED"
        return self.stop_reason is not None

    def _saturate(self) -> bool:
        if self.no_gain >= self.no_gain_threshold:
            self.stop_reason = self.stop_reason or "INFORMATION_SATURATED"
        return self.stop_reason is not None
