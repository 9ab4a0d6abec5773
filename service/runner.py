"""`RunManager`: Runs as background tasks of this process; they outlive whoever asked for them (R3, R8, R119, R134).

A Run stands in the store before its task begins, so that its id is known at once, its session is taken at once, and a
process that dies leaves something to carry on. A process that is told to stop hands its Runs over: a step that ends in time
is kept, one that does not is done again by whoever takes the Run up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from langgraph.runtime import RunControl

from graph.context import DiagnosisContext
from graph.contract import Intent, RunState, TraceEventType
from graph.state import DiagnosisInput
from nodes.events import event
from nodes.harness import session_lock
from nodes.lease import lease_renewed
from nodes.node_run import ACTIVE
from nodes.ports import JournalBatch, RunOrigin, RunRecord, SessionBusy
from nodes.start_run import checked_question
from service.app import App
from service.contract import StepView
from service.endings import end_free_run
from service.execution import GRACE_SECONDS, Execution, OnStep
from service.recovery import Takeover, keep_recovering
from service.run_events import RunChanges, Step
from service.run_log import log_begin, log_end
from service.store.status import TERMINAL

logger = logging.getLogger("superbiz.runs")

T = TypeVar("T")

CANCEL_POLL_SECONDS = 1.0
"""How often a process looks for cancels of its Runs that other processes took."""
WAIT_POLL_SECONDS = 1.0
"""How often a Run of another process is looked at by who waits for its end."""
STOP_SECONDS = 5.0
"""Time for tasks to leave once they were cut off."""


class TooManyRuns(Exception):
    """This process carries as many Runs as it may; `limit` is how many."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"at most {limit} runs at once are allowed")
        self.limit = limit


class SessionHasRun(Exception):
    """The session has an active Run (R134); `run_id` names it where it is still active."""

    def __init__(self, run_id: str | None) -> None:
        super().__init__("the session has a run that has not ended")
        self.run_id = run_id


class ServiceStopping(Exception):
    """The process is about to stop and begins nothing."""


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody asks. `owner` is the caller's name; `at`, `language` and `intent` override the configured context."""

    text: str
    session_id: str
    owner: str | None = None
    at: str | None = None
    language: str | None = None
    intent: Intent | None = None


@dataclass(slots=True)
class _Live:
    control: RunControl
    task: asyncio.Task[None] | None = None
    steps: list[Step] | None = None
    """Finished steps of a Run begun here; None for one taken up, whose first steps only the store knows."""
    waiting: bool = False
    """True while the Run waits for its turn."""


class RunManager:
    """Carries at most `max_runs` Runs, of which `max_executing` execute and the others wait in the order they came.

    Open it with `async with`; closing hands over what has not ended.
    """

    def __init__(
        self,
        app: App,
        *,
        max_runs: int,
        max_executing: int = 8,
        stop_seconds: float = 10.0,
        changes: RunChanges | None = None,
        on_step: OnStep | None = None,
    ) -> None:
        self._app = app
        self._max_runs = max_runs
        self._turns = asyncio.Semaphore(max_executing)
        self._stop_seconds = stop_seconds
        self._live: dict[str, _Live] = {}
        self._asked: set[asyncio.Future[Any]] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._shown = on_step
        self.changes = changes or RunChanges()
        self.stopping = asyncio.Event()

    async def __aenter__(self) -> RunManager:
        self._watcher = asyncio.create_task(self._watch_cancels())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def active(self) -> frozenset[str]:
        """Ids of the Runs that this process carries."""
        return frozenset(self._live)

    @property
    def room(self) -> int:
        """How many more Runs this process may carry."""
        return 0 if self.stopping.is_set() else self._max_runs - len(self._live)

    async def start(self, question: Question) -> RunRecord:
        """Begin a Run and return it as stored.

        Raises InvalidQuestion, SettingsError, ValueError (unknown model), ServiceStopping, TooManyRuns, SessionHasRun;
        then nothing is stored.
        """
        query = checked_question(question.text)
        context = self._app.settings.context(at=question.at, language=question.language, intent=question.intent)
        self._app.resources.models.client(context.model)
        # Whoever asks may leave at any moment; a Run that is stored must have its task.
        return await self._carried_out(self._start(query, question, context))

    async def _carried_out(self, asked: Coroutine[Any, Any, T]) -> T:
        """Do what was asked to its end, whether or not whoever asked stays; `close` waits for it."""
        doing = asyncio.ensure_future(asked)
        self._asked.add(doing)
        doing.add_done_callback(self._asked.discard)
        return await asyncio.shield(doing)

    async def _start(self, query: str, question: Question, context: DiagnosisContext) -> RunRecord:
        resources = self._app.resources
        now, run_id = resources.clock.now(), resources.ids.new_id()
        origin = RunOrigin(run_id, question.owner, alone_in_session=True)
        record = RunRecord(
            run_id=run_id,
            query=query,
            session_id=question.session_id,
            internal_state=RunState.RUNNING,
            created_at=now,
            execution_id=str(uuid.uuid4()),
            lease_until=now + resources.lease_seconds,
            owner=question.owner,
            thread_id=run_id,
            session_lock=session_lock(origin, question.session_id),
            context=context.model_dump(mode="json"),
        )
        with self._slot(run_id) as live:
            live.steps = []
            try:
                await resources.runs.create(record)
            except SessionBusy:
                raise await self._session_has_run(question) from None
            self._carry(record, context, live, {"query": query, "session_id": question.session_id})
        return record

    async def _session_has_run(self, question: Question) -> SessionHasRun:
        active = await self._app.runs.active(question.session_id, question.owner)
        return SessionHasRun(active.run_id if active else None)

    async def take_up(self, takeover: Takeover) -> None:
        """Carry on a Run that nobody carries, from its last checkpoint or, without any, from its question.

        Raises ServiceStopping, TooManyRuns, and ValueError for a Run that this process carries already.
        """
        record = takeover.record
        if record.run_id in self._live:
            raise ValueError("the run is carried here")
        asked: DiagnosisInput = {"query": record.query, "session_id": record.session_id}
        with self._slot(record.run_id) as live:
            start = asked if takeover.from_start else None
            self._carry(record, takeover.context, live, start, takeover.execution_id)

    def steps(self, run_id: str) -> Sequence[Step] | None:
        """Return the finished steps of a Run that was begun here and has not ended, else None."""
        live = self._live.get(run_id)
        return live.steps if live is not None else None

    @contextlib.contextmanager
    def _slot(self, run_id: str) -> Any:
        if self.stopping.is_set():
            raise ServiceStopping
        if len(self._live) >= self._max_runs:
            raise TooManyRuns(self._max_runs)
        live = self._live[run_id] = _Live(RunControl())
        try:
            yield live
        finally:
            if live.task is None:
                del self._live[run_id]

    def _carry(
        self,
        record: RunRecord,
        context: DiagnosisContext,
        live: _Live,
        asked: DiagnosisInput | None,
        execution_id: str | None = None,
    ) -> None:
        execution_id = execution_id or record.execution_id
        execution = Execution(
            self._app,
            context,
            record=record,
            execution_id=execution_id,
            on_step=self._on_step,
            durability="sync",
            control=live.control,
            turn=self._turn(record.run_id, execution_id, live),
        )
        live.task = asyncio.create_task(self._run(record.run_id, execution, asked), name=f"run {record.run_id}")
        log_begin(record.run_id, taken_up=live.steps is None)

    @contextlib.asynccontextmanager
    async def _turn(self, run_id: str, execution_id: str | None, live: _Live) -> AsyncIterator[None]:
        """Wait for a turn, in the order the Runs came; the Run stays this process's own meanwhile."""
        async with contextlib.AsyncExitStack() as held:
            live.waiting = True
            try:
                async with lease_renewed(self._app.resources, run_id, execution_id or ""):
                    # A cancel may come after the turn and before the renewal has left: the turn is given back then too.
                    await held.enter_async_context(self._turns)
            finally:
                live.waiting = False
            yield

    async def _run(self, run_id: str, execution: Execution, asked: DiagnosisInput | None) -> None:
        try:
            # A cancel's end, or the hand-over, is written once this has returned.
            with contextlib.suppress(asyncio.CancelledError):
                await execution.run(asked, GRACE_SECONDS)
            await log_end(self._app.runs, run_id)
        finally:
            self._live.pop(run_id, None)
            self.changes.moved(run_id)

    def _on_step(self, view: StepView) -> None:
        live = self._live.get(view.run_id)
        if live is not None and live.steps is not None:
            live.steps.append((view.step_no, view.node))
        self.changes.moved(view.run_id)
        if self._shown is not None:
            self._shown(view)

    async def cancel(self, run_id: str) -> RunRecord | None:
        """Forbid what comes next, then interrupt what can be interrupted; return the Run as it stands (R119, R120).

        Works for a Run of another process too: its next step and its own look at the store see the mark. None when
        there is no such Run.
        """
        # Whoever asked may leave at any moment; what was begun here is ended.
        return await self._carried_out(self._cancel(run_id))

    async def cancel_left(self, run_id: str) -> None:
        """Cancel a Run whose client has left. Nobody is there to hear of a store out of reach: the log has its type."""
        try:
            await self.cancel(run_id)
        except Exception as error:
            logger.warning("a run whose client left could not be cancelled: %s", type(error).__name__)

    async def _cancel(self, run_id: str) -> RunRecord | None:
        runs, now = self._app.runs, self._app.resources.clock.now()
        if await runs.transition(run_id, ACTIVE, RunState.CANCEL_REQUESTED):
            requested = event(TraceEventType.RUN_CANCEL_REQUESTED)
            try:
                await self._app.journal.write(JournalBatch(run_id, "cancel", now, [requested]))
            except Exception:
                self._interrupt(run_id)
                raise
        record = await runs.get(run_id)
        if record is None or record.internal_state is not RunState.CANCEL_REQUESTED:
            return record
        if run_id in self._live:
            self._interrupt(run_id)
        elif record.lease_until is None or record.lease_until <= now:
            # Nobody is left who would end it.
            expected = frozenset({RunState.CANCEL_REQUESTED})
            await end_free_run(self._app, record, RunState.CANCELLED, "CANCELLED", expected)
            self.changes.moved(run_id)
        return record

    def _interrupt(self, run_id: str) -> None:
        live = self._live.get(run_id)
        if live is not None and live.task is not None and not live.task.cancelling():
            live.task.cancel()

    async def wait(self, run_id: str) -> RunRecord | None:
        """Return the Run once it has ended, in whichever process. Raises ServiceStopping when this one ends first."""
        with self.changes.watch(run_id) as changed:
            while True:
                changed.clear()
                if run_id not in self._live:
                    record = await self._app.runs.get(run_id)
                    if record is None or record.internal_state in TERMINAL:
                        return record
                if self.stopping.is_set():
                    raise ServiceStopping
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), WAIT_POLL_SECONDS)

    async def close(self) -> None:
        """Begin nothing more, let steps in flight end, cut off the rest, and give every lease back."""
        self.stop()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._asked:
            # What is being stored gets its task yet, and hands its Run over; a cancel that was taken is written down.
            await asyncio.wait(self._asked, timeout=STOP_SECONDS)
        tasks = {live.task for live in self._live.values() if live.task is not None}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=self._stop_seconds)
        for task in late:
            # One that is leaving already is about to give its lease back.
            if not task.cancelling():
                task.cancel()
        if late:
            await asyncio.wait(late, timeout=STOP_SECONDS)

    def stop(self) -> None:
        """Begin nothing more, go no step further, and send every reader away."""
        self.stopping.set()
        for run_id, live in self._live.items():
            live.control.request_drain()
            if live.waiting:
                self._interrupt(run_id)
        self.changes.stop()

    async def _watch_cancels(self) -> None:
        blind = False
        while True:
            await asyncio.sleep(CANCEL_POLL_SECONDS)
            if not self._live:
                continue
            try:
                for run_id in await self._app.serving.cancel_requested(sorted(self._live)):
                    self._interrupt(run_id)
                blind = False
            except Exception as error:
                if not blind:
                    logger.warning("could not look for cancelled runs: %s", type(error).__name__)
                blind = True


@contextlib.asynccontextmanager
async def open_manager(app: App) -> AsyncIterator[RunManager]:
    """Open a manager with the configured bounds."""
    settings = app.settings
    async with RunManager(
        app, max_runs=settings.max_runs, max_executing=settings.max_executing, stop_seconds=settings.stop_seconds
    ) as manager:
        recovering = asyncio.create_task(
            keep_recovering(app, lambda: manager.room, manager.take_up, lambda: manager.active)
        )
        try:
            yield manager
        finally:
            recovering.cancel()
            await asyncio.wait([recovering], timeout=STOP_SECONDS)
