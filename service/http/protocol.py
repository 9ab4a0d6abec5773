"""uvicorn's HTTP protocol, with a bound on the time for a request's head: what never ends it is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 15.0
"""From a connection's beginning, or the first byte of its next request, to the end of the head."""


class BoundedProtocol(H11Protocol):
    """Closes a connection whose request has not begun in time. How fast the bytes trickle makes no difference.

    A body has a limit of its own, and between two requests the limit of a kept connection counts.
    """

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._bound_head()

    def data_received(self, data: bytes) -> None:
        """Read on; the clock runs while the head is not complete."""
        super().data_received(data)
        self._bound_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _bound_head(self) -> None:
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._stop_waiting()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_SECONDS, self._close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _close(self) -> Any:
        self._waiting = None
        self.timeout_keep_alive_handler()
