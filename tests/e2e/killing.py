"""kill -9 of the served process, a restart, and what a client and the backends saw of it (R3, R132, R154)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from service.app import App, open_app
from tests.data import ROOT
from tests.durable import url_of
from tests.e2e.backends import QUESTION, Backends, backends
from tests.e2e.check import Place
from tests.e2e.sources import Sources, collect, log_with_end
from tests.http_service import Event, watching
from tests.redis_server import SERVER_URL, leased_database

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


class Forked:
    """Services that one program forks, one at a time: each has a process of its own, none waits for imports."""

    def __init__(self, program: subprocess.Popen[str], log: Path, variables: dict[str, str]) -> None:
        self._program, self.log = program, log
        self._line = json.dumps({**variables, "LOG": str(log)})
        self.pid = 0

    def start(self) -> str:
        """Start one; return its URL once it listens. The one before it must have ended."""
        assert self._program.stdin is not None
        print(self._line, file=self._program.stdin, flush=True)
        self.pid = int(self._read())
        line = self._read()
        assert line.startswith("listening on http://127.0.0.1:"), (line, self.log.read_text())
        return line.split()[-1]

    def ended(self) -> int:
        """Wait for its end; return how it went."""
        return int(self._read())

    def _read(self) -> str:
        assert self._program.stdout is not None
        return self._program.stdout.readline()


@contextlib.contextmanager
def forked(folder: Path, variables: dict[str, str]) -> Iterator[Forked]:
    """Open the program; what still runs at the end is killed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SUPERBIZ_")}
    with (
        (folder / "program.log").open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.fused_serve"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as program,
    ):
        yield Forked(program, folder / "serve.log", variables)


class Killing:
    """A service that is killed and started again over the same data."""

    def __init__(self, forked: Forked, app: App, both: Backends, fuse: Path) -> None:
        self._forked, self._app, self.both, self._fuse = forked, app, both, fuse
        self._url = ""

    async def start(self) -> None:
        """Start a process; the one before it is gone."""
        self._url = await asyncio.to_thread(self._forked.start)

    def kill(self) -> None:
        """Kill the process from outside."""
        os.kill(self._forked.pid, signal.SIGKILL)

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
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(self._forked.ended) == -signal.SIGKILL, "the process was not killed"
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
        log = await log_with_end(self._forked.log, events)
        sources = await collect(self._app, QUESTION, events, "\n".join(lines), log)
        data = [json.dumps(event.data, ensure_ascii=False).replace(sources.run_id, "RUN") for event in events]
        told = [(e.id.rpartition("/")[2], e.event, text) for e, text in zip(events, data, strict=True)]
        return Outcome(told, sources, *self.both.counts())


@contextlib.asynccontextmanager
async def killing(folder: Path, kind: str) -> AsyncIterator[Killing]:
    """Serve, on a kind of store, an incident whose model and log server stand in this process."""
    with contextlib.ExitStack() as stack:
        redis = f"{SERVER_URL}/{stack.enter_context(leased_database())}" if kind == "postgres" else None
        place = Place(folder / "home", await url_of(kind, "kill"), redis, catalog=folder / "superbiz.toml")
        async with backends(folder) as (both, model), open_app(place.settings(), env={}) as app:
            fuse = folder / "fuse"
            variables = {**place.environment(model), "FUSE": str(fuse)}
            killed = Killing(stack.enter_context(forked(folder, variables)), app, both, fuse)
            await killed.start()
            yield killed
