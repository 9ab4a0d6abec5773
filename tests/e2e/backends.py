"""A model endpoint and a log server in the test process, over real TCP, that count what is asked and can be made slow."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodes.prompts import prompt
from tests.loki_server import LokiServer, Stream, loki_server
from tests.redis_server import Line, line
from tests.scenes import conclusion
from tests.stub_model_server import call, completion

QUESTION = "why do orders fail?"
LOG = (
    (1772334301, "ERROR order-service connection timeout to redis-01"),
    (1772334330, "ERROR order-service pool exhausted"),
)
CATALOG = """
now = "2026-03-01T03:10:00Z"
[[topic]]
name = "app"
description = "the shop's services"
backend = "loki"
url = "{url}"
selector = '{{job="shop"}}'
"""


def _search(call_id: str, query: str, *previous: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {"input": {"topic": "app", "query": query, "lookback_minutes": 60}}
    if previous:
        arguments["previous_observation"] = {"tool_call_id": previous[0], "information_gain": previous[1]}
    return completion(calls=[call(call_id, "query_logs", json.dumps(arguments))])


ANSWERS = (
    _search("k1", "timeout"),
    _search("k2", "no-such-word", "k1", "GAINED"),
    completion(conclusion("k1")["text"]),
)
"""Of the Diagnosis Agent, by how many results the conversation holds."""


@dataclass
class Backends:
    """What was asked of whom: names of model calls, and queries of the log server."""

    loki: LokiServer
    line: Line
    """The way to the log server; its `delay` makes it slow."""
    model_url: str = ""
    asked: list[str] = field(default_factory=list)
    slow: dict[str, float] = field(default_factory=dict)
    """Seconds by name of a model call."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when something slow has been asked."""

    def counts(self) -> tuple[Counter[str], Counter[str]]:
        """How often each was asked, and start counting anew."""
        counted = Counter(self.asked), Counter(query["query"] for query in self.loki.requests)
        self.asked.clear()
        self.loki.requests.clear()
        return counted

    async def linger(self, name: str) -> None:
        """Wait as long as what is asked is slow, once."""
        seconds = self.slow.pop(name, 0.0)
        if seconds:
            self.arrived.set()
            await asyncio.sleep(seconds)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request as the conversation it holds demands."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.partition("content-length:")[2].split("\r\n")[0])
            name, answer = _answer(json.loads(await reader.readexactly(length)))
            self.asked.append(name)
            await self.linger(name)
            body = json.dumps(answer).encode()
            lines = [
                "HTTP/1.1 200 X",
                "content-type: application/json",
                f"content-length: {len(body)}",
                "connection: close",
            ]
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _answer(request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    messages = request["messages"]
    if messages[0]["content"].startswith(prompt("intent_router", "en")[:100]):
        return "INTENT_ROUTER", completion('{"intent": "DIAGNOSIS"}')
    if not request.get("tools"):
        return "SEMANTIC_GUARD", completion('{"verdict": "SUPPORTED", "unsupported_analysis_ids": []}')
    done = sum(message["role"] == "tool" for message in messages)
    return f"DIAGNOSIS_AGENT/{done + 1}", ANSWERS[done]


@asynccontextmanager
async def backends(folder: Path) -> AsyncIterator[tuple[Backends, dict[str, str]]]:
    """Serve both; give them and the environment of a service that uses them."""
    values = [(seconds * 10**9, line) for seconds, line in LOG]
    async with loki_server([Stream({"job": "shop"}, values)]) as loki, line(("127.0.0.1", loki.port)) as way:
        both = Backends(loki, way)
        server = await asyncio.start_server(both.handle, "127.0.0.1", 0)
        both.model_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        catalog = folder / "superbiz.toml"
        catalog.write_text(CATALOG.format(url=f"http://127.0.0.1:{way.port}"), encoding="utf-8")
        env = {
            "SUPERBIZ_CATALOG": str(catalog),
            "SUPERBIZ_MODEL": "openai:counting",
            "SUPERBIZ_API_KEY": "k",
            "SUPERBIZ_BASE_URL": both.model_url,
            "SUPERBIZ_LANGUAGE": "en",
            "SUPERBIZ_LEASE_SECONDS": "1",
        }
        try:
            yield both, env
        finally:
            server.close()
