"""A loopback server that behaves, request by request, as a script says: as providers do, well or badly."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class StubServer:
    """Answers the n-th request with the n-th behaviour, then with the last one; keeps what was sent."""

    script: list[Behaviour]
    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lines = head.split("\r\n")[1:]
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.headers.append(headers)
            self.requests.append(json.loads(body) if body else {})
            await self.script[min(len(self.requests), len(self.script)) - 1](writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def stub_server(*script: Behaviour) -> AsyncIterator[StubServer]:
    stub = StubServer(list(script))
    server = await asyncio.start_server(stub.handle, "127.0.0.1", 0)
    stub.port = server.sockets[0].getsockname()[1]
    try:
        yield stub
    finally:
        server.close()


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def raw(data: bytes) -> Behaviour:
    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return behave


def http(body: bytes, status: int = 200, content_type: str = "application/json", **headers: str) -> Behaviour:
    lines = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def cut_off(body: bytes, promised: int, *, reset: bool, status: int = 200) -> Behaviour:
    """Promise more bytes than come; then close, or reset."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {promised}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        await asyncio.sleep(0.05)
        if reset:
            hang_up(writer)

    return behave


def hang_up(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def reset_at_once(writer: asyncio.StreamWriter) -> None:
    hang_up(writer)


async def close_at_once(writer: asyncio.StreamWriter) -> None:
    writer.close()


def slow(seconds: float, then: Behaviour) -> Behaviour:
    async def behave(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        await then(writer)

    return behave


def drip(seconds: float) -> Behaviour:
    """A body that never ends and always moves: no read timeout sees it."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(seconds)

    return behave


def message(content: Any = None, calls: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls is not None else {}), **more}


def call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def completion(
    content: Any = None, calls: Any = None, *, finish: Any = None, usage: Any = "default", **more: Any
) -> dict[str, Any]:
    counted = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18} if usage == "default" else usage
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "stub",
        "choices": [
            {
                "index": 0,
                "message": message(content, calls, **more),
                "finish_reason": finish or ("tool_calls" if calls else "stop"),
            }
        ],
        "usage": counted,
    }


def answer(*args: Any, **kwargs: Any) -> Behaviour:
    return http(json.dumps(completion(*args, **kwargs)).encode())


def error(status: int, code: str = "some_code", **headers: str) -> Behaviour:
    body = {"error": {"message": "PROVIDER-TEXT secret detail", "type": "some_type", "code": code, "param": None}}
    return http(json.dumps(body).encode(), status, **headers)
