"""A client that never ends its request's head is cut off; one that is slow between requests or with a body is not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from tests.http_service import Served, serving

SECONDS = 0.6


async def connected(served: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = served.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def closed_after(reader: asyncio.StreamReader, begun: float) -> float:
    """Seconds until the server closes, without having said anything."""
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):  # who still writes is told so
            assert await reader.read() == b""
    return time.monotonic() - begun


async def answered(reader: asyncio.StreamReader) -> bytes:
    """Read one answer of the health page."""
    async with asyncio.timeout(20):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        return head


async def test_a_head_that_never_ends_is_cut_off_however_it_trickles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.http.protocol.HEAD_SECONDS", SECONDS)
    async with serving(tmp_path) as served:
        begun = time.monotonic()
        silent, trickling, second = [await connected(served) for _ in range(3)]

        async def trickle(writer: asyncio.StreamWriter) -> None:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            while not writer.is_closing():
                writer.write(b"a")
                await asyncio.sleep(SECONDS / 10)

        # The next request of a connection that was served before has the same time.
        second[1].write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await answered(second[0])).startswith(b"HTTP/1.1 200")
        work = [asyncio.create_task(trickle(writer)) for _, writer in (trickling, second)]
        try:
            for reader, _ in (silent, trickling, second):
                assert await closed_after(reader, begun) >= SECONDS * 0.9
        finally:
            for task in work:
                task.cancel()
            for _, writer in (silent, trickling, second):
                writer.close()
        async with served.client() as client:
            assert (await client.get("/healthz")).status_code == 200


async def test_a_kept_connection_and_a_slow_body_outlive_the_time_for_a_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.http.protocol.HEAD_SECONDS", SECONDS)
    async with serving(tmp_path) as served:
        reader, writer = await connected(served)
        for _ in range(2):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert (await answered(reader)).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(SECONDS * 2)
        body = b'{"Id": "s", "Question": ""}'
        head = "POST /api/chat HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
        await asyncio.sleep(SECONDS * 2)
        writer.write(body[5:])
        assert (await answered(reader)).startswith(b"HTTP/1.1 400")
        writer.close()
