"""Bounds the body of every request by its path, while it streams in (R134)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.errors import ApiErrorCode, error_response

DRAINED_BYTES = 33_554_432
DRAIN_SECONDS = 10.0
"""What is read and thrown away of a body that is too large: a client that is cut off while it writes sees no answer."""


class BodyTooLarge(HTTPException):
    """More bytes than the path takes; the framework lets this kind through while it parses a body."""

    def __init__(self, limit: int) -> None:
        super().__init__(413, f"body: at most {limit} bytes are allowed")


class BodyLimit:
    """Answers 413 with what is allowed, before the body where its length is told, else once it is exceeded."""

    def __init__(self, app: ASGIApp, default: int, by_path: Mapping[str, int]) -> None:
        self._app = app
        self._default = default
        self._by_path = dict(by_path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a counted body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._by_path.get(scope["path"], self._default)
        if _told_length(scope) > limit:
            await _drain(receive)
            response = error_response(413, ApiErrorCode.REQUEST_TOO_LARGE, BodyTooLarge(limit).detail, _CLOSE)
            await response(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                if message.get("more_body"):
                    await _drain(receive)
                raise BodyTooLarge(limit)
            return message

        await self._app(scope, counted, send)


_CLOSE = {"Connection": "close"}


def _told_length(scope: Scope) -> int:
    told = Headers(scope=scope).get("content-length", "")
    return int(told[:20]) if told.isascii() and told.isdigit() else 0


async def _drain(receive: Receive) -> None:
    left = DRAINED_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body"):
                    return
