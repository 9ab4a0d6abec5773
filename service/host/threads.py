"""The system as this process has opened it for its host, and whether a thread of the host has an active Run (R134)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from graph.contract import RunState
from nodes.harness import thread_lock
from nodes.ports import RunRecord
from service.app import App
from service.store.status import TERMINAL

_opened: list[tuple[asyncio.AbstractEventLoop, App]] = []


@asynccontextmanager
async def opened(app: App) -> AsyncIterator[None]:
    """Share the opened system with the graphs and the authentication of this process."""
    _opened[:] = [(asyncio.get_running_loop(), app)]
    try:
        yield
    finally:
        _opened.clear()


def opened_here() -> App | None:
    """Return the opened system if it belongs to the running event loop."""
    loop = asyncio.get_running_loop()
    return next((app for its_loop, app in _opened if its_loop is loop), None)


async def thread_is_busy(thread_id: str) -> bool:
    """Say whether a second Run on the thread must be refused; never where the host itself lets only one run."""
    app = opened_here()
    if app is None or not app.resources.one_run_per_thread:
        return False
    return await app.runs.holding(thread_lock(thread_id)) is not None or _has_begun(await app.runs.get(thread_id))


def _has_begun(record: RunRecord | None) -> bool:
    """A Run that the service has stored for the host has the thread's id; until it is begun, the host is to begin it."""
    return record is not None and record.internal_state not in {RunState.CREATED, *TERMINAL}
