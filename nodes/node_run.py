"""What one execution of one node works with, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

from graph.context import DiagnosisContext
from graph.contract import RunState, TraceEvent
from nodes.contract import CollectionEnd, EndCause, RunSettings
from nodes.outside import Outside
from nodes.ports import AgentStepRow, ArchiveEntry, Clock, ModelClient, Resources, RunOrigin, RunRecord, owner_called

ACTIVE = frozenset({RunState.CREATED, RunState.RUNNING})
_RUN_OF_EXECUTION = UUID("6f1c7c0e-5a0b-4e0e-9d3c-3c1f2b7a9e51")
CURRENT_NODE: ContextVar[str] = ContextVar("superbiz_current_node", default="")
"""Key of the node execution in hand, e.g. "0007:dedup_scope": by it a replay's clock and stores know where they are."""


class RecordingClock:
    """A clock that keeps what it told, so that the archive can give a replay the same readings (R67)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.readings: list[float] = []

    def now(self) -> float:
        """Seconds since the epoch."""
        value = self._clock.now()
        self.readings.append(value)
        return value


@dataclass(frozen=True, slots=True)
class NodeResult:
    """A node's answer: the update of the state, one sentence for whoever steps through, and what to write down."""

    update: dict[str, Any]
    step: str
    events: Sequence[TraceEvent] = ()
    steps: Sequence[AgentStepRow] = ()
    archive: Sequence[ArchiveEntry] = ()
    position: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeRun:
    """The world as one node execution sees it. `record` is the Run when the node was entered, None before it exists."""

    resources: Resources
    settings: RunSettings | None
    record: RunRecord | None
    execution_id: str | None
    context: DiagnosisContext
    clock: RecordingClock
    origin: RunOrigin | None = None
    caller: str | None = None
    """Who asks, as the host that checked it says; None where nobody did."""
    thread_id: str | None = None
    new_ids: list[str] = field(default_factory=list)
    described: list[Mapping[str, Any]] = field(default_factory=list)
    outside: Outside = field(default_factory=Outside)
    attempts: list[ArchiveEntry] = field(default_factory=list)
    """Model calls of this node so far, as they are archived; one whose answer is awaited counts as cut off (R116)."""

    @property
    def owner(self) -> str | None:
        """Who the Run belongs to: its origin says, else the host; a fork belongs to whom it was made from."""
        if self.origin is not None:
            return self.origin.owner
        if self.caller is not None:
            return owner_called(self.caller)
        return self.record.owner if self.record is not None else None

    @property
    def run(self) -> RunSettings:
        """Settings of the Run; only `start_run` runs without one."""
        if self.settings is None:
            raise ValueError("the run has not been started")
        return self.settings

    def new_id(self) -> str:
        """Return a fresh id and remember it for the archive."""
        value = self.resources.ids.new_id()
        self.new_ids.append(value)
        return value

    def new_run_id(self) -> str:
        """Return the id that whoever starts the Run has given it, else a fresh one.

        A host that repeats an execution whose process died begins no second Run: there the execution names it.
        """
        if self.origin is not None:
            value = self.origin.run_id
        elif self.resources.on_host and self.execution_id is not None:
            value = str(uuid5(_RUN_OF_EXECUTION, self.execution_id))
        else:
            return self.new_id()
        self.new_ids.append(value)
        return value

    async def describe_system(self) -> Mapping[str, Any]:
        """Return what the system knows of, and remember it for the archive: it may be another tomorrow."""
        view = await self.resources.describe_system()
        self.described.append(view)
        return view

    def model(self) -> ModelClient:
        """Return the model client this Run uses."""
        return self.resources.models.client(self.run.model)

    def ended_on_entry(self) -> CollectionEnd | None:
        """Refuse to go on when the Run is cancelled or out of time (R3, R119)."""
        if self.record is not None and self.record.internal_state not in ACTIVE:
            return CollectionEnd(cause=EndCause.CANCELLED)
        if self.timed_out():
            return CollectionEnd(cause=EndCause.TIMED_OUT)
        return None

    def timed_out(self) -> bool:
        """Say whether the Run has used up its timeout (R67)."""
        return self.clock.now() - self.run.started_at >= self.resources.run_timeout_seconds

    async def still_active(self) -> bool:
        """Ask the run store again after a slow call: a late result of a cancelled Run is dropped (R120)."""
        record = await self.resources.runs.get(self.run.run_id)
        return record is None or record.internal_state in ACTIVE
