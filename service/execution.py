"""One execution of a graph over one Run, brought to an end or handed over, whatever happens on the way (R3, R63, R93).

The graph ends its Runs itself (node `release`). What is left for this boundary: a host that cancels, a node that hangs past
the run timeout, a fault that no node expected, and a process that stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from graph.context import DiagnosisContext
from graph.contract import RunState
from graph.diagnosis import recursion_limit
from graph.state import DiagnosisInput
from nodes.contract import CollectionEnd, EndCause
from nodes.harness import DiagnosisHarnessCore, RunTakenElsewhere
from nodes.ports import ORIGIN, RunOrigin, RunRecord
from nodes.run_end import end_without_result
from nodes.usage import usage_of
from service.app import App
from service.checkpoints import latest_state, latest_values
from service.contract import StepView
from service.endings import give_back
from tools.database import is_out_of_reach

logger = logging.getLogger("superbiz.diagnosis")

INTERNAL_ERROR = "INTERNAL_ERROR"
RUN_TIMED_OUT = "RUN_TIMED_OUT"
GRACE_SECONDS = 20.0
"""Beyond the run timeout, which the graph checks at each node's entry: the longest tool may still be in flight."""
CANCEL_AGAIN_SECONDS = 2.0

OnStep = Callable[[StepView], None]


@contextlib.asynccontextmanager
async def _insisting_on_cancel(guard: asyncio.Timeout) -> AsyncIterator[None]:
    """Repeat a cancel that a layer below has swallowed: a run that was cancelled must not go on to its end (R119).

    A cancel that `guard` made is its own affair. Repetitions are taken back at the end: whoever cancelled counts its own.
    """
    task = asyncio.current_task()
    assert task is not None
    before, repeated = task.cancelling(), 0

    async def insist() -> None:
        nonlocal repeated
        while True:
            await asyncio.sleep(CANCEL_AGAIN_SECONDS)
            if task.cancelling() > before and not guard.expired():
                repeated += 1
                task.cancel()

    watcher = asyncio.create_task(insist())
    try:
        yield
    finally:
        watcher.cancel()
        for _ in range(repeated):
            task.uncancel()


class Execution:
    """One execution of the graph over one Run: over a new one, or over `record`, which a service has stored before."""

    def __init__(
        self,
        app: App,
        context: DiagnosisContext,
        *,
        record: RunRecord | None = None,
        execution_id: str | None = None,
        on_step: OnStep | None = None,
        durability: Literal["sync", "async"] = "async",
        control: RunControl | None = None,
        turn: AbstractAsyncContextManager[Any] | None = None,
    ) -> None:
        """`turn` is entered before the Run goes on, and left at its end; no clock of the Run runs until then."""
        self._app = app
        self._context = context
        self._on_step = on_step
        self._durability = durability
        self._control = control or RunControl()
        self._turn = turn or contextlib.nullcontext()
        self._execution_id = execution_id or str(uuid.uuid4())
        self._last_step = 0
        # A service's questions are routed first; a command asks for a diagnosis.
        self._graph: Any = app.chat if record is not None else app.graph
        self.run_id = record.run_id if record else None
        self._can_be_taken_up = record is not None
        self._out_of_reach = False
        self._config: RunnableConfig = {
            "configurable": {"thread_id": (record and record.thread_id) or str(uuid.uuid4())},
            "recursion_limit": recursion_limit(context.budget),
            "run_id": uuid.UUID(self._execution_id),
        }
        if record is not None:
            self._config["configurable"][ORIGIN] = RunOrigin(record.run_id, record.owner, alone_in_session=True)

    async def run(self, graph_input: DiagnosisInput | None, grace_seconds: float) -> None:
        """Run to an end or to the hand-over; None goes on from the last checkpoint. Raises CancelledError once marked."""
        limit = self._app.settings.run_timeout_seconds + grace_seconds
        try:
            async with self._turn, asyncio.timeout(limit) as guard, _insisting_on_cancel(guard):
                await self._stream(graph_input)
        except GraphDrained:
            pass  # it stays as its last checkpoint says
        except RunTakenElsewhere:
            logger.warning("a run is carried on by another execution")
        except (asyncio.CancelledError, SystemExit):
            await self._mark_cancelled()
            raise
        except TimeoutError:
            logger.error("a run did not end within its timeout")
            await self._finish(EndCause.TIMED_OUT, RunState.TIMED_OUT, RUN_TIMED_OUT, grace_seconds)
        except Exception as error:
            # Only the type: the text may hold a question, a row or a secret.
            name = type(error).__name__
            if self._can_be_taken_up and is_out_of_reach(error):
                # Nothing can be written down, an end neither: whoever reaches the database again goes on.
                logger.warning("a run waits for its database, which is out of reach: %s", name)
                self._out_of_reach = True
                return
            logger.error("a run failed unexpectedly: %s", name)
            # A process that stops takes away what its Runs stand on; the next one finds out whether they fail.
            if not self._control.drain_requested:
                await self._finish(EndCause.FAULT, RunState.FAILED, INTERNAL_ERROR, grace_seconds)
        finally:
            # The trace has its end now: a Run that still holds its lease tells a sweep that its process died before.
            await self._hand_over()

    async def _stream(self, graph_input: DiagnosisInput | None) -> None:
        stream = self._graph.astream(
            graph_input,
            self._config,
            context=self._context,
            stream_mode="updates",
            durability=self._durability,
            subgraphs=True,
            control=self._control,
        )
        # With subgraphs each part comes as (namespace, update).
        parts: AsyncIterator[Any] = stream
        async for part in parts:
            for node, values in part[1].items():
                self._note(node, values)

    def _note(self, node: str, values: Any) -> None:
        if not isinstance(values, Mapping):
            return
        if "run" in values:
            self.run_id = str(values["run"]["run_id"])
        if self._on_step is None or self.run_id is None or "position" not in values:
            return
        step_no = int(values["position"]["step"])
        if step_no <= self._last_step:
            return  # a subgraph's last step, told again by the node that ran it
        self._last_step = step_no
        try:
            self._on_step(StepView(run_id=self.run_id, node=node, step=str(values["step"]), step_no=step_no))
        except Exception as error:
            # Whoever watched is gone; the run is not.
            logger.warning("a step could not be shown: %s", type(error).__name__)
            self._on_step = None

    async def _finish(self, cause: EndCause, state: RunState, code: str, seconds: float) -> None:
        """Let the graph publish what it had verified (R60); failing that, write the end without a result."""
        if self.run_id is None:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._release_progress(cause)
        except asyncio.CancelledError:
            await self._mark_cancelled()
            raise
        except Exception as error:
            logger.error("what a failed run had verified could not be released: %s", type(error).__name__)
        with contextlib.suppress(Exception):
            await self._write_end(state, code)

    async def _release_progress(self, cause: EndCause) -> None:
        """Route the thread to the end of collection: `execute_tool` is the node that a fault leaves this way.

        In a chat the diagnosis is a graph within the graph, with a state of its own.
        """
        state = await latest_state(self._graph, self._config)
        if not state.values.get("tracker_index") or not state.next:
            return
        ended = CollectionEnd(cause=cause, fault=INTERNAL_ERROR if cause is EndCause.FAULT else None)
        await self._graph.aupdate_state(
            state.config, {"ended": ended.model_dump(mode="json"), "outcome": None}, as_node="execute_tool"
        )
        await self._stream(None)

    async def _write_end(self, state: RunState, code: str) -> None:
        assert self.run_id is not None
        app, now = self._app, self._app.resources.clock.now()
        usage = await self._usage()
        holder = self._execution_id
        await end_without_result(app.runs, app.journal, self.run_id, state, code, now, usage=usage, holder=holder)

    async def _usage(self) -> dict[str, Any]:
        """What the last checkpoint says was spent; empty when it cannot be read (R108, R116)."""
        with contextlib.suppress(Exception):
            return usage_of(await latest_values(self._graph, self._config))
        return {}

    async def _mark_cancelled(self) -> None:
        """Mark the end even between two nodes, where no node is in flight that would do it."""
        if self.run_id is None:
            return
        core = DiagnosisHarnessCore(self._app.resources)
        draining = self._control.drain_requested
        usage = await self._usage() or None
        marking = core.mark_interrupted(self.run_id, usage, holder=self._execution_id, draining=draining)
        done, _ = await asyncio.wait([asyncio.ensure_future(marking)], timeout=5)
        for each in done:
            if each.exception() is not None:
                logger.warning("could not mark the end of a cancelled run: %s", type(each.exception()).__name__)

    async def _hand_over(self) -> None:
        """Give the lease back: a Run that has not ended stays as its last checkpoint says, for whoever takes it up."""
        if self.run_id is None:
            return
        try:
            if self._out_of_reach:
                # It may have ended, told by nobody: a lease that has run out shows a sweep that its release is to be done
                # again, which then tells what it had decided.
                now = self._app.resources.clock.now()
                await self._app.runs.take_lease(self.run_id, self._execution_id, now, now, False)
                return
            await give_back(self._app, self.run_id, self._execution_id)
        except Exception as error:
            logger.warning("could not give a lease back: %s", type(error).__name__)
