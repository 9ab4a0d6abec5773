"""From run store and journal to a bundle (R67)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from graph.contract import TraceEventType
from nodes.ports import AgentStepRow, ArchiveEntry, RunRecord
from service.replay.bundle import Bundle, Entry, numbered
from service.replay.format import FORMAT, payload_model
from service.replay.text import BundleError
from service.store.rows import TraceRow
from service.store.status import TERMINAL

IMPORTED = "imported"
"""Kind of the archive entry that marks a Run that came from a bundle."""
FROM_OUTSIDE = frozenset({TraceEventType.RUN_CANCEL_REQUESTED})
"""Events that no node writes."""
RELEASING = ("release", "release_answer")
"""Nodes that write the end of a Run; the same event of any other place came from outside."""


class ReadsJournal(Protocol):
    """What export reads of a journal; every journal of this service has it."""

    async def trace(self, run_id: str, after: int = 0) -> tuple[TraceRow, ...]:
        """Return trace events in order."""

    async def steps(self, run_id: str) -> tuple[AgentStepRow, ...]:
        """Return agent steps in order."""

    async def archive(self, run_id: str) -> tuple[ArchiveEntry, ...]:
        """Return everything archived of a Run."""


async def export_run(record: RunRecord, journal: ReadsJournal) -> Bundle:
    """Make the bundle of a finished Run. Raises BundleError: it still runs, or its archive has expired."""
    run_id = record.run_id
    if record.internal_state not in TERMINAL or record.ended_at is None:
        raise BundleError(f"run {run_id}: has not ended; only a finished run can be exported")
    archive = [entry for entry in await journal.archive(run_id) if entry.kind != IMPORTED]
    if not archive:
        raise BundleError(f"run {run_id}: its archive has expired (SUPERBIZ_ARCHIVE_DAYS)")
    entries = [Entry(each.kind, each.key, each.payload) for each in archive]
    steps = {entry.key: entry.payload for entry in entries if entry.kind == "step"}
    if not steps:
        raise BundleError(f"run {run_id}: was recorded by a version whose archives cannot be replayed")
    unknown = next((each for each in entries if payload_model(each.kind, each.key) is None), None)
    if unknown is not None:
        raise BundleError(f"run {run_id}: {unknown.name}: {FORMAT} knows no such entry")
    session = next((each.payload["session_id"] for each in entries if each.key == "question"), None)
    entries.append(Entry("run", "run", _run(record, session)))
    entries += _trace(await journal.trace(run_id), steps)
    entries += _agent_steps(await journal.steps(run_id))
    return Bundle.of(run_id, entries)


def _run(record: RunRecord, session_id: str | None) -> dict[str, Any]:
    return {
        "run_id": record.run_id,
        "query": record.query,
        "session_id": session_id,
        "intent": record.intent.value if record.intent else None,
        "internal_state": record.internal_state.value,
        "release_outcome": record.release_outcome.value,
        "published_result": _plain(record.published_result),
        "fallback": _plain(record.fallback),
        "stop_reason": record.stop_reason,
        "error_code": record.error_code,
        "total_token_count": record.total_token_count,
        "usage": dict(record.usage),
        "created_at": record.created_at,
        "ended_at": record.ended_at,
        "forked_from": record.forked_from,
        "has_execution": record.execution_id is not None,
    }


def _plain(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return dict(value) if value is not None else None


def _trace(rows: Sequence[TraceRow], steps: Mapping[str, Mapping[str, Any]]) -> Iterator[Entry]:
    for row, node in zip(rows, _writers(rows, steps), strict=True):
        payload = {
            "seq": row.seq,
            "at": row.at,
            "type": row.type.value,
            "fields": dict(row.fields),
            "fields_refused": row.fields_refused,
            "node": node,
        }
        yield Entry("trace", numbered(row.seq), payload)


def _writers(rows: Sequence[TraceRow], steps: Mapping[str, Mapping[str, Any]]) -> Iterator[str | None]:
    """Say for each event which node execution wrote it: each told how many it wrote, in the order of the path."""
    owners = iter([key for key in sorted(steps) for _ in range(steps[key]["events"])])
    node = next(owners, None)
    for row in rows:
        ended_outside = row.type is TraceEventType.RUN_ENDED and not (node or "").endswith(RELEASING)
        if node is None or row.type in FROM_OUTSIDE or ended_outside:
            yield None
            continue
        yield node
        node = next(owners, None)


def _agent_steps(rows: Iterable[AgentStepRow]) -> Iterator[Entry]:
    for number, row in enumerate(rows, start=1):
        payload = {
            "round": row.round_,
            "kind": row.kind,
            "tool_call_ids": list(row.tool_call_ids),
            "token_count": row.token_count,
        }
        yield Entry("agent_step", numbered(number), payload)
