"""One HTTP request of a log backend: one attempt, bounded in time and size, no redirects (R118). Failures become codes."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import httpx

from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure

MAX_BODY_BYTES = 16 * 1024 * 1024
CONNECT_SECONDS = 5.0
_STATUS_CODES = {
    408: ToolErrorCode.TOOL_TIMEOUT,
    429: ToolErrorCode.BACKEND_UNAVAILABLE,
    502: ToolErrorCode.BACKEND_UNAVAILABLE,
    503: ToolErrorCode.BACKEND_UNAVAILABLE,
    504: ToolErrorCode.TOOL_TIMEOUT,
}
"""Every other status but 200 is BACKEND_ERROR: redirects, refused credentials, refused queries, faults of the server."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is sent. `headers` may hold credentials and do not show. `label` names the topic in the operator's log."""

    label: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    params: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """JSON data: then it is a POST, else a GET."""
    ca_file: str | None = None


async def fetch(request: HttpRequest, deadline: float) -> bytes:
    """Send the request once and return the body of a 200 answer within `deadline` seconds. Raises ToolFailure."""
    try:
        async with asyncio.timeout(deadline):
            return await _fetch(request, deadline)
    except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout) as error:
        _fail(request, ToolErrorCode.TOOL_TIMEOUT, type(error).__name__)
    except (httpx.NetworkError, httpx.ConnectTimeout) as error:
        _fail(request, ToolErrorCode.BACKEND_UNAVAILABLE, type(error).__name__)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        _fail(request, ToolErrorCode.BACKEND_ERROR, type(error).__name__)


async def _fetch(request: HttpRequest, deadline: float) -> bytes:
    limits = httpx.Timeout(deadline, connect=min(deadline, CONNECT_SECONDS))
    async with (
        # A client of its own for every call: LangGraph Server runs calls on more than one event loop. Without
        # trust_env no proxy and no .netrc of the host takes part.
        httpx.AsyncClient(
            verify=await _tls(request), timeout=limits, trust_env=False, follow_redirects=False
        ) as client,
        client.stream(
            "GET" if request.body is None else "POST",
            request.url,
            params=dict(request.params),
            json=request.body,
            # No compression: the size on the wire is the size in memory.
            headers={"accept": "application/json", "accept-encoding": "identity", **request.headers},
        ) as response,
    ):
        if response.status_code != 200:
            code = _STATUS_CODES.get(response.status_code, ToolErrorCode.BACKEND_ERROR)
            _fail(request, code, f"HTTP status {response.status_code}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            _fail(request, ToolErrorCode.BACKEND_ERROR, "compressed answer")
        return await _read(request, response)


async def _read(request: HttpRequest, response: httpx.Response) -> bytes:
    """Read the body up to its bound; a longer answer would be half an answer."""
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            _fail(request, ToolErrorCode.PARTIAL_RESULT, f"answer larger than {MAX_BODY_BYTES} bytes")
    return bytes(body)


async def _tls(request: HttpRequest) -> ssl.SSLContext:
    """Return the TLS settings; certificates are read from disk in a thread."""
    if not request.url.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # not used
    if request.ca_file is not None:
        return await asyncio.to_thread(ssl.create_default_context, cafile=request.ca_file)
    return await asyncio.to_thread(httpx.create_ssl_context, trust_env=False)


def _fail(request: HttpRequest, code: ToolErrorCode, cause: str) -> NoReturn:
    _log.warning("logs: topic %s: %s (%s)", request.label, code.value, cause)
    raise ToolFailure(code) from None


def strict_json(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; NaN and Infinity are no JSON. Raises ToolFailure with BACKEND_ERROR."""
    try:
        value = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise ToolFailure(ToolErrorCode.BACKEND_ERROR) from None
    if not isinstance(value, dict):
        raise ToolFailure(ToolErrorCode.BACKEND_ERROR)
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
