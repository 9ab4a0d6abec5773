"""Canonical records in an SQL database (SQLite, PostgreSQL), beside the run store.

The table is keyed by the canonical key alone: it has no column to list a Run by (R14).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeAlias

from sqlalchemy import (
    Column,
    Connection,
    Delete,
    Double,
    MetaData,
    Row,
    String,
    Table,
    Text,
    Update,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from tools.canonical.codec import (
    DEFAULT_TTL_SECONDS,
    FINISHED,
    MAX_RECORD_BYTES,
    PURGE_EVERY_SECONDS,
    REJECTED,
    STARTED,
    decode,
    encode,
)
from tools.canonical.store import CanonicalStoreUnavailable, canonical_key
from tools.contract import CanonicalRecord, InvocationStatus
from tools.database import Database

canonical_metadata = MetaData()
"""Metadata of the one table here; whoever owns the engine creates it."""

canonical_record = Table(
    "canonical_record",
    canonical_metadata,
    Column("key", String(255), primary_key=True),
    Column("status", String(16), nullable=False),
    Column("payload", Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb"), nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
)

_HeldRow: TypeAlias = Row[str, str, float]
"""status, payload, expires_at"""

_ATTEMPTS = 8
"""Tries of `begin` when others write the same key between its look and its write."""


class SqlCanonicalStore:
    """CanonicalStore over one table (R49); every transition is a single conditional statement."""

    def __init__(
        self,
        engine: Database,
        now: Callable[[], float],
        *,
        ttl_seconds: float = DEFAULT_TTL_SECONDS,
        max_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self._engine = engine
        self._now = now
        self._ttl = ttl_seconds
        self._max_bytes = max_bytes
        self._next_purge = now() + PURGE_EVERY_SECONDS

    async def begin(self, record: CanonicalRecord) -> CanonicalRecord:
        """Store a PROJECTING record, or return the settled one that is already there."""
        payload = encode(record, STARTED, self._max_bytes)
        try:
            if self._now() >= self._next_purge:
                await self.purge()
            for _ in range(_ATTEMPTS):
                # Somebody else may insert the same key at this moment.
                with contextlib.suppress(IntegrityError):
                    held = await self._engine.write(lambda connection: self._try_begin(connection, record, payload))
                    if held is not None:
                        return held
        except SQLAlchemyError as error:
            raise CanonicalStoreUnavailable("canonical store: write failed") from error
        raise CanonicalStoreUnavailable("canonical store: too much contention for one call's record")

    async def finish(self, record: CanonicalRecord) -> bool:
        """Move PROJECTING to READY or ERROR."""
        return await self._replace(record, encode(record, FINISHED, self._max_bytes), InvocationStatus.PROJECTING)

    async def reject(self, record: CanonicalRecord) -> bool:
        """Replace READY by ERROR (R51)."""
        return await self._replace(record, encode(record, REJECTED, self._max_bytes), InvocationStatus.READY)

    async def get(self, run_id: str, tool_call_id: str) -> CanonicalRecord | None:
        """Return the live record or None."""
        try:
            row = await self._engine.read(lambda connection: _row(connection, canonical_key(run_id, tool_call_id)))
        except SQLAlchemyError as error:
            raise CanonicalStoreUnavailable("canonical store: read failed") from error
        return self._live(row, run_id, tool_call_id)

    async def purge(self) -> int:
        """Drop what expired; return how many records went. Raises CanonicalStoreUnavailable."""
        now = self._now()
        self._next_purge = now + PURGE_EVERY_SECONDS
        try:
            return await self._changed(delete(canonical_record).where(canonical_record.c.expires_at <= now))
        except SQLAlchemyError as error:
            raise CanonicalStoreUnavailable("canonical store: purge failed") from error

    def _live(self, row: _HeldRow | None, run_id: str, tool_call_id: str) -> CanonicalRecord | None:
        if row is None or row.expires_at <= self._now():
            return None
        return decode(row.payload, run_id, tool_call_id, row.status)

    def _try_begin(self, connection: Connection, record: CanonicalRecord, payload: str) -> CanonicalRecord | None:
        """One look and one conditional write; None when somebody else wrote in between. Raises IntegrityError likewise."""
        key = canonical_key(record.run_id, record.tool_call_id)
        row = _row(connection, key)
        held = self._live(row, record.run_id, record.tool_call_id)
        if held is not None and held.status in FINISHED:
            return held
        values = {"status": record.status.value, "payload": payload, "expires_at": self._now() + self._ttl}
        if row is None:
            connection.execute(insert(canonical_record).values(key=key, **values))
            return record
        unchanged = (
            (canonical_record.c.key == key)
            & (canonical_record.c.status == row.status)
            & (canonical_record.c.expires_at == row.expires_at)
            & (canonical_record.c.payload == row.payload)
        )
        result = connection.execute(update(canonical_record).where(unchanged).values(**values))
        return record if result.rowcount == 1 else None

    async def _replace(self, record: CanonicalRecord, payload: str, expected: InvocationStatus) -> bool:
        key = canonical_key(record.run_id, record.tool_call_id)
        now = self._now()
        statement = (
            update(canonical_record)
            .where(
                canonical_record.c.key == key,
                canonical_record.c.status == expected.value,
                canonical_record.c.expires_at > now,
            )
            .values(status=record.status.value, payload=payload, expires_at=now + self._ttl)
        )
        try:
            return await self._changed(statement) == 1
        except SQLAlchemyError as error:
            raise CanonicalStoreUnavailable("canonical store: write failed") from error

    async def _changed(self, statement: Delete | Update) -> int:
        return await self._engine.write(lambda connection: connection.execute(statement).rowcount)


def _row(connection: Connection, key: str) -> _HeldRow | None:
    columns = (canonical_record.c.status, canonical_record.c.payload, canonical_record.c.expires_at)
    return connection.execute(select(*columns).where(canonical_record.c.key == key)).first()
