"""A loopback server that answers `query_range` as Loki's documentation says, errors included."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.logql import ParseError, parse

MAX_QUERY_NANOSECONDS = 721 * 3600 * 10**9
TOO_MANY = "too many outstanding requests"
TIMED_OUT = (
    "request timed out, decrease the duration of the request or add more label matchers (prefer exact match over "
    "regex match) to reduce the amount of data processed"
)


@dataclass
class Stream:
    labels: dict[str, str]
    values: list[tuple[int, str]] = field(default_factory=list)


class Refusal(Exception):
    """An answer that is no success: status and plain text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass
class LokiServer:
    """Streams by tenant; without multi-tenancy the only tenant is `fake`, as in Loki."""

    tenants: dict[str, list[Stream]]
    multi_tenant: bool = False
    max_entries: int = 5000
    token: str | None = None
    basic: tuple[str, str] | None = None
    fault: Refusal | None = None
    warnings: list[str] = field(default_factory=list)
    port: int = 0
    requests: list[dict[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, method: str, target: str, headers: Mapping[str, str]) -> dict[str, Any]:
        parts = urlsplit(target)
        if parts.path != "/loki/api/v1/query_range":
            raise Refusal(404, "404 page not found")
        if method not in ("GET", "POST"):
            raise Refusal(405, "method not allowed")
        streams = self._signed_in(headers)
        if self.fault is not None:
            raise self.fault
        params = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        self.requests.append(params)
        return self._success(self._select(streams, params))

    def _signed_in(self, headers: Mapping[str, str]) -> list[Stream]:
        wanted = f"Bearer {self.token}" if self.token else None
        if self.basic:
            wanted = "Basic " + base64.b64encode(":".join(self.basic).encode()).decode()
        if wanted is not None and headers.get("authorization") != wanted:
            raise Refusal(401, "unauthorized")  # by the gateway; authorization is no part of Loki
        if not self.multi_tenant:
            return self.tenants["fake"]
        tenant = headers.get("x-scope-orgid")
        if not tenant:
            raise Refusal(401, "no org id")
        return [stream for name in tenant.split("|") for stream in self.tenants.get(name, [])]

    def _select(self, streams: list[Stream], params: dict[str, str]) -> list[Stream]:
        try:
            query = parse(params.get("query", ""))
            start, end, limit = int(params["start"]), int(params["end"]), int(params.get("limit", "100"))
        except ParseError as error:
            raise Refusal(400, str(error)) from None
        except (KeyError, ValueError):
            raise Refusal(400, "invalid parameter") from None
        if end <= start:
            raise Refusal(400, f"invalid query, through < from ({end} < {start})")
        if end - start > MAX_QUERY_NANOSECONDS:
            raise Refusal(400, "the query time range exceeds the limit (query length: too long, limit: 30d1h)")
        if limit <= 0:
            raise Refusal(400, "limit must be a positive value")
        if limit > self.max_entries:
            raise Refusal(
                400,
                f"max entries limit per query exceeded, limit > max_entries_limit_per_query ({limit} > {self.max_entries})",
            )
        found = [
            (moment, line, number)
            for number, stream in enumerate(streams)
            for moment, line in stream.values
            if start <= moment < end and query.passes(line, stream.labels)
        ]
        backward = params.get("direction", "backward").lower() == "backward"
        found.sort(key=lambda item: item[0], reverse=backward)
        kept: dict[int, Stream] = {}
        for moment, line, number in found[:limit]:
            kept.setdefault(number, Stream(streams[number].labels)).values.append((moment, line))
        return [kept[number] for number in sorted(kept)]

    def _success(self, streams: list[Stream]) -> dict[str, Any]:
        result = [
            {"stream": stream.labels, "values": [[str(moment), line] for moment, line in stream.values]}
            for stream in streams
        ]
        stats = {"summary": {"bytesProcessedPerSecond": 0, "execTime": 0.001, "totalLinesProcessed": 1}}
        body = {"status": "success", "data": {"resultType": "streams", "result": result, "stats": stats}}
        return body | ({"warnings": self.warnings} if self.warnings else {})

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = head[0].split(" ")
            headers = {
                key.lower(): value.strip() for key, _, value in (line.partition(":") for line in head[1:] if line)
            }
            self.headers.append(headers)
            try:
                status, kind, text = (
                    200,
                    "application/json; charset=UTF-8",
                    json.dumps(self.answer(method, target, headers)),
                )
            except Refusal as refusal:
                status, kind, text = refusal.status, "text/plain; charset=utf-8", refusal.text + "\n"
            body = text.encode("utf-8", "surrogatepass")
            lines = [
                f"HTTP/1.1 {status} X",
                f"Content-Type: {kind}",
                f"Content-Length: {len(body)}",
                "Connection: close",
            ]
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def loki_server(streams: list[Stream] | None = None, **options: Any) -> AsyncIterator[LokiServer]:
    """Serve the streams of the tenant `fake`, or `tenants`."""
    options.setdefault("tenants", {"fake": streams or []})
    loki = LokiServer(**options)
    server = await asyncio.start_server(loki.handle, "127.0.0.1", 0, limit=2**20)
    loki.port = server.sockets[0].getsockname()[1]
    try:
        yield loki
    finally:
        server.close()
