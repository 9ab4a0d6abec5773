"""Trace, agent steps and archive in SQL: one transaction per batch, numbered without gaps (R67, R103-R108, R114)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, exists, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlmodel import SQLModel

from graph.contract import TraceEventType
from nodes.ports import AgentStepRow, ArchiveEntry, Clock, JournalBatch
from service.store import models
from service.store.rows import DEFAULT_ARCHIVE_DAYS, TraceRow, archive_cutoff
from service.store.status import plain
from service.store.whitelist import Admitted, admit, safe_code, safe_ids, with_one_end
from tools.database import Database


def _table(model: type[SQLModel]) -> Table:
    return SQLModel.metadata.tables[str(model.__tablename__)]


CURSOR = _table(models.JournalCursor)
BATCH = _table(models.JournalBatchRow)
EVENT = _table(models.DiagnosisTraceEvent)
STEP = _table(models.AgentStep)
ARCHIVE = _table(models.RunArchive)

_ATTEMPTS = 5
"""Tries of a batch whose Run's cursor another writer created at the same moment."""


class SqlJournal:
    """Journal over the tables of `models`. Methods raise SQLAlchemyError (without parameters) when it is out of reach.

    `strict` makes a refused field raise TraceFieldRefused instead of being left out and counted.
    """

    def __init__(
        self, engine: Database, clock: Clock, *, archive_days: float = DEFAULT_ARCHIVE_DAYS, strict: bool = False
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._archive_days = archive_days
        self._strict = strict

    async def write(self, batch: JournalBatch) -> None:
        """Store the batch in one transaction; idempotent by (run_id, key)."""
        events = [admit(event, strict=self._strict) for event in batch.events]
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._engine.write(lambda connection: _write(connection, batch, events))
            except IntegrityError:
                if attempt == _ATTEMPTS:
                    raise
            else:
                return

    async def trace(self, run_id: str, after: int = 0) -> tuple[TraceRow, ...]:
        """Return the Run's events with `seq` greater than `after`, in order."""
        statement = select(EVENT).where(EVENT.c.run_id == run_id, EVENT.c.seq > after).order_by(EVENT.c.seq)
        return tuple(
            TraceRow(row.seq, row.at, TraceEventType(row.type), row.fields, row.fields_refused)
            for row in await self._rows(statement)
        )

    async def steps(self, run_id: str) -> tuple[AgentStepRow, ...]:
        """Return the Diagnosis Agent's rounds in the order they were written (R114)."""
        statement = select(STEP).where(STEP.c.run_id == run_id).order_by(STEP.c.position)
        return tuple(
            AgentStepRow(row.round, row.kind, tuple(row.tool_call_ids), row.token_count)
            for row in await self._rows(statement)
        )

    async def archived(self, run_id: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """Return archived payloads of one kind by key; empty when none or expired."""
        return {entry.key: entry.payload for entry in await self.archive(run_id) if entry.kind == kind}

    async def archived_one(self, run_id: str, kind: str, key: str) -> Mapping[str, Any] | None:
        """Return one archived payload, whatever its age; None when there is none."""
        wanted = (ARCHIVE.c.run_id == run_id) & (ARCHIVE.c.kind == kind) & (ARCHIVE.c.key == key)
        rows = await self._rows(select(ARCHIVE.c.payload).where(wanted))
        return rows[0].payload if rows else None

    async def archive(self, run_id: str) -> tuple[ArchiveEntry, ...]:
        """Return everything archived of a Run, sorted by kind and key; empty when none or expired."""
        newest = select(func.max(ARCHIVE.c.at)).where(ARCHIVE.c.run_id == run_id).scalar_subquery()
        cutoff = archive_cutoff(self._clock.now(), self._archive_days)
        rows = await self._rows(select(ARCHIVE).where(ARCHIVE.c.run_id == run_id, newest > cutoff))
        entries = (ArchiveEntry(row.kind, row.key, row.payload) for row in rows)
        return tuple(sorted(entries, key=lambda entry: (entry.kind, entry.key)))

    def cutoff(self, now: float) -> float:
        """Return the time after which the last entry of an archive must lie for the archive to live."""
        return archive_cutoff(now, self._archive_days)

    async def purge(self, now: float) -> int:
        """Delete the archives of Runs whose last entry is `archive_days` old; return how many entries went.

        Runs, steps and trace stay: they hold no evidence text.
        """
        expired = select(ARCHIVE.c.run_id).group_by(ARCHIVE.c.run_id).having(func.max(ARCHIVE.c.at) <= self.cutoff(now))
        statement = delete(ARCHIVE).where(ARCHIVE.c.run_id.in_(expired))
        return await self._engine.write(lambda connection: connection.execute(statement).rowcount)

    async def _rows(self, statement: Any) -> Sequence[Any]:
        return await self._engine.read(lambda connection: connection.execute(statement).all())


def _write(connection: Connection, batch: JournalBatch, events: Sequence[Admitted]) -> None:
    """Write a batch inside a transaction. The cursor comes first: whoever holds its row is alone with this Run."""
    if any(each.type is TraceEventType.RUN_ENDED for each in events):
        this_run = CURSOR.c.run_id == batch.run_id
        connection.execute(update(CURSOR).where(this_run).values(last_seq=CURSOR.c.last_seq))
        events = with_one_end(events, _has_end(connection, batch.run_id))
    first = _take_numbers(connection, batch, len(events))
    if first is None:
        return
    connection.execute(insert(BATCH).values(run_id=batch.run_id, key=batch.key, at=batch.at))
    if events:
        connection.execute(insert(EVENT), _event_rows(batch, events, first))
    if batch.steps:
        newest = select(func.coalesce(func.max(STEP.c.position), 0)).where(STEP.c.run_id == batch.run_id)
        connection.execute(insert(STEP), _step_rows(batch, connection.execute(newest).scalar_one() + 1))
    if batch.archive:
        # The first value of a (kind, key) stays, whoever writes it again.
        connection.execute(_upsert(connection)(ARCHIVE).on_conflict_do_nothing(), _archive_rows(batch))


def _upsert(connection: Connection) -> Any:
    """Return the `insert` that knows conflicts, of the dialect in use; the other one is not loaded."""
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as upsert
    else:
        from sqlalchemy.dialects.postgresql import insert as upsert  # type: ignore[assignment]
    return upsert


def _take_numbers(connection: Connection, batch: JournalBatch, count: int) -> int | None:
    """Move the Run's cursor on; return the first number for its events, None for a batch that is stored already."""
    this_run = CURSOR.c.run_id == batch.run_id
    known = exists().where(BATCH.c.run_id == batch.run_id, BATCH.c.key == batch.key)
    moved = connection.execute(update(CURSOR).where(this_run, ~known).values(last_seq=CURSOR.c.last_seq + count))
    if moved.rowcount == 0:
        if connection.execute(select(known)).scalar():
            return None
        connection.execute(insert(CURSOR).values(run_id=batch.run_id, last_seq=count))
        return 1
    if count == 0:
        return 0
    last: int = connection.execute(select(CURSOR.c.last_seq).where(this_run)).scalar_one()
    return last - count + 1


def _has_end(connection: Connection, run_id: str) -> bool:
    told = select(EVENT.c.seq).where(EVENT.c.run_id == run_id, EVENT.c.type == TraceEventType.RUN_ENDED.value)
    return connection.execute(told).first() is not None


def _event_rows(batch: JournalBatch, events: Sequence[Admitted], first: int) -> list[dict[str, Any]]:
    return [
        {
            "run_id": batch.run_id,
            "seq": seq,
            "type": event.type.value,
            "at": batch.at,
            "fields": dict(event.fields),
            "fields_refused": event.fields_refused,
        }
        for seq, event in enumerate(events, start=first)
    ]


def _step_rows(batch: JournalBatch, first: int) -> list[dict[str, Any]]:
    return [
        {
            "run_id": batch.run_id,
            "position": position,
            "round": step.round_,
            "kind": safe_code(step.kind),
            "tool_call_ids": list(safe_ids(step.tool_call_ids)),
            "token_count": step.token_count,
            "at": batch.at,
        }
        for position, step in enumerate(batch.steps, start=first)
    ]


def _archive_rows(batch: JournalBatch) -> list[dict[str, Any]]:
    return [
        {
            "run_id": batch.run_id,
            "kind": entry.kind,
            "key": entry.key,
            "payload": plain(entry.payload) or {},
            "at": batch.at,
        }
        for entry in batch.archive
    ]
