"""Who gets past the gate where no tokens are configured (R127, R134)."""

from __future__ import annotations

from typing import Any

import pytest

from service.http.auth import Tokens
from service.http.gate import Gate


async def status_for(client: tuple[str, int] | None, host: str = "localhost") -> int:
    """The status that a gate without tokens gives a caller; 204 is what lies behind it."""
    sent: list[Any] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "path": "/api/upload", "client": client, "headers": [(b"host", host.encode())]}
    await Gate(behind, Tokens())(scope, receive, send)
    status: int = sent[0]["status"]
    return status


@pytest.mark.parametrize("client", [("203.0.113.9", 4711), ("10.0.0.1", 80), ("testclient", 1), None])
async def test_r127_without_tokens_no_other_machine_gets_in_whatever_name_it_calls(client: Any) -> None:
    assert await status_for(client) == 403


@pytest.mark.parametrize("client", [("127.0.0.1", 4711), ("::1", 4711)])
async def test_r127_without_tokens_this_machine_gets_in_by_its_own_name_alone(client: Any) -> None:
    assert await status_for(client) == 204
    assert await status_for(client, "evil.example") == 403
