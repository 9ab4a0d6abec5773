"""Canonical records in this process: tests, benches and one-shot command-line runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
from tools.canonical.store import canonical_key
from tools.contract import CanonicalRecord, InvocationStatus


@dataclass(frozen=True, slots=True)
class _Entry:
    status: InvocationStatus
    payload: str
    expires_at: float


class MemoryCanonicalStore:
    """CanonicalStore over a dict (R49).

    Records are kept as text, so that nobody holds a reference into the store. No method awaits between its check and
    its write, which makes each transition atomic within the event loop that uses the store.
    """

    def __init__(
        self,
        now: Callable[[], float],
        *,
        ttl_seconds: float = DEFAULT_TTL_SECONDS,
        max_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self._now = now
        self._ttl = ttl_seconds
        self._max_bytes = max_bytes
        self._entries: dict[str, _Entry] = {}
        self._next_purge = now() + PURGE_EVERY_SECONDS

    async def begin(self, record: CanonicalRecord) -> CanonicalRecord:
        """Store a PROJECTING record, or return the settled one that is already there."""
        payload = encode(record, STARTED, self._max_bytes)
        if self._now() >= self._next_purge:
            await self.purge()
        existing = await self.get(record.run_id, record.tool_call_id)
        if existing is not None and existing.status in FINISHED:
            return existing
        self._put(record, payload)
        return record

    async def finish(self, record: CanonicalRecord) -> bool:
        """Move PROJECTING to READY or ERROR."""
        return self._replace(record, encode(record, FINISHED, self._max_bytes), InvocationStatus.PROJECTING)

    async def reject(self, record: CanonicalRecord) -> bool:
        """Replace READY by ERROR (R51)."""
        return self._replace(record, encode(record, REJECTED, self._max_bytes), InvocationStatus.READY)

    async def get(self, run_id: str, tool_call_id: str) -> CanonicalRecord | None:
        """Return the live record or None."""
        entry = self._live(canonical_key(run_id, tool_call_id))
        return decode(entry.payload, run_id, tool_call_id, entry.status) if entry else None

    async def purge(self) -> int:
        """Drop what expired; return how many records went."""
        now = self._now()
        self._next_purge = now + PURGE_EVERY_SECONDS
        gone = [key for key, entry in self._entries.items() if entry.expires_at <= now]
        for key in gone:
            del self._entries[key]
        return len(gone)

    def _live(self, key: str) -> _Entry | None:
        entry = self._entries.get(key)
        return entry if entry is not None and entry.expires_at > self._now() else None

    def _put(self, record: CanonicalRecord, payload: str) -> None:
        key = canonical_key(record.run_id, record.tool_call_id)
        self._entries[key] = _Entry(record.status, payload, self._now() + self._ttl)

    def _replace(self, record: CanonicalRecord, payload: str, expected: InvocationStatus) -> bool:
        entry = self._live(canonical_key(record.run_id, record.tool_call_id))
        if entry is None or entry.status is not expected:
            return False
        self._put(record, payload)
        return True
