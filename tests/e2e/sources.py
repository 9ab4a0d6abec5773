"""Everything that one Run has left anywhere, read as plainly as it lies there: SQL rows, Redis keys, checkpoints, text."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from service.app import App
from service.settings import Settings
from tests.http_service import Event
from tools.contract import CanonicalRecord

_JSON = {
    "diagnosis_run": ("published_result", "fallback", "usage", "context"),
    "diagnosis_trace_event": ("fields",),
    "agent_step": ("tool_call_ids",),
    "run_archive": ("payload",),
}
LOG_SECONDS = 10.0
_ORDER = {"diagnosis_trace_event": "seq", "agent_step": "position", "journal_batch": "key"}


@dataclass(frozen=True)
class Sources:
    """What each source says of the Run `run_id`; rows are as the tables hold them."""

    run_id: str
    question: str
    events: tuple[Event, ...]
    sse: str
    log: tuple[str, ...]
    runs: tuple[dict[str, Any], ...]
    trace: tuple[dict[str, Any], ...]
    last_seq: int
    steps: tuple[dict[str, Any], ...]
    batches: tuple[str, ...]
    archive: Mapping[str, Mapping[str, Any]]
    record_keys: frozenset[str]
    records: Mapping[str, CanonicalRecord]
    chat: Mapping[str, Any]
    diagnosis: Mapping[str, Any]
    """State of the diagnosis below the chat; empty where the Run was none."""
    positions: frozenset[int]
    """Steps that some checkpoint of the Run's thread stands after."""

    @property
    def run(self) -> dict[str, Any]:
        """The row of the Run."""
        return self.runs[0]

    def traced(self, kind: str) -> list[dict[str, Any]]:
        """Fields of the trace events of one type, in order."""
        return [row["fields"] for row in self.trace if row["type"] == kind]

    def streamed(self, kind: str) -> list[Any]:
        """Data of the stream's events of one type, in order."""
        return [event.data["data"] for event in self.events if event.event == kind]

    @property
    def published(self) -> dict[str, Any]:
        """What the row says was published; empty when nothing was."""
        return self.run["published_result"] or self.run["fallback"] or {}


async def log_with_end(log: Path, events: list[Event]) -> str:
    """Return what a service has logged once it has told the end of the Run of a stream: that comes after the stream's end.

    Only whoever reads that line misses it, so no wait for it fails.
    """
    end, latest = f"run_ended run_id={_run_id(events)} ", time.monotonic() + LOG_SECONDS
    while end not in (told := await asyncio.to_thread(log.read_text)) and time.monotonic() < latest:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return told


def _run_id(events: list[Event]) -> str:
    return str(events[0].data["data"]["run_id"])


async def collect(app: App, question: str, events: list[Event], sse: str, log: str) -> Sources:
    """Read, through an app of one's own, what the Run of a stream has left; the service may be running beside."""
    run_id, settings = _run_id(events), app.settings
    engine = app.journal._engine
    runs = await _rows(engine, "diagnosis_run", run_id)
    steps = await _rows(engine, "agent_step", run_id)
    archive: dict[str, dict[str, Any]] = {}
    for row in await _rows(engine, "run_archive", run_id):
        archive.setdefault(row["kind"], {})[row["key"]] = row["payload"]
    keys = await _record_keys(engine, settings, run_id)
    named = {key.removeprefix(f"harness:canonical:{run_id}:") for key in keys}
    held = {name: await app.resources.canonical.get(run_id, name) for name in named}
    chat, diagnosis, positions = await _checkpoints(app, str(runs[0]["thread_id"]))
    return Sources(
        run_id=run_id,
        question=question,
        events=tuple(events),
        sse=sse,
        log=tuple(log.splitlines()),
        runs=tuple(runs),
        trace=tuple(await _rows(engine, "diagnosis_trace_event", run_id)),
        last_seq=(await _rows(engine, "journal_cursor", run_id))[0]["last_seq"],
        steps=tuple(steps),
        batches=tuple(row["key"] for row in await _rows(engine, "journal_batch", run_id)),
        archive=archive,
        record_keys=frozenset(keys),
        records={name: record for name, record in held.items() if record is not None},
        chat=chat,
        diagnosis=diagnosis,
        positions=positions,
    )


async def _rows(engine: AsyncEngine, table: str, run_id: str) -> list[dict[str, Any]]:
    order = f" ORDER BY {_ORDER[table]}" if table in _ORDER else ""
    async with engine.connect() as connection:
        found = await connection.execute(text(f"SELECT * FROM {table} WHERE run_id = :id{order}"), {"id": run_id})
        return [_plain(table, dict(row._mapping)) for row in found]


def _plain(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """SQLite gives JSON columns as text, PostgreSQL as values."""
    for name in _JSON.get(table, ()):
        if isinstance(row[name], str):
            row[name] = json.loads(row[name])
    return row


async def _record_keys(engine: AsyncEngine, settings: Settings, run_id: str) -> list[str]:
    """List the keys behind the store's back: it cannot list a Run itself (R14)."""
    prefix = f"harness:canonical:{run_id}:"
    if settings.redis_url is not None:
        async with Redis.from_url(settings.redis_url.get_secret_value(), decode_responses=True) as server:
            return [key async for key in server.scan_iter(f"{prefix}*")]
    async with engine.connect() as connection:
        wanted = text("SELECT key FROM canonical_record WHERE key LIKE :keys")
        return list((await connection.execute(wanted, {"keys": f"{prefix}%"})).scalars())


async def _checkpoints(app: App, thread_id: str) -> tuple[dict[str, Any], dict[str, Any], frozenset[int]]:
    assert app.checkpointer is not None
    namespaces, positions = set[str](), set[int]()
    async for each in app.checkpointer.alist({"configurable": {"thread_id": thread_id}}):
        namespaces.add(each.config["configurable"]["checkpoint_ns"])
        position = each.checkpoint["channel_values"].get("position")
        positions |= {position["step"]} if position else set()
    inner = [namespace for namespace in namespaces if namespace.startswith("diagnosis:")]
    assert len(inner) <= 1, "a run has one diagnosis"
    states = []
    for namespace in ["", *inner]:
        config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace}}
        states.append(dict((await app.chat.aget_state(config)).values))
    return states[0], (states[1] if inner else {}), frozenset(positions)
