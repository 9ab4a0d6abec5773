"""Server-sent events: the wire form of a Run's events (R132)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any, Literal

from fastapi.responses import Response, StreamingResponse
from fastapi.sse import format_sse_event
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import Receive, Scope, Send

from service.http.service import Service
from service.run_events import EventId, RunEvent, RunEventType

logger = logging.getLogger("superbiz.http")

RECONNECT_MS = 1_000
"""What a client that lost its stream is told to wait."""
HEARTBEAT = b": keep-alive\n\n"

Compat = Literal["message"]


def encode(event: RunEvent, compat: Compat | None) -> bytes:
    """Write an event; its `event:` line equals the JSON `type`, or `message` for clients of the base project."""
    data = json.dumps({"type": event.type.value, "data": event.data}, ensure_ascii=False, separators=(",", ":"))
    return format_sse_event(data_str=data, event=compat or event.type.value, id=event.id)


def event_stream(
    service: Service,
    run_id: str,
    after: EventId | None = None,
    *,
    compat: Compat | None = None,
    cancel_on_disconnect: bool = False,
) -> Response:
    """Answer with a Run's events after a place; with 204 after the last one, so that no client comes back for ever.

    Each is read from the store when the client has taken the one before, so a slow reader holds nothing up and nothing
    is kept for it.
    """
    if after is not None and after.place == "end":
        return Response(status_code=204)
    return _EventStream(service, run_id, after, compat, cancel_on_disconnect)


class _EventStream(StreamingResponse):
    def __init__(
        self, service: Service, run_id: str, after: EventId | None, compat: Compat | None, cancel_on_disconnect: bool
    ) -> None:
        self._service = service
        self._run_id = run_id
        self._cancels = cancel_on_disconnect
        self._ended = False
        super().__init__(
            self._events(after, compat),
            media_type="text/event-stream; charset=utf-8",
            headers={"X-Accel-Buffering": "no", "X-Run-Id": run_id},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; a client may be gone before the first of them."""
        manager = self._service.manager
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self._cancels and not self._ended and not manager.stopping.is_set():
                # The client is gone, and with it this task: the cancel needs one of its own.
                _keep(asyncio.ensure_future(manager.cancel_left(self._run_id)))

    async def _events(self, after: EventId | None, compat: Compat | None) -> AsyncIterator[bytes]:
        service = self._service
        yield f"retry: {RECONNECT_MS}\n\n".encode()
        idle, stopping = service.app.settings.heartbeat_seconds, service.manager.stopping
        try:
            async for event in service.events.follow(self._run_id, after, idle_seconds=idle, stopping=stopping):
                self._ended = event is not None and event.last
                yield HEARTBEAT if event is None else encode(event, compat)
        except SQLAlchemyError as error:
            # Out of reach: the stream ends without an end, and its client, which has not left, comes back for the rest.
            logger.warning("a stream of events broke: %s", type(error).__name__)
            self._cancels = False


_cancels: set[asyncio.Future[None]] = set()


def _keep(cancel: asyncio.Future[None]) -> None:
    _cancels.add(cancel)
    cancel.add_done_callback(_cancels.discard)


_EVENT_SCHEMA = {
    "type": "object",
    "description": "One event of the stream.",
    "required": ["event", "id", "data"],
    "properties": {
        "event": {"type": "string", "enum": [*(each.value for each in RunEventType), "message"]},
        "id": {"type": "string", "pattern": "^[A-Za-z0-9_.:-]+/(start|[0-9]{4}|content|result|end)$"},
        "data": {"type": "string", "description": 'JSON `{"type", "data"}`.'},
        "retry": {"type": "integer"},
    },
}

EVENT_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": (
            "Events `run_started`, `status`, `content`, `result`, and at last `done` or `error`. Each `data` line is "
            'JSON `{"type", "data"}`, each `id` the place to go on from.'
        ),
        "content": {"text/event-stream": {"schema": _EVENT_SCHEMA}},
    },
    204: {"description": "The last event was received already: there is nothing to come back for."},
}
