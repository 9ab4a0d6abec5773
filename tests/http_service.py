"""The service over real TCP in this process, and clients for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from nodes.ports import RunRecord
from service.http.app import create_app, opened_service
from service.http.auth import Tokens, parse_tokens
from service.http.server import Server, address_of, bind, server_config
from service.http.service import Service
from service.settings import Settings
from tests.data import ROOT

SHOP = ROOT / "examples" / "shop" / "superbiz.toml"
QUESTION = "14:10 左右开始大量用户结算失败，订单一直是待支付，为什么？"
ANN, BOB = "ann-token-0123456789", "bob-token-9876543210"
TOKENS = parse_tokens([f"ann:{ANN}", f"bob:{BOB}"], "SUPERBIZ_API_TOKENS")


@dataclass(frozen=True)
class Served:
    url: str
    service: Service

    def client(self, token: str | None = None, **more: Any) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60, **more)


@asynccontextmanager
async def serving(
    folder: Path, *, tokens: Tokens | None = None, env: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[Served]:
    """Serve on a free loopback port, with the offline model over the example unless told otherwise."""
    configured = Settings(**({"home": folder / "home", "catalog": SHOP, "stop_seconds": 2.0} | settings))
    listener = bind("127.0.0.1", 0)
    async with opened_service(configured, env=env or {}) as service:
        app = create_app(configured, tokens=tokens, service=service)
        server = Server(server_config(app, configured), service.manager)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield Served(address_of(listener), service)
        finally:
            server.should_exit = True
            await running


@dataclass
class Event:
    """One server-sent event as its lines say, or a comment."""

    id: str = ""
    event: str = ""
    data: Any = None
    comment: str = ""


@dataclass
class Stream:
    """Reads an event stream by the rules of the standard, strictly."""

    response: httpx.Response
    retry: int | None = None
    lines: list[str] = field(default_factory=list)

    async def events(self, *, comments: bool = False) -> AsyncIterator[Event]:
        now, data = Event(), list[str]()
        async for line in self.response.aiter_lines():
            self.lines.append(line)
            name, colon, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line:
                if data:
                    now.data = json.loads("\n".join(data))
                    yield now
                now, data = Event(), []
            elif line.startswith(":"):
                if comments:
                    yield Event(comment=value)
            elif name == "data":
                data.append(value)
            elif name == "retry":
                self.retry = int(value)
            else:
                assert colon, line
                assert name in {"id", "event"}, line
                setattr(now, name, value)


@asynccontextmanager
async def watching(client: httpx.AsyncClient, method: str, url: str, **more: Any) -> AsyncIterator[Stream]:
    async with client.stream(method, url, **more) as response:
        if response.status_code != 200:
            await response.aread()
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Stream(response)


async def ask_stream(client: httpx.AsyncClient, question: str = QUESTION, **more: Any) -> list[Event]:
    """Ask, and read the stream to its end."""
    body = {"Question": question, **more.pop("body", {})}
    async with watching(client, "POST", "/api/chat_stream", json=body, **more) as stream:
        return [event async for event in stream.events()]


async def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def ended(served: Served, run_id: str, seconds: float = 60) -> RunRecord:
    """Wait for a Run's end, by the run store."""
    record = await asyncio.wait_for(served.service.manager.wait(run_id), seconds)
    assert record is not None
    return record


@contextmanager
def process(
    folder: Path, log: Path | None = None, module: str = "service", **env: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `superbiz serve` on a free port; give the process and its URL. What is left of it is killed.

    What it writes to stderr is appended to `log`; `module` takes the place of the program.
    """
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SUPERBIZ_")},
        "SUPERBIZ_HOME": str(folder / "home"),
        "SUPERBIZ_CATALOG": str(SHOP),
        **env,
    }
    command = [sys.executable, "-m", module, "serve", "--port", "0"]
    with (
        log.open("a") if log else contextlib.nullcontext() as errors,
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as running,
    ):
        try:
            assert running.stdout is not None
            line = running.stdout.readline()
            assert line.startswith("listening on http://127.0.0.1:"), line
            yield running, line.split()[-1]
        finally:
            running.kill()
