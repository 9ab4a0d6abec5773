"""`HostedRunManager`: questions to the mounted service are begun by the host, so its queue, its workers and Studio have them.

The Run stands in the store before the host hears of it: that is where its session is taken (R134), and what a caller watches
and cancels. The host's thread has the Run's id; node `start_run` takes up the Run of that id and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from graph.context import DiagnosisContext
from graph.contract import RunState
from nodes.harness import session_lock
from nodes.ports import LOCAL_CALLER, RunOrigin, RunRecord, SessionBusy
from nodes.run_end import end_without_result
from service.app import App
from service.http.errors import ApiError, ApiErrorCode
from service.runner import Question, RunManager, ServiceStopping

AUTHORIZATION: ContextVar[str | None] = ContextVar("superbiz_authorization", default=None)
"""The `Authorization` header of the request in hand: what a host that is reached over HTTP is shown."""
HOST_UNAVAILABLE = "HOST_UNAVAILABLE"
"""Error code of a Run that the host did not take."""

logger = logging.getLogger("superbiz.host")


class HostedRunManager(RunManager):
    """A RunManager whose Runs are carried by the host. `url` is the host's address; None: this process, without HTTP."""

    def __init__(
        self, app: App, *, url: str | None = None, connect: Callable[..., LangGraphClient] = get_client
    ) -> None:
        super().__init__(app, max_runs=0)
        self._url = url
        self._connect = connect
        self._cancels: set[asyncio.Task[None]] = set()

    async def _start(self, query: str, question: Question, context: DiagnosisContext) -> RunRecord:
        if self.stopping.is_set():
            raise ServiceStopping
        resources = self._app.resources
        now, run_id = resources.clock.now(), resources.ids.new_id()
        origin = RunOrigin(run_id, question.owner, alone_in_session=True)
        record = RunRecord(
            run_id=run_id,
            query=query,
            session_id=question.session_id,
            internal_state=RunState.CREATED,
            created_at=now,
            # Free at once, so that a cancel before it has begun ends it.
            lease_until=now,
            owner=question.owner,
            session_lock=session_lock(origin, question.session_id),
            context=context.model_dump(mode="json"),
        )
        if not await self._created(record):
            raise await self._session_has_run(question)
        try:
            await self._begin(record, context)
        except Exception as error:
            logger.error("the host did not take a run: %s", type(error).__name__)
            await self._end(run_id, RunState.FAILED, HOST_UNAVAILABLE, RunState.CREATED)
            raise ApiError(503, ApiErrorCode.HOST_UNAVAILABLE, "the host does not take the run; try again") from None
        return record

    async def _created(self, record: RunRecord) -> bool:
        try:
            return await self._app.runs.create(record)
        except SessionBusy:
            return False

    async def _begin(self, record: RunRecord, context: DiagnosisContext) -> None:
        metadata = {"owner": record.owner or LOCAL_CALLER, "session_id": record.session_id}
        async with self._client() as client:
            await client.threads.create(thread_id=record.run_id, graph_id="chat", metadata=metadata)
            await client.runs.create(
                record.run_id,
                "chat",
                input={"query": record.query, "session_id": record.session_id},
                context=context.model_dump(mode="json", exclude_none=True),
                metadata=metadata,
                durability="sync",
            )

    def _client(self) -> LangGraphClient:
        authorization = AUTHORIZATION.get() if self._url else None
        return self._connect(url=self._url, headers={"authorization": authorization} if authorization else None)

    async def cancel(self, run_id: str) -> RunRecord | None:
        """Forbid what comes next in the store, then have the host interrupt what is in flight (R119, R120)."""
        record = await super().cancel(run_id)
        if record is not None and record.internal_state is RunState.CANCEL_REQUESTED:
            self._keep(self._cancel_on_host(run_id))
        return record

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)

    async def _cancel_on_host(self, run_id: str) -> None:
        """Interrupt the host's runs; the Run's own node marks the end, and where none was at work, this does."""
        try:
            async with self._client() as client:
                for run in await client.runs.list(run_id):
                    if run["status"] in {"pending", "running"}:
                        await client.runs.cancel(run_id, run["run_id"], wait=True, action="interrupt")
            await self._end(run_id, RunState.CANCELLED, "CANCELLED", RunState.CANCEL_REQUESTED)
        except Exception as error:
            # The mark in the store stops the Run at its next step all the same.
            logger.warning("the host did not cancel a run: %s", type(error).__name__)

    async def _end(self, run_id: str, state: RunState, code: str, expected: RunState) -> None:
        app = self._app
        now = app.resources.clock.now()
        await end_without_result(app.runs, app.journal, run_id, state, code, now, expected=frozenset({expected}))
        self.changes.moved(run_id)

    async def close(self) -> None:
        """Begin nothing more; the Runs are the host's."""
        await super().close()
        for task in self._cancels:
            task.cancel()
        if self._cancels:
            await asyncio.wait(self._cancels, timeout=5)
