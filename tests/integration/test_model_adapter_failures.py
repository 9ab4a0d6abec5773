"""Every way an attempt can fail, against a server that fails so: typed, one HTTP request, no leaked text (R118)."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import traceback
from email.utils import formatdate

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from pydantic import SecretStr

from graph.contract import Component
from nodes.model_call import retry_allowed, retry_delay
from nodes.ports import ModelCallFailed, ModelRequest
from nodes.ports import ModelFailureKind as K
from service.models.chat import build_chat
from service.models.client import ChatModelClient
from service.models.profile import OPENAI, ProviderProfile
from tests.no_network import block_network
from tests.stand_in_tools import TOOLS
from tests.stub_model_server import (
    Behaviour,
    answer,
    close_at_once,
    completion,
    cut_off,
    drip,
    error,
    http,
    raw,
    reset_at_once,
    slow,
    stub_server,
    unused_port,
)

KEY = "sk-SECRET-KEY"
SECRETS = ("PROVIDER-TEXT", "SECRET-KEY", "PROMPT-TEXT")


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with block_network():
        yield


def client(url: str, profile: ProviderProfile = OPENAI) -> ChatModelClient:
    return ChatModelClient("openai:stub", build_chat("stub", url, SecretStr(KEY), profile), profile, lambda: "fresh")


def request(timeout: float = 5.0) -> ModelRequest:
    messages = [SystemMessage("PROMPT-TEXT"), HumanMessage("PROMPT-TEXT")]
    return ModelRequest(Component.DIAGNOSIS_AGENT, 1, messages, TOOLS, timeout_seconds=timeout)


async def fail(url: str, within: float = 5.0) -> ModelCallFailed:
    with pytest.raises(ModelCallFailed) as failed:
        await client(url).complete(request(within))
    return failed.value


GOOD = json.dumps(completion("PROVIDER-TEXT")).encode()
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"

CASES: dict[str, tuple[Behaviour, K, bool]] = {
    "400": (error(400), K.REQUEST_REFUSED, False),
    "401": (error(401), K.AUTHENTICATION, False),
    "403": (error(403), K.AUTHENTICATION, False),
    "404": (error(404), K.REQUEST_REFUSED, False),
    "408": (error(408), K.REQUEST_REFUSED, False),
    "409": (error(409), K.REQUEST_REFUSED, False),
    "422": (error(422), K.REQUEST_REFUSED, False),
    "429": (error(429), K.RATE_LIMITED, False),
    "500": (error(500), K.SERVER_ERROR, False),
    "502": (error(502), K.UNAVAILABLE, False),
    "503": (error(503), K.UNAVAILABLE, False),
    "504": (error(504), K.UNAVAILABLE, False),
    "529": (error(529), K.SERVER_ERROR, False),
    "should-retry header": (error(500, x_should_retry="true"), K.SERVER_ERROR, False),
    "filtered": (error(400, "content_filter"), K.CONTENT_FILTERED, False),
    "filtered by DashScope": (error(400, "data_inspection_failed"), K.CONTENT_FILTERED, False),
    "context too long": (error(400, "context_length_exceeded"), K.REQUEST_REFUSED, False),
    "bad schema": (
        http(b'{"error":{"message":"Invalid schema for response_format PROVIDER-TEXT"}}', 400),
        K.REQUEST_REFUSED,
        False,
    ),
    "HTML error page": (http(b"<html>PROVIDER-TEXT</html>", 502, "text/html"), K.UNAVAILABLE, False),
    "error with cut body": (cut_off(b"{", 500, reset=True, status=503), K.UNAVAILABLE, False),
    "reset before an answer": (reset_at_once, K.CONNECTION, False),
    "closed before an answer": (close_at_once, K.CONNECTION, False),
    "reset in the body": (cut_off(GOOD[:60], len(GOOD), reset=True), K.CONNECTION, True),
    "closed in the body": (cut_off(GOOD[:60], len(GOOD), reset=False), K.CONNECTION, True),
    "no HTTP": (raw(b"SSH-2.0-PROVIDER-TEXT\r\n"), K.CONNECTION, False),
    "broken status line": (raw(b"HTTP/1.1 abc\r\n\r\n"), K.CONNECTION, False),
    "chunked garbage": (raw(CHUNKED + b"zz\r\nPROVIDER-TEXT\r\n"), K.CONNECTION, True),
    "invalid JSON": (http(b'{"choices": [PROVIDER-TEXT'), K.MALFORMED_RESPONSE, True),
    "cut JSON": (http(GOOD[:100]), K.MALFORMED_RESPONSE, True),
    "not UTF-8": (http(b'{"choices": "\xff\xfe"}'), K.MALFORMED_RESPONSE, True),
    "empty body": (http(b""), K.MALFORMED_RESPONSE, True),
    "no content": (raw(b"HTTP/1.1 204 No Content\r\n\r\n"), K.MALFORMED_RESPONSE, True),
    "HTML page": (http(b"<html>PROVIDER-TEXT</html>", 200, "text/html"), K.MALFORMED_RESPONSE, True),
    "plain text": (http(b"PROVIDER-TEXT", 200, "text/plain"), K.MALFORMED_RESPONSE, True),
    "SSE not asked for": (
        http(
            b'data: {"choices":[{"delta":{"content":"PROVIDER-TEXT"}}]}\n\ndata: [DONE]\n\n', 200, "text/event-stream"
        ),
        K.MALFORMED_RESPONSE,
        True,
    ),
    "JSON list": (http(b"[1]"), K.MALFORMED_RESPONSE, True),
    "JSON string": (http(b'"PROVIDER-TEXT"'), K.MALFORMED_RESPONSE, True),
    "JSON null": (http(b"null"), K.MALFORMED_RESPONSE, True),
    "no choices": (http(b'{"id":"x"}'), K.MALFORMED_RESPONSE, True),
    "null choices": (http(b'{"choices":null}'), K.MALFORMED_RESPONSE, True),
    "empty choices": (http(b'{"choices":[],"usage":null}'), K.MALFORMED_RESPONSE, True),
    "choices of another shape": (http(b'{"choices":[{"message":[{"a":1}]}]}'), K.MALFORMED_RESPONSE, True),
    "error in a 200": (http(b'{"error":{"message":"PROVIDER-TEXT","code":429}}'), K.MALFORMED_RESPONSE, True),
    "9 MiB": (http(GOOD + b" " * (9 * 1024 * 1024)), K.MALFORMED_RESPONSE, True),
    "cut answer": (answer("PROVIDER-TEXT", finish="length"), K.OUTPUT_TRUNCATED, True),
    "filtered answer": (answer("PROVIDER-TEXT", finish="content_filter"), K.CONTENT_FILTERED, True),
    "refusal": (answer(None, refusal="PROVIDER-TEXT"), K.CONTENT_FILTERED, True),
}


@pytest.mark.parametrize("case", CASES)
async def test_r118_each_failure_is_typed_and_costs_one_request(
    case: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    behaviour, kind, answered = CASES[case]
    caplog.set_level(logging.INFO)
    async with stub_server(behaviour) as server:
        failure = await fail(server.url)
        await asyncio.sleep(0.02)
    assert (failure.kind, failure.answered) == (kind, answered)
    assert len(server.requests) == 1
    assert server.connections == 1
    shown = "".join(traceback.format_exception(failure)) + caplog.text + "".join(capfd.readouterr())
    assert not [secret for secret in SECRETS if secret in shown]
    assert failure.__cause__ is None
    assert failure.__context__ is None


async def test_r118_a_refused_port_is_a_connection_failure() -> None:
    failure = await fail(f"http://127.0.0.1:{unused_port()}/v1")
    assert (failure.kind, failure.answered) == (K.CONNECTION, False)


@pytest.mark.parametrize(
    ("behaviour", "answered"),
    [(slow(3, answer("late")), False), (drip(0.02), True)],
    ids=["silent", "dripping"],
)
async def test_r118_the_timeout_bounds_the_whole_attempt(behaviour: Behaviour, answered: bool) -> None:
    async with stub_server(behaviour) as server:
        started = time.monotonic()
        failure = await fail(server.url, within=0.3)
        assert time.monotonic() - started < 1.5
        assert (failure.kind, failure.answered) == (K.TIMEOUT, answered)
        assert len(server.requests) == 1


async def test_r119_a_cancel_passes_through() -> None:
    async with stub_server(slow(5, answer("late"))) as server:
        task = asyncio.create_task(client(server.url).complete(request()))
        await asyncio.sleep(0.3)
        assert len(server.requests) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_redirect_is_not_followed() -> None:
    async with stub_server(answer("elsewhere")) as other:
        for status in (301, 302, 303, 307, 308):
            async with stub_server(http(b"", status, location=other.url)) as server:
                failure = await fail(server.url)
                assert failure.kind is K.MALFORMED_RESPONSE
                assert len(server.requests) == 1
        assert other.requests == []


@pytest.mark.parametrize("status", [429, 503])
async def test_r118_retry_after_is_carried(status: int) -> None:
    async with stub_server(
        error(status, retry_after="7"),
        error(status, retry_after=formatdate(time.time() + 60, usegmt=True)),
        error(status, retry_after="soon"),
        error(status),
    ) as server:
        failures = [await fail(server.url) for _ in range(4)]
    assert failures[0].retry_after == 7.0
    assert failures[1].retry_after == pytest.approx(59, abs=2)
    assert [failure.retry_after for failure in failures[2:]] == [None, None]


async def test_r118_a_second_attempt_is_a_second_call_and_a_second_request() -> None:
    async with stub_server(error(503, retry_after="0"), answer("done")) as server:
        model = client(server.url)
        attempt, reply = 0, None
        while reply is None:
            attempt += 1
            try:
                reply = await model.complete(request())
            except ModelCallFailed as failure:
                assert retry_allowed(Component.DIAGNOSIS_AGENT, failure, attempt)  # noqa: PT017
                await asyncio.sleep(retry_delay(failure, 10.0) or 0)
        assert (attempt, reply.text, len(server.requests)) == (2, "done", 2)


def test_one_client_serves_several_event_loops() -> None:
    texts = []
    models: list[ChatModelClient] = []

    async def once() -> None:
        async with stub_server(answer("hello")) as server:
            if not models:
                models.append(client(server.url))
            models[0]._chat.async_client._client.base_url = server.url  # type: ignore[attr-defined]
            texts.append((await models[0].complete(request())).text)

    for _ in range(3):
        asyncio.run(once())
    assert texts == ["hello"] * 3
