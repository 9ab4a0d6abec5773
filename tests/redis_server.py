"""Redis for tests: a database of one's own on the running server, servers of one's own, a line that can fail.

The running server is found by SUPERBIZ_TEST_REDIS_URL, default `redis://127.0.0.1:6379`; where nothing answers, tests that
need it are skipped and say so. A test leases one of the databases 1-15 that hold nothing, so that suites side by side do
not meet and nobody's data is lost.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
import redis

SERVER_URL = os.environ.get("SUPERBIZ_TEST_REDIS_URL", "redis://127.0.0.1:6379").rstrip("/")
LEASE_SECONDS = 300
_LEASE = "superbiz:test:lease"
_GIVE_BACK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"


def place() -> tuple[str, int]:
    """Host and port of the running server."""
    parts = urlsplit(SERVER_URL)
    return parts.hostname or "127.0.0.1", parts.port or 6379


def require_redis() -> None:
    """Skip the calling test where no server answers."""
    try:
        with redis.Redis.from_url(SERVER_URL, socket_connect_timeout=2, socket_timeout=2) as client:
            client.ping()
    except (redis.RedisError, OSError) as error:
        pytest.skip(f"no Redis at SUPERBIZ_TEST_REDIS_URL ({type(error).__name__})")


@contextmanager
def leased_database() -> Iterator[int]:
    """Lend the number of a database that is empty and that no other test uses; what is left in it is deleted."""
    require_redis()
    owner = uuid.uuid4().hex
    with redis.Redis.from_url(SERVER_URL) as client:
        number = _lease(client, owner)
        try:
            yield number
        finally:
            _clear(number)
            client.eval(_GIVE_BACK, 1, f"{_LEASE}:{number}", owner)


def _lease(client: redis.Redis, owner: str) -> int:
    for _ in range(100):
        for number in range(15, 0, -1):
            if client.set(f"{_LEASE}:{number}", owner, nx=True, ex=LEASE_SECONDS):
                if _is_empty(number):
                    return number
                client.eval(_GIVE_BACK, 1, f"{_LEASE}:{number}", owner)
        time.sleep(0.1)
    pytest.skip("no free database on the Redis server")


def _is_empty(number: int) -> bool:
    """Somebody's data is left alone."""
    with redis.Redis.from_url(f"{SERVER_URL}/{number}") as client:
        return client.dbsize() == 0


def _clear(number: int) -> None:
    with redis.Redis.from_url(f"{SERVER_URL}/{number}") as client:
        client.flushdb()


Fault = Literal[
    "", "refuse", "swallow requests", "swallow replies", "cut before request", "cut before reply", "cut reply"
]


@dataclass
class Line:
    """A TCP proxy with one fault at a time; `delay` seconds pass before each piece in either direction."""

    upstream: tuple[str, int]
    port: int = 0
    fault: Fault = ""
    delay: float = 0.0
    once: bool = False
    """True: the fault is over when it has struck."""
    on_request: Callable[[], None] | None = None
    """Called at each piece from the client, before it is passed on."""
    requests: list[bytes] = field(default_factory=list)
    replies: list[bytes] = field(default_factory=list)
    accepted: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def sent(self, word: str) -> int:
        """How many requests held a command word, whether or not they were let through."""
        return sum(request.count(f"\r\n{word}\r\n".encode()) for request in self.requests)

    def cut(self) -> None:
        """Cut every open connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.fault == "refuse":
            writer.transport.abort()
            return
        upstream_reader, upstream_writer = await asyncio.open_connection(*self.upstream)
        self._writers |= {writer, upstream_writer}
        back = asyncio.create_task(self._pump(upstream_reader, writer, self.replies))
        self._tasks.add(back)
        try:
            await self._pump(reader, upstream_writer, self.requests)
        finally:
            for each in (writer, upstream_writer):
                each.transport.abort()
                self._writers.discard(each)
            back.cancel()
            with suppress(asyncio.CancelledError):
                await back
            self._tasks.discard(back)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: list[bytes]) -> None:
        fault: Fault = ""
        with suppress(OSError):
            while data := await reader.read(65536):
                seen.append(data)
                fault = self._strikes(is_request=seen is self.requests)
                await asyncio.sleep(self.delay)
                if fault.startswith("swallow"):
                    continue
                if fault != "cut before request" and fault != "cut before reply":
                    writer.write(data[: len(data) // 2] if fault else data)
                    await writer.drain()
                if fault:
                    break
        writer.transport.abort() if fault.startswith("cut before") else writer.close()

    def _strikes(self, *, is_request: bool) -> Fault:
        """Return the fault if it is one of this direction."""
        if is_request and self.on_request is not None:
            self.on_request()
        fault = self.fault if self.fault and self.fault.endswith(("request", "requests")) is is_request else ""
        if fault and self.once:
            self.fault = ""
        return fault


@asynccontextmanager
async def line(upstream: tuple[str, int] | None = None) -> AsyncIterator[Line]:
    """Open a line to a server, by default the running one."""
    opened = Line(upstream or place())
    server = await asyncio.start_server(opened.serve, "127.0.0.1", 0)
    opened.port = server.sockets[0].getsockname()[1]
    try:
        yield opened
    finally:
        server.close()
        opened.cut()
        await server.wait_closed()
        await asyncio.sleep(0)


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def own_server(folder: Path, *arguments: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server of the test's own on a loopback port; skip where none is installed. Ready when it listens."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    command = [program, "--bind", "127.0.0.1", "--save", "", "--dir", str(folder), "--daemonize", "no", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        _await_listening(process, port)
        yield process
    finally:
        process.kill()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


def _await_listening(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(100):
        if process.poll() is not None:
            said = process.stdout.read().decode(errors="replace") if process.stdout is not None else ""
            pytest.skip(f"redis-server does not start with these options: {said[-200:]}")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    pytest.fail("redis-server does not listen")
