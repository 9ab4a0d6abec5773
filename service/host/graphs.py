"""Graph factories for a host. The host brings its own checkpointer.

A host refuses blocking calls: files are read in a worker thread. Catalogue, tools and models are built once per event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from graph.chat import ChatGraph
from graph.diagnosis import DiagnosisGraph, recursion_limit
from service.app import App, Parts, build_parts, open_runs
from service.host.threads import opened_here
from service.settings import load_settings

_parts: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Parts]] = WeakKeyDictionary()


@asynccontextmanager
async def diagnosis() -> AsyncIterator[DiagnosisGraph]:
    """Give the diagnosis graph over the configured resources. Raises CatalogError, SettingsError, StorageError."""
    async with _system() as app:
        yield app.graph.with_config(recursion_limit=recursion_limit(app.settings.budget()))


@asynccontextmanager
async def chat() -> AsyncIterator[ChatGraph]:
    """Give the chat graph over the configured resources. Raises CatalogError, SettingsError, StorageError."""
    async with _system() as app:
        yield app.chat.with_config(recursion_limit=recursion_limit(app.settings.budget()))


@asynccontextmanager
async def _system() -> AsyncIterator[App]:
    """Give the system that the service has opened in this event loop, else one for this access."""
    app = opened_here()
    if app is not None:
        yield app
        return
    async with open_runs(await shared_parts(), hosted=True) as app:
        yield app


async def shared_parts() -> Parts:
    """Return this event loop's parts; those that could not be built are tried again at the next access."""
    loop = asyncio.get_running_loop()
    task = _parts.get(loop)
    if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
        task = loop.create_task(asyncio.to_thread(lambda: build_parts(load_settings())))
        _parts[loop] = task
    return await asyncio.shield(task)
