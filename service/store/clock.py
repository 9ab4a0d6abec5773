"""Clocks: the machine's, and one that a test or a replay sets."""

from __future__ import annotations

import time


class SystemClock:
    """Wall clock of this machine."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()


class FixedClock:
    """A clock that moves only when told to."""

    def __init__(self, at: float = 1_700_000_000.0) -> None:
        self._at = at

    def now(self) -> float:
        """Seconds since the epoch, as set."""
        return self._at

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds`."""
        self._at += seconds
