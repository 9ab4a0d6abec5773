"""The HTTP side of one model call: what arrived, no redirects, no idle connections, a bound on the body."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass

import httpx

MAX_RESPONSE_BYTES = 8 * 1024 * 1024
"""Bytes of one response body; more is refused as malformed."""

HEADERS = {"Connection": "close", "Accept-Encoding": "identity"}
"""A fresh connection per call: a reset of an idle one would cost an attempt that nobody may repeat (R118), and a pooled
one is bound to the event loop that opened it. Identity encoding keeps the bound on the body honest."""


@dataclass(slots=True)
class Exchange:
    """What arrived of the answer to one attempt: status and `Retry-After` once the headers did."""

    status: int | None = None
    retry_after: str | None = None
    too_large: bool = False


CURRENT: ContextVar[Exchange | None] = ContextVar("superbiz_model_exchange", default=None)
"""The exchange of the attempt in hand; set by the client, filled by the response hook."""


class ResponseTooLarge(httpx.TransportError):
    """The body passed `MAX_RESPONSE_BYTES`."""


class _BoundedStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, exchange: Exchange | None) -> None:
        self._inner = inner
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MAX_RESPONSE_BYTES:
                if self._exchange is not None:
                    self._exchange.too_large = True
                raise ResponseTooLarge("response too large")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _note(response: httpx.Response) -> None:
    exchange = CURRENT.get()
    if exchange is not None:
        exchange.status = response.status_code
        exchange.retry_after = response.headers.get("retry-after")
    if isinstance(response.stream, httpx.AsyncByteStream):
        response.stream = _BoundedStream(response.stream, exchange)


def build_http_client() -> httpx.AsyncClient:
    """Return the client of the model adapter. A redirect is never followed: it would carry the prompt elsewhere."""
    return httpx.AsyncClient(follow_redirects=False, headers=HEADERS, event_hooks={"response": [_note]})
