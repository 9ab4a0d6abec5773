"""The gate before every route, as plain ASGI: who calls, from where, how many at once, and what a fault may say."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.auth import Tokens, host_of, is_loopback
from service.http.errors import ApiErrorCode, error_response

logger = logging.getLogger("superbiz.http")

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that tell nothing and need no token."""
MAX_OPEN_REQUESTS = 2_000
"""Requests of one process that may be open at once, streams included."""
SAFE_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class Gate:
    """Sets `scope["state"]["owner"]`: the token's name, or None where no tokens are configured."""

    def __init__(self, app: ASGIApp, tokens: Tokens, max_open: int = MAX_OPEN_REQUESTS) -> None:
        self._app = app
        self._tokens = tokens
        self._max_open = max_open
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._open >= self._max_open:
            message = f"at most {self._max_open} open requests are allowed"
            await _refuse(scope, receive, send, 429, ApiErrorCode.TOO_MANY_REQUESTS, message, {"Retry-After": "1"})
            return
        self._open += 1
        try:
            await self._admit(scope, receive, send)
        finally:
            self._open -= 1

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, owner = Headers(scope=scope), None
        if self._tokens:
            owner = self._tokens.owner(headers.get("authorization"))
            if owner is None and scope["path"] not in OPEN_PATHS:
                message = "Authorization: must be `Bearer TOKEN` with a configured token"
                challenge = {"WWW-Authenticate": "Bearer"}
                await _refuse(scope, receive, send, 401, ApiErrorCode.UNAUTHORIZED, message, challenge)
                return
        elif fault := foreign(headers, scope.get("client")):
            await _refuse(scope, receive, send, 403, ApiErrorCode.FORBIDDEN_ORIGIN, fault)
            return
        scope.setdefault("state", {})["owner"] = owner
        await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": [*message["headers"], *SAFE_HEADERS]}
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            # Only the type: the text may hold a question or a secret. An answer that has begun breaks off here.
            logger.error("a request failed unexpectedly: %s", type(error).__name__)
            if not started:
                await _refuse(scope, receive, send, 500, ApiErrorCode.SERVICE_ERROR, "the service failed; see its log")


def foreign(headers: Headers, client: Sequence[Any] | None) -> str | None:
    """Say what is wrong where another machine or a page of another site may be asking. Pure.

    `client`: ASGI's (address, port) of the caller; a host may listen wherever it likes. A browser here can be made to ask: a
    name that was made to point here shows in `Host`, a script of another page in `Origin` or `Sec-Fetch-Site`.
    """
    if not client or not is_loopback(str(client[0])):
        return "SUPERBIZ_API_TOKENS: must be set before anybody but this machine's own programs may call"
    host, origin = headers.get("host", ""), headers.get("origin")
    if not is_loopback(host_of(host)):
        return "Host: must be localhost or a loopback address as long as no tokens are configured"
    if origin is not None and origin.partition("://")[2] != host:
        return "Origin: pages of other sites are not allowed"
    if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        return "Sec-Fetch-Site: pages of other sites are not allowed"
    return None


async def _refuse(
    scope: Scope,
    receive: Receive,
    send: Send,
    status: int,
    code: ApiErrorCode,
    message: str,
    headers: Mapping[str, str] | None = None,
) -> None:
    response = error_response(status, code, message, headers)
    response.raw_headers.extend(SAFE_HEADERS)
    await response(scope, receive, send)
