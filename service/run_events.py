"""What a Run tells whoever watches it: events projected from durable data, so any process can tell them again (R132).

Stages come from the journal, the end from the run store. An event's id is its place in the Run, the same in every
process and after every restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from nodes.ports import RunRecord
from service.store.status import TERMINAL

POLL_SECONDS = 1.0
"""How often a reader looks whether a Run of another process has moved."""
VISIBLE_STAGES = frozenset(
    {
        "route_intent",
        "answer_knowledge",
        "system_chat",
        "model_step",
        "execute_tool",
        "project_progress",
        "guard_evidence",
        "repair_evidence",
        "guard_semantics",
    }
)
"""Nodes whose end a user may see. How collection is controlled between them is the operator's (R55); `release` is told as
the end."""
_ID = re.compile(r"([A-Za-z0-9_.:\-]{1,128})/(start|content|result|end|\d{4})")
_ENDS = ("content", "result", "end")


class RunEventType(StrEnum):
    """Names of events (R132)."""

    RUN_STARTED = "run_started"
    STATUS = "status"
    CONTENT = "content"
    RESULT = "result"
    ERROR = "error"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event. `id` is `RUN_ID/PLACE` with PLACE start, a step's four digits, content, result or end."""

    id: str
    type: RunEventType
    data: Any

    @property
    def last(self) -> bool:
        """True for the one event that ends a stream."""
        return self.type in (RunEventType.ERROR, RunEventType.DONE)


class InvalidEventId(ValueError):
    """A Last-Event-ID that no stream of ours has sent; the message says what is allowed."""


@dataclass(frozen=True, slots=True)
class EventId:
    """A parsed event id."""

    run_id: str
    place: str

    @property
    def step(self) -> int:
        """Number of the last step that has been told; beyond all steps once the end was begun."""
        return int(self.place) if self.place.isdigit() else (0 if self.place == "start" else 10_000)

    def precedes(self, end: str) -> bool:
        """Say whether one of the end's events is still to be told."""
        return self.place not in _ENDS or _ENDS.index(self.place) < _ENDS.index(end)


def parse_event_id(text: str) -> EventId:
    """Read an event id. Raises InvalidEventId."""
    match = _ID.fullmatch(text)
    if match is None:
        raise InvalidEventId("Last-Event-ID: must be an id that this service has sent, such as RUN_ID/0007")
    return EventId(match[1], match[2])


Step = tuple[int, str]
"""Number and node of a finished step."""


class StageSource(Protocol):
    """Reads the stages a Run has passed."""

    async def stages(self, run_id: str, after: int) -> tuple[tuple[int, str], ...]:
        """Return (step number, node) of the steps after a number, in order."""


class RunSource(Protocol):
    """Reads Runs."""

    async def get(self, run_id: str) -> RunRecord | None:
        """Return the Run or None."""


class RunChanges:
    """Wakes the readers of a Run in this process. A reader that sleeps costs a Run nothing: nothing is queued for it."""

    def __init__(self) -> None:
        self._readers: dict[str, set[asyncio.Event]] = {}

    @contextlib.contextmanager
    def watch(self, run_id: str) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever the Run has moved."""
        changed = asyncio.Event()
        self._readers.setdefault(run_id, set()).add(changed)
        try:
            yield changed
        finally:
            readers = self._readers[run_id]
            readers.discard(changed)
            if not readers:
                del self._readers[run_id]

    def moved(self, run_id: str) -> None:
        """Say that a Run has moved."""
        for changed in self._readers.get(run_id, ()):
            changed.set()

    def stop(self) -> None:
        """Wake everybody."""
        for run_id in self._readers:
            self.moved(run_id)


def end_events(record: RunRecord, content: str | None, message: str) -> list[RunEvent]:
    """Tell how a Run ended: its content and result and `done`, or `error` with a code and a fixed message. Pure."""
    run_id = record.run_id
    published: Mapping[str, Any]
    if record.published_result:
        published = {"published_result": dict(record.published_result)}
    elif record.fallback:
        published = {"fallback": dict(record.fallback)}
    else:
        error = {"code": record.error_code or record.internal_state.value, "message": message}
        return [RunEvent(f"{run_id}/end", RunEventType.ERROR, error)]
    result = {"release_outcome": record.release_outcome.value, **published}
    return [
        RunEvent(f"{run_id}/content", RunEventType.CONTENT, content),
        RunEvent(f"{run_id}/result", RunEventType.RESULT, result),
        RunEvent(f"{run_id}/end", RunEventType.DONE, None),
    ]


class RunEvents:
    """Follows Runs over durable data; each reader goes at its own pace."""

    def __init__(
        self,
        runs: RunSource,
        stages: StageSource,
        changes: RunChanges,
        tell: Tell,
        *,
        poll_seconds: float = POLL_SECONDS,
        live: Callable[[str], Sequence[Step] | None] = lambda _: None,
    ) -> None:
        """`live` gives the steps of a Run that this very process has carried from its start, as they were stored."""
        self._live = live
        self._runs = runs
        self._stages = stages
        self._changes = changes
        self._tell = tell
        self._poll_seconds = poll_seconds

    async def follow(
        self, run_id: str, after: EventId | None = None, *, idle_seconds: float = 15.0, stopping: asyncio.Event
    ) -> AsyncIterator[RunEvent | None]:
        """Yield a Run's events after a place, up to its end; None whenever nothing came for `idle_seconds`.

        Ends without an end when `stopping` is set: the reader asks again, here or elsewhere.
        """
        place = after or EventId(run_id, "start")
        if after is None:
            yield RunEvent(f"{run_id}/start", RunEventType.RUN_STARTED, {"run_id": run_id})
        step, told = place.step, time.monotonic()
        with self._changes.watch(run_id) as changed:
            while not stopping.is_set():
                changed.clear()
                steps, record = self._live(run_id), None
                carried_here = steps is not None
                if steps is None:
                    # The Run is read before its stages: once it has ended, all of them are there.
                    record = await self._runs.get(run_id)
                    steps = await self._stages.stages(run_id, step)
                for number, node in [each for each in steps if each[0] > step]:
                    step = number
                    if node in VISIBLE_STAGES:
                        yield RunEvent(f"{run_id}/{number:04d}", RunEventType.STATUS, {"stage": node})
                        told = time.monotonic()
                if not carried_here and (record is None or record.internal_state in TERMINAL):
                    for event in self._tell(record) if record is not None else ():
                        if place.precedes(event.id.rpartition("/")[2]):
                            yield event
                    return
                left = idle_seconds - (time.monotonic() - told)
                if left <= 0:
                    yield None
                    told = time.monotonic()
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(self._poll_seconds, left)):
                        await changed.wait()


class Tell(Protocol):
    """Writes the end of a Run as events."""

    def __call__(self, record: RunRecord) -> list[RunEvent]:
        """Return the end's events in order."""
