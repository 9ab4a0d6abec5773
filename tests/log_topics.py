"""The same events in every kind of log store, for the tests that all backends pass alike."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.loki_server import Stream, loki_server
from tests.opensearch import index_of
from tools.catalog import TopicEntry
from tools.logs.backend import LogBackend
from tools.logs.backend_elasticsearch import ElasticsearchBackend
from tools.logs.backend_files import FilesBackend
from tools.logs.backend_loki import LokiBackend

NOW = datetime(2026, 3, 1, 3, 5, tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class Happened:
    """One event of the fixture; `before` is seconds before NOW."""

    before: float
    level: str
    service: str
    instance: str
    message: str
    more: tuple[tuple[str, Any], ...] = ()

    @property
    def epoch(self) -> float:
        return NOW - self.before

    @property
    def stamp(self) -> str:
        return datetime.fromtimestamp(self.epoch, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def as_json(self, time_key: str, roles: bool = True) -> dict[str, Any]:
        named = {"level": self.level, "service": self.service, "instance": self.instance} if roles else {}
        return {time_key: self.stamp} | named | {"message": self.message} | dict(self.more)


@dataclass(frozen=True)
class Topic:
    """A store with the events in it, and how to ask it."""

    entry: TopicEntry
    backend: LogBackend


Store = Callable[[list[Happened], Path, str], AbstractAsyncContextManager[Topic]]


@asynccontextmanager
async def files(events: list[Happened], folder: Path, _: str) -> AsyncIterator[Topic]:
    ordered = sorted(events, key=lambda event: event.epoch)
    lines = [json.dumps(event.as_json("timestamp"), ensure_ascii=False) + "\n" for event in ordered]
    (folder / "app.log").write_text("".join(lines), encoding="utf-8")
    yield Topic(TopicEntry(name="app", path="app.log"), FilesBackend(folder))


def opensearch(mapping: dict[str, Any] | None = None) -> Store:
    @asynccontextmanager
    async def store(events: list[Happened], folder: Path, url: str) -> AsyncIterator[Topic]:
        with index_of(url, [event.as_json("@timestamp") for event in events], mapping) as index:
            entry = TopicEntry(name="app", backend="elasticsearch", url=url, index=index)
            yield Topic(entry, ElasticsearchBackend({}, folder))

    return store


@asynccontextmanager
async def loki_lines(events: list[Happened], folder: Path, _: str) -> AsyncIterator[Topic]:
    """One stream whose lines tell everything."""
    values = [(round(event.epoch * 1000) * 10**6, json.dumps(event.as_json("timestamp"))) for event in events]
    async with loki_server([Stream({"job": "shop"}, values)]) as server:
        entry = TopicEntry(name="app", backend="loki", url=server.url, selector='{job="shop"}')
        yield Topic(entry, LokiBackend({}, folder))


@asynccontextmanager
async def loki_labels(events: list[Happened], folder: Path, _: str) -> AsyncIterator[Topic]:
    """A stream for every level, service and pod; the lines tell the rest."""
    streams: dict[tuple[str, str, str], Stream] = {}
    for event in events:
        key = (event.level, event.service, event.instance)
        labels = {"job": "shop", "level": event.level.lower(), "service_name": event.service, "pod": event.instance}
        line = json.dumps(event.as_json("time", roles=False))
        streams.setdefault(key, Stream(labels)).values.append((round(event.epoch * 1000) * 10**6, line))
    async with loki_server(list(streams.values())) as server:
        entry = TopicEntry(name="app", backend="loki", url=server.url, selector='{job="shop"}')
        yield Topic(entry, LokiBackend({}, folder))


KEYWORDS = {name: {"type": "keyword"} for name in ("level", "service", "instance")} | {"message": {"type": "text"}}
STORES: dict[str, Store] = {
    "files": files,
    "opensearch": opensearch(),
    "opensearch-keywords": opensearch(KEYWORDS),
    "loki-lines": loki_lines,
    "loki-labels": loki_labels,
}
"""A new backend joins here."""
