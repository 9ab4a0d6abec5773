"""How a canonical record becomes text and back, the same for every backend. Pure.

What does not decode, breaks R70 or names another call than its key is treated as missing: it can never become a fact.
"""

from __future__ import annotations

import json

from tools.canonical.store import CanonicalRecordTooLarge
from tools.contract import CanonicalRecord, EvidenceStatus, InvocationStatus

DEFAULT_TTL_SECONDS = 3600.0
"""How long a record lives from its last write (R67)."""

MAX_RECORD_BYTES = 1024 * 1024
"""UTF-8 bytes of one stored record; a backend's answer beyond it is an error of the call, not evidence."""

PURGE_EVERY_SECONDS = 60.0
"""How often a store without a server-side TTL drops what expired; raw responses shall not outlive it by much."""

_LEGAL_PAIRS = frozenset(
    {
        (InvocationStatus.PROJECTING, None),
        (InvocationStatus.READY, EvidenceStatus.EVIDENCE_FOUND),
        (InvocationStatus.READY, EvidenceStatus.NO_EVIDENCE),
        (InvocationStatus.ERROR, EvidenceStatus.ERROR),
    }
)

STARTED = frozenset({InvocationStatus.PROJECTING})
FINISHED = frozenset({InvocationStatus.READY, InvocationStatus.ERROR})
REJECTED = frozenset({InvocationStatus.ERROR})


def is_legal(record: CanonicalRecord) -> bool:
    """Say whether status and evidence status form a legal pair (R70)."""
    return (record.status, record.evidence_status) in _LEGAL_PAIRS


def encode(record: CanonicalRecord, allowed: frozenset[InvocationStatus], max_bytes: int = MAX_RECORD_BYTES) -> str:
    """Serialize a record that is about to be stored.

    Raises ValueError when the status is not among `allowed` or the pair is illegal (a fault of the caller, R70), and
    CanonicalRecordTooLarge when the record is larger or nested deeper than the store holds.
    """
    if record.status not in allowed or not is_legal(record):
        states = "|".join(sorted(allowed))
        raise ValueError(f"status/evidence_status: allowed here are {states} with a legal evidence status (R70)")
    try:
        text = json.dumps(record.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise CanonicalRecordTooLarge("record: not JSON data of bounded depth") from None
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # lone surrogates, as some backends' JSON holds them
        text = json.dumps(json.loads(text), separators=(",", ":"))
        size = len(text)
    if size > max_bytes:
        raise CanonicalRecordTooLarge(f"record: {size} bytes, allowed are {max_bytes}")
    return text


def decode(
    payload: str | bytes | None, run_id: str, tool_call_id: str, status: str | None = None
) -> CanonicalRecord | None:
    """Read a stored record; None when it is no legal record of this very call (R65).

    `status` is what the backend keeps beside the payload, if it does; a disagreement makes the record unreadable.
    """
    if payload is None:
        return None
    try:
        record = CanonicalRecord.model_validate(json.loads(payload))
    except (ValueError, RecursionError):
        return None
    same_call = record.run_id == run_id and record.tool_call_id == tool_call_id
    if not same_call or not is_legal(record) or (status is not None and status != record.status):
        return None
    return record
