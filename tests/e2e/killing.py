"""kill -9 of the served process, a restart, and what a client and the backends saw of it (R3, R132, R154)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from service.app import open_app
from tests.e2e.backends import QUESTION, Backends, backends
from tests.e2e.check import Place
from tests.e2e.sources import Sources, collect
from tests.http_service import Event, process, watching

Told = list[tuple[str, str, str]]
"""Place, name and data of the events of one Run; the Run's id is left out."""


@dataclass(frozen=True)
class Outcome:
    """What came of one question: what its client was told, what is left of it, and what the backends were asked."""

    told: Told
    sources: Sources
    model: Counter[str]
    logs: Counter[str]

    @property
    def end(self) -> dict[str, Any]:
        """The Run's end, as its row tells it."""
        names = ("internal_state", "status", "release_outcome", "published_result", "fallback", "usage", "error_code")
        return {name: self.sources.run[name] for name in names}

    @property
    def steps(self) -> list[str]:
        """The journal's steps, such as "0007:execute_tool"."""
        return [key for key in self.sources.batches if key[:4].isdigit()]


class Killing:
    """A service that is killed and started again over the same data."""

    def __init__(self, place: Place, both: Backends, model: dict[str, str]) -> None:
        self._place, self.both = place, both
        self._log, self._fuse = place.home.parent / "serve.log", place.home.parent / "fuse"
        self._env = {**place.environment(model), "FUSE": str(self._fuse)}
        self._stack = contextlib.ExitStack()
        self._running: subprocess.Popen[str] | None = None
        self._url = ""

    async def start(self) -> None:
        """Start a process; the one before it is gone."""
        self._stack.close()
        entered = process(self._place.home.parent, self._log, "tests.e2e.fused_serve", **self._env)
        self._running, self._url = await asyncio.to_thread(self._stack.enter_context, entered)

    def stop(self) -> None:
        """Kill what still runs."""
        self._stack.close()

    def kill(self) -> None:
        """Kill the process from outside."""
        assert self._running is not None
        self._running.kill()

    async def undisturbed(self, session: str) -> Outcome:
        """Ask, and read the stream to its end."""
        lines, events = list[str](), list[Event]()
        await self._read("POST", "/api/chat_stream", events, lines, json={"Id": session, "Question": QUESTION})
        return await self._outcome(events, lines)

    async def disturbed(self, session: str, fuse: str = "", meanwhile: Callable[[], Any] | None = None) -> Outcome:
        """Ask; the process dies by its fuse, or by what is done `meanwhile`. Start again, and read the rest."""
        lines, events = list[str](), list[Event]()
        if fuse:
            self._fuse.write_text(fuse)
        other = asyncio.ensure_future(meanwhile()) if meanwhile else None
        with contextlib.suppress(httpx.TransportError):
            await self._read("POST", "/api/chat_stream", events, lines, json={"Id": session, "Question": QUESTION})
        if other is not None:
            await other
        assert self._running is not None
        assert await asyncio.to_thread(self._running.wait, 30) == -9, "the process was not killed"
        await self.start()
        run_id = events[0].data["data"]["run_id"] if events else await self._active(session)
        headers = {"Last-Event-ID": events[-1].id} if events else {}
        await self._read("GET", f"/api/runs/{run_id}/events", events, lines, headers=headers)
        return await self._outcome(events, lines)

    async def _read(self, method: str, path: str, events: list[Event], lines: list[str], **more: Any) -> None:
        async with (
            httpx.AsyncClient(base_url=self._url, timeout=60) as client,
            watching(client, method, path, **more) as stream,
        ):
            stream.lines = lines
            async for event in stream.events():
                events.append(event)

    async def _active(self, session: str) -> str:
        """A client that was told nothing at all looks for the Run in its session."""
        async with httpx.AsyncClient(base_url=self._url, timeout=60) as client:
            answer = await client.get(f"/api/chat/session/{session}")
            return str(answer.json()["data"]["active_run_id"])

    async def _outcome(self, events: list[Event], lines: list[str]) -> Outcome:
        async with open_app(self._place.settings(), env={}) as app:
            sources = await collect(app, QUESTION, events, "\n".join(lines), self._log.read_text())
        data = [json.dumps(event.data, ensure_ascii=False).replace(sources.run_id, "RUN") for event in events]
        told = [(e.id.rpartition("/")[2], e.event, text) for e, text in zip(events, data, strict=True)]
        return Outcome(told, sources, *self.both.counts())


@contextlib.asynccontextmanager
async def killing(folder: Path, database: str | None) -> AsyncIterator[Killing]:
    """Serve an incident whose model and log server stand in this process."""
    async with backends(folder) as (both, env):
        place = Place(folder / "home", database, catalog=folder / "superbiz.toml")
        killed = Killing(place, both, env)
        await killed.start()
        try:
            yield killed
        finally:
            killed.stop()
