"""The canonical store's protocol: keyed access only, no listing by Run (R14, R49)."""

from __future__ import annotations

from typing import Protocol

from tools.contract import CanonicalRecord


class CanonicalStoreUnavailable(Exception):
    """The store could not be read or written; callers fail closed (R65)."""


class CanonicalRecordTooLarge(Exception):
    """The record exceeds the store's size bound; nothing was stored."""


def canonical_key(run_id: str, tool_call_id: str) -> str:
    """Return the key of a call's record, isolated by Run (R49)."""
    return f"harness:canonical:{run_id}:{tool_call_id}"


class CanonicalStore(Protocol):
    """Async access to canonical records by (run_id, tool_call_id). Records live `ttl_seconds` from their last write."""

    async def begin(self, record: CanonicalRecord) -> CanonicalRecord:
        """Store a PROJECTING record and return what the store now holds.

        When a READY or ERROR record of the same call exists it is returned unchanged (a re-executed node reuses it);
        a PROJECTING one left by a crash is replaced. Raises CanonicalStoreUnavailable, CanonicalRecordTooLarge.
        """

    async def finish(self, record: CanonicalRecord) -> bool:
        """Atomically move PROJECTING to READY or ERROR. False when no PROJECTING record was there.

        Raises CanonicalStoreUnavailable, CanonicalRecordTooLarge.
        """

    async def reject(self, record: CanonicalRecord) -> bool:
        """Atomically replace a READY record by an ERROR one (observation contract violation, R51). False if not READY."""

    async def get(self, run_id: str, tool_call_id: str) -> CanonicalRecord | None:
        """Return the live record or None (missing and expired alike). Raises CanonicalStoreUnavailable."""
