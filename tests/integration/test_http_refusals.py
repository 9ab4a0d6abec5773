"""What the service refuses, with `{code, message}` that says what is allowed (R134)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import OperationalError

from service.http import service as http_service
from tests.http_service import QUESTION, Served, ended, serving, until
from tests.stub_model_server import answer, slow, stub_server

JSON = {"content-type": "application/json"}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path, max_request_bytes=20_000) as running:
        yield running


def refused(response: httpx.Response, status: int, code: str, *words: str) -> None:
    body = response.json()
    assert (response.status_code, body["code"]) == (status, code), response.text
    assert set(body) == {"code", "message"}
    for word in words:
        assert word in body["message"]


async def test_r134_every_refusal_has_a_code_and_says_what_is_allowed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_service, "BODY_SECONDS", 0.2)
    async with served.client() as client:

        async def post(body: Any, path: str = "/api/chat", headers: Any = None) -> httpx.Response:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            return await client.post(path, content=content, headers={**JSON, **(headers or {})})

        for path in ("/api/chat", "/api/chat_stream"):
            for empty in ({}, {"Question": ""}, {"question": " \n "}):
                refused(await post(empty, path), 400, "EMPTY_QUESTION", "Question")
            refused(await post(b"{", path), 400, "INVALID_REQUEST", "JSON")
            refused(await post(b"\xff\xfe", path), 400, "INVALID_REQUEST", "JSON")
            refused(await post({"Question": "x" * 4001}, path), 422, "QUESTION_TOO_LONG", "4000")
            refused(await post({"Question": 7}, path), 422, "INVALID_REQUEST", "Question", "string")
            refused(await post([], path), 422, "INVALID_REQUEST")
            refused(await post(b'{"Question":"\\ud800"}', path), 422, "INVALID_REQUEST", "Question", "Unicode")
            for name in ("x" * 129, "a\nb", " ", 7):
                refused(await post({"Id": name, "Question": "q"}, path), 422, "INVALID_REQUEST", "Id")
            refused(await post({"Question": "q", "at": "yesterday"}, path), 422, "INVALID_REQUEST", "at")
            refused(await post({"Question": "q", "language": "fr"}, path), 422, "INVALID_REQUEST", "language", "'zh'")
            refused(await post({"Question": "x" * 30_000}, path), 413, "REQUEST_TOO_LARGE", "20000")
            for media in ("text/plain", "application/x-www-form-urlencoded", ""):
                refused(
                    await post({"Question": "q"}, path, {"content-type": media}),
                    415,
                    "UNSUPPORTED_MEDIA_TYPE",
                    "application/json",
                )
        refused(await post({}, "/api/chat/clear"), 422, "INVALID_REQUEST", "Id")

        async def too_much() -> AsyncIterator[bytes]:
            yield b'{"Question":"'
            for _ in range(10):
                yield b"x" * 4096

        async def dripping() -> AsyncIterator[bytes]:
            yield b'{"Question":"'
            await asyncio.sleep(5)

        refused(await client.post("/api/chat", content=too_much(), headers=JSON), 413, "REQUEST_TOO_LARGE", "20000")
        refused(await client.post("/api/chat", content=dripping(), headers=JSON), 408, "REQUEST_TIMEOUT", "0.2")
        for path in ("/", "/api/none", "/api/runs", "/api/chat/"):
            refused(await client.get(path), 404, "NOT_FOUND")
        for path in ("/api/runs/none", "/api/runs/none/trace", "/api/runs/none/events", "/api/chat/session/none"):
            refused(await client.get(path), 404, "NOT_FOUND")
        refused(await client.post("/api/runs/none/cancel"), 404, "NOT_FOUND")
        refused(await client.get(f"/api/runs/{'x' * 200}"), 422, "INVALID_REQUEST", "run_id")
        refused(await client.get("/api/runs/none/events?after=xyz"), 400, "INVALID_EVENT_ID", "RUN_ID/0007")
        for method, path in (("GET", "/api/chat"), ("DELETE", "/api/runs/none"), ("PUT", "/healthz")):
            response = await client.request(method, path)
            refused(response, 405, "METHOD_NOT_ALLOWED")
            assert response.headers["allow"]
    assert await served.service.app.runs.runs() == ()


async def test_r134_pages_of_other_sites_are_refused_where_there_are_no_tokens(served: Served) -> None:
    async with served.client() as client:
        for headers in (
            {"Host": "rebound.example:80"},
            {"Host": "127.0.0.1.example"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            for method, path in (("GET", "/healthz"), ("GET", "/api/runs/x"), ("POST", "/api/runs/x/cancel")):
                refused(await client.request(method, path, headers=headers), 403, "FORBIDDEN_ORIGIN")
        port = served.url.rpartition(":")[2]
        for host in (f"localhost:{port}", f"[::1]:{port}", f"127.0.0.1:{port}"):
            own = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
            assert (await client.get("/healthz", headers=own)).status_code == 200
        assert "access-control-allow-origin" not in (await client.get("/healthz")).headers
        preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        assert (await client.options("/api/chat", headers=preflight)).status_code == 403


async def test_r134_one_run_a_session_and_as_many_at_once_as_are_allowed(tmp_path: Path) -> None:
    async with (
        stub_server(slow(3, answer('{"intent":"SYSTEM_CHAT"}'))) as stub,
        serving(tmp_path, model="openai:stub", api_key="k", base_url=stub.url, max_runs=2) as served,
        served.client() as client,
    ):
        body = {"Id": "s", "Question": "what can you do?"}
        both = [asyncio.create_task(client.post("/api/chat", json=body)) for _ in range(2)]
        await until(lambda: any(task.done() for task in both) and len(served.service.manager.active) == 1)
        (loser,) = [task for task in both if task.done()]
        (run_id,) = served.service.manager.active
        refused(await loser, 409, "SESSION_BUSY", run_id)
        session = (await client.get("/api/chat/session/s")).json()["data"]
        assert (session["messagePairCount"], session["active_run_id"]) == (1, run_id)

        other = asyncio.create_task(client.post("/api/chat", json={**body, "Id": "t"}))
        await until(lambda: len(served.service.manager.active) == 2)
        full = await client.post("/api/chat", json={**body, "Id": "u"})
        refused(full, 429, "TOO_MANY_RUNS", "2 runs")
        assert int(full.headers["retry-after"]) > 0

        # A cancelled run frees its session at once it has ended.
        cancelled = await client.post(f"/api/runs/{run_id}/cancel")
        assert (cancelled.status_code, cancelled.json()) == (202, {"run_id": run_id, "state": "CANCEL_REQUESTED"})
        assert (await ended(served, run_id)).internal_state == "CANCELLED"
        for task in (*both, other):
            task.cancel()
        others = served.service.manager.active
        again = asyncio.create_task(client.post("/api/chat?cancel_on_disconnect=true", json=body))
        await until(lambda: len(served.service.manager.active) == 2)
        (left,) = served.service.manager.active - others
        again.cancel()
        assert (await ended(served, left)).internal_state == "CANCELLED"


async def test_r134_a_cleared_session_has_no_previous_turn(served: Served) -> None:
    async with served.client() as client:
        reply = (await client.post("/api/chat", json={"id": "s", "question": QUESTION})).json()
        assert (reply["code"], reply["message"], reply["data"]["success"]) == (200, "success", True)
        assert reply["data"]["published_result"]["conclusion"] in reply["data"]["answer"]
        runs = served.service.app.runs
        assert await runs.previous_turn("s") is not None
        session = (await client.get("/api/chat/session/s")).json()["data"]
        assert (session["sessionId"], session["messagePairCount"]) == ("s", 1)
        assert session["createTime"] > 1_600_000_000_000
        cleared = (await client.post("/api/chat/clear", json={"Id": "s"})).json()
        assert (cleared["code"], cleared["message"]) == (200, "success")
        assert await runs.previous_turn("s") is None
        refused(await client.get("/api/chat/session/s"), 404, "NOT_FOUND")
        assert (await client.get(f"/api/runs/{reply['data']['run_id']}")).status_code == 200


async def test_r134_faults_tell_nothing(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "SECRET-OF-THE-DRIVER"

    async def broken(*_: object) -> None:
        raise RuntimeError(secret)

    monkeypatch.setattr(served.service.app.runs, "get", broken)
    async with served.client() as client:
        response = await client.get("/api/runs/x")
        refused(response, 500, "SERVICE_ERROR")
        assert secret not in response.text + caplog.text
        assert "RuntimeError" in caplog.text
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).json() == {"status": "ok"}

        async def gone(*_: object) -> None:
            raise OperationalError(secret, None, Exception(secret))

        monkeypatch.setattr(served.service.app.serving, "ping", gone)
        refused(await client.get("/readyz"), 503, "STORE_UNAVAILABLE")
        assert secret not in caplog.text
