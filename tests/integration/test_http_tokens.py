"""Tokens: who may call, and that one caller meets nothing of another's (R127, R134)."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from service.cli.main import run
from service.http.auth import load_tokens, parse_tokens
from service.settings import Settings, SettingsError
from tests.http_service import ANN, BOB, TOKENS, Served, ask_stream, ended, serving, until
from tests.stub_model_server import answer, slow, stub_server

TALK = "你能做什么？"
OPEN = {"/healthz", "/readyz"}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path, tokens=TOKENS) as running:
        yield running


async def test_r134_every_route_but_health_needs_a_token(served: Served) -> None:
    async with served.client(ANN) as ann, served.client() as nobody:
        paths = (await ann.get("/openapi.json")).json()["paths"]
        assert len(paths) >= 9
        seen = 0
        for path, methods in paths.items():
            for method in methods:
                url = re.sub(r"\{\w+\}", "x", path)
                for headers in ({}, {"Authorization": "Bearer wrong-token-0123456789"}, {"Authorization": ANN}):
                    response = await nobody.request(method, url, headers=headers)
                    if path in OPEN:
                        assert response.status_code == 200
                        continue
                    assert (response.status_code, response.json()["code"]) == (401, "UNAUTHORIZED"), (method, path)
                    assert response.headers["www-authenticate"] == "Bearer"
                    seen += 1
        assert seen >= 21
        for path in ("/nothing", "/docs", "/openapi.json"):
            assert (await nobody.get(path)).status_code == 401


async def test_r134_one_caller_meets_nothing_of_anothers(tmp_path: Path) -> None:
    routed = answer('{"intent":"SYSTEM_CHAT"}')
    async with (
        stub_server(slow(3, routed), routed, answer("I diagnose incidents.")) as stub,
        serving(tmp_path, tokens=TOKENS, model="openai:stub", api_key="k", base_url=stub.url) as served,
        served.client(ANN) as ann,
        served.client(BOB) as bob,
    ):
        asking = asyncio.create_task(ann.post("/api/chat", json={"Id": "s", "Question": TALK}))
        await until(lambda: len(stub.requests) == 1)
        (run_id,) = served.service.manager.active

        def missing(response: httpx.Response) -> tuple[int, bytes]:
            assert response.status_code == 404
            return response.status_code, response.content

        for method, path in (
            ("GET", "/api/runs/{}"),
            ("GET", "/api/runs/{}/trace"),
            ("GET", "/api/runs/{}/events"),
            ("POST", "/api/runs/{}/cancel"),
        ):
            foreign = await bob.request(method, path.format(run_id))
            nothing = await bob.request(method, path.format("no-such-run"))
            assert missing(foreign) == missing(nothing), path
        known = {"Last-Event-ID": f"{run_id}/start"}
        stream = await bob.post("/api/chat_stream", json={"Question": TALK}, headers=known)
        assert stream.status_code == 404
        assert (await bob.get("/api/chat/session/s")).status_code == 404
        assert (await bob.post("/api/chat/clear", json={"Id": "s"})).status_code == 200
        assert (await ann.get("/api/chat/session/s")).json()["data"]["messagePairCount"] == 1

        # The same session name is another session: no 409, no common history.
        events = await ask_stream(bob, TALK, body={"Id": "s"})
        assert events[-1].event == "done"
        assert (await asking).json()["data"]["success"] is True
        run = await ended(served, run_id)
        assert (run.owner, run.internal_state) == ("ann", "SUCCESS")
        assert (await bob.get("/api/chat/session/s")).json()["data"]["messagePairCount"] == 1
        assert (await ann.get(f"/api/runs/{run_id}/events")).status_code == 200


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        ["ann"],
        [f"ann:{ANN[:15]}"],
        ["ann:aaaaaaaaaaaaaaaaaaaa"],
        [f":{ANN}"],
        [f"a b:{ANN}"],
        ["ann:with space 0123456789"],
        [f"ann:{ANN}", f"ann:{BOB}"],
        [f"ann:{ANN}", f"bob:{ANN}"],
    ],
)
def test_r127_weak_or_doubled_tokens_are_refused_and_never_shown(pairs: list[str]) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_tokens(pairs, "SUPERBIZ_API_TOKENS")
    assert "SUPERBIZ_API_TOKENS" in str(refused.value)
    assert ANN[:15] not in str(refused.value)


def test_r127_tokens_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# who may call\nann:{ANN}\n\nbob:{BOB}\n")
    for settings in (Settings(api_tokens=f"ann:{ANN}, bob:{BOB}"), Settings(api_tokens_file=file)):  # type: ignore[arg-type]
        tokens = load_tokens(settings)
        assert [tokens.owner(f"{scheme} {token}") for scheme, token in (("Bearer", ANN), ("bearer", BOB))] == [
            "ann",
            "bob",
        ]
        assert all(tokens.owner(header) is None for header in (None, "", "Bearer ", f"Basic {ANN}", f"Bearer {ANN}x"))
        assert ANN not in repr(tokens) + repr(settings)
    with pytest.raises(SettingsError):
        load_tokens(Settings(api_tokens=f"ann:{ANN}", api_tokens_file=file))  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="cannot be read"):
        load_tokens(Settings(api_tokens_file=tmp_path / "none"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.com", ""])
def test_r134_serve_refuses_other_addresses_without_tokens(
    host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SUPERBIZ_API_TOKENS", raising=False)
    assert run(["serve", "--host", host, "--port", "0"]) == 2
    assert "loopback" in capsys.readouterr().err


def test_r134_serve_names_a_port_that_is_taken_and_tokens_that_are_weak(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "--port" in capsys.readouterr().err
    monkeypatch.setenv("SUPERBIZ_API_TOKENS", "ann:short")
    assert run(["serve", "--host", "0.0.0.0", "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert "SUPERBIZ_API_TOKENS" in error
    assert "short" not in error
