"""Graph factories for LangGraph Server (`langgraph.json`). The server brings its own checkpointer.

Configured by the same `SUPERBIZ_*` variables as the command line. The server refuses blocking calls: files are read in a
worker thread. Catalogue, tools and models are built once per event loop; the database is opened per access.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from graph.diagnosis import DiagnosisGraph, recursion_limit
from service.app import Parts, build_parts, open_runs
from service.settings import load_settings

_parts: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Parts]] = WeakKeyDictionary()


@asynccontextmanager
async def diagnosis() -> AsyncIterator[DiagnosisGraph]:
    """Give the diagnosis graph over the configured resources. Raises CatalogError, SettingsError, StorageError."""
    parts = await shared_parts()
    async with open_runs(parts, host_serialises_threads=True) as app:
        yield app.graph.with_config(recursion_limit=recursion_limit(parts.settings.budget()))


async def shared_parts() -> Parts:
    """Return this event loop's parts; those that could not be built are tried again at the next access."""
    loop = asyncio.get_running_loop()
    task = _parts.get(loop)
    if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
        task = loop.create_task(asyncio.to_thread(lambda: build_parts(load_settings())))
        _parts[loop] = task
    return await asyncio.shield(task)
