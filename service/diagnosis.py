"""`DiagnosisChatExecutor`: one question in, one report out; every way a Run can end is ended here at the latest (R63, R93).

The graph ends its Runs itself (node `release`). What is left for this boundary: a host that cancels, a node that hangs past
the run timeout, and a fault that no node expected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig

from graph.context import DiagnosisContext
from graph.contract import RunState
from graph.diagnosis import recursion_limit
from graph.state import DiagnosisInput
from nodes.contract import CollectionEnd, EndCause
from nodes.harness import DiagnosisHarnessCore
from nodes.ports import RunRecord
from nodes.run_end import end_without_result
from nodes.start_run import checked_question
from nodes.usage import usage_of
from release.contract import ReleaseOutcome
from service.app import App
from service.contract import DiagnosisReport, StepView
from service.store.status import TERMINAL, public_status

logger = logging.getLogger("superbiz.diagnosis")

INTERNAL_ERROR = "INTERNAL_ERROR"
RUN_TIMED_OUT = "RUN_TIMED_OUT"
GRACE_SECONDS = 20.0
"""Beyond the run timeout, which the graph checks at each node's entry: the longest tool may still be in flight."""
CANCEL_AGAIN_SECONDS = 2.0


OnStep = Callable[[StepView], None]


def report_of(record: RunRecord) -> DiagnosisReport:
    """Read the report off a stored Run. Pure."""
    return DiagnosisReport(
        run_id=record.run_id,
        status=public_status(record.internal_state, record.release_outcome).value,
        release_outcome=record.release_outcome.value,
        published_result=dict(record.published_result) if record.published_result else None,
        fallback=dict(record.fallback) if record.fallback else None,
        operator={
            "internal_state": record.internal_state.value,
            "stop_reason": record.stop_reason,
            **({"error_code": record.error_code} if record.error_code else {}),
            "usage": dict(record.usage),
        },
    )


async def diagnose(
    app: App,
    question: str,
    *,
    at: str | None = None,
    session_id: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    on_step: OnStep | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> DiagnosisReport:
    """Diagnose one question and return how it ended; `on_step` sees every node as it finishes.

    `overrides` are fields of DiagnosisContext. Raises InvalidQuestion, SettingsError, ValueError (unknown model) before
    anything is stored, and CancelledError after the Run was marked CANCELLED.
    """
    query = checked_question(question)
    context = app.settings.context(**{**(overrides or {}), "at": at})
    app.resources.models.client(context.model)
    execution = Execution(app, context, on_step)
    await execution.run({"query": query, "session_id": session_id}, grace_seconds)
    return await execution.report()


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
    """One execution of the graph over one Run."""

    def __init__(self, app: App, context: DiagnosisContext, on_step: OnStep | None) -> None:
        self._app = app
        self._context = context
        self._on_step = on_step
        self._run_id: str | None = None
        self._config: RunnableConfig = {
            "configurable": {"thread_id": str(uuid.uuid4())},
            "recursion_limit": recursion_limit(context.budget),
            "run_id": uuid.uuid4(),
        }

    async def run(self, graph_input: DiagnosisInput, grace_seconds: float) -> None:
        """Run to an end, whatever happens on the way. Raises CancelledError once the Run is marked."""
        limit = self._app.settings.run_timeout_seconds + grace_seconds
        try:
            async with asyncio.timeout(limit) as guard, _insisting_on_cancel(guard):
                await self._stream(graph_input)
        except (asyncio.CancelledError, SystemExit):
            await self._mark_cancelled()
            raise
        except TimeoutError:
            logger.error("a run did not end within its timeout")
            await self._finish(EndCause.TIMED_OUT, RunState.TIMED_OUT, RUN_TIMED_OUT, grace_seconds)
        except Exception as error:
            # Only the type: the text may hold a question, a row or a secret.
            logger.error("a run failed unexpectedly: %s", type(error).__name__)
            await self._finish(EndCause.FAULT, RunState.FAILED, INTERNAL_ERROR, grace_seconds)

    async def report(self) -> DiagnosisReport:
        """Read the end from the run store, the durable truth (R98)."""
        record = None
        if self._run_id is not None:
            with contextlib.suppress(Exception):
                record = await self._app.runs.get(self._run_id)
        if record is not None and record.internal_state in TERMINAL:
            return report_of(record)
        operator: dict[str, Any] = {
            "internal_state": "FAILED",
            "stop_reason": None,
            "error_code": INTERNAL_ERROR,
            "usage": {},
        }
        return DiagnosisReport(
            run_id=self._run_id, status="FAILED", release_outcome=ReleaseOutcome.NONE.value, operator=operator
        )

    async def _stream(self, graph_input: DiagnosisInput | None) -> None:
        stream = self._app.graph.astream(
            graph_input,
            self._config,
            context=self._context,
            stream_mode="updates",
            durability="async",
        )
        async for update in stream:
            for node, values in update.items():
                self._note(node, values)

    def _note(self, node: str, values: Any) -> None:
        if not isinstance(values, Mapping):
            return
        if "run" in values:
            self._run_id = str(values["run"]["run_id"])
        if self._on_step is None or self._run_id is None or "position" not in values:
            return
        try:
            step_no = int(values["position"]["step"])
            self._on_step(StepView(run_id=self._run_id, node=node, step=str(values["step"]), step_no=step_no))
        except Exception as error:
            # Whoever watched is gone; the run is not.
            logger.warning("a step could not be shown: %s", type(error).__name__)
            self._on_step = None

    async def _finish(self, cause: EndCause, state: RunState, code: str, seconds: float) -> None:
        """Let the graph publish what it had verified (R60); failing that, write the end without a result."""
        if self._run_id is None:
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
        """Route the thread to the end of collection: `execute_tool` is the node that a fault leaves this way."""
        state = await self._app.graph.aget_state(self._config)
        if not state.values.get("tracker_index") or not state.next:
            return
        ended = CollectionEnd(cause=cause, fault=INTERNAL_ERROR if cause is EndCause.FAULT else None)
        await self._app.graph.aupdate_state(
            self._config, {"ended": ended.model_dump(mode="json"), "outcome": None}, as_node="execute_tool"
        )
        await self._stream(None)

    async def _write_end(self, state: RunState, code: str) -> None:
        assert self._run_id is not None
        app, now = self._app, self._app.resources.clock.now()
        usage = await self._usage()
        await end_without_result(app.runs, app.journal, self._run_id, state, code, now, usage=usage)

    async def _usage(self) -> dict[str, Any]:
        """What the last checkpoint says was spent; empty when it cannot be read (R108, R116)."""
        with contextlib.suppress(Exception):
            return usage_of((await self._app.graph.aget_state(self._config)).values)
        return {}

    async def _mark_cancelled(self) -> None:
        """Mark the end even between two nodes, where no node is in flight that would do it."""
        if self._run_id is None:
            return
        core = DiagnosisHarnessCore(self._app.resources)
        task = asyncio.ensure_future(core.mark_interrupted(self._run_id, await self._usage() or None))
        done, _ = await asyncio.wait([task], timeout=5)
        for each in done:
            if each.exception() is not None:
                logger.warning("could not mark the end of a cancelled run: %s", type(each.exception()).__name__)
