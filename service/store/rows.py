"""What readers get from a journal, and when an archive ends. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graph.contract import TraceEventType

DEFAULT_ARCHIVE_DAYS = 30.0
"""How long a Run's archive is readable after its last entry (R67)."""

_SECONDS_PER_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A stored trace event. `seq` counts from 1 without gaps per Run; `at` is in seconds since the epoch."""

    seq: int
    at: float
    type: TraceEventType
    fields: Mapping[str, Any]
    fields_refused: int = 0


def archive_cutoff(now: float, archive_days: float) -> float:
    """Return the time an archive's last entry must lie after for the archive to live."""
    return now - archive_days * _SECONDS_PER_DAY
