"""Event streams over real TCP: grammar, places to go on from, heartbeats, readers that are slow or leave (R132)."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.http_service import QUESTION, Event, Served, ask_stream, ended, serving, until, watching
from tests.stub_model_server import StubServer, answer, slow, stub_server

TALK = "你能做什么？"
"""A question about the system itself: a short run."""


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as running:
        yield running


@pytest.fixture
async def client(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with served.client() as opened:
        yield opened


def kinds(events: list[Event]) -> list[str]:
    return [event.data["type"] for event in events]


async def test_r132_a_stream_tells_a_whole_run(client: httpx.AsyncClient) -> None:
    events = await ask_stream(client, body={"Id": "s-1"})
    told = kinds(events)
    assert told[0] == "run_started"
    assert told[-3:] == ["content", "result", "done"]
    assert set(told[1:-3]) == {"status"}
    assert all(event.event == event.data["type"] and set(event.data) == {"type", "data"} for event in events)
    assert len({event.id for event in events}) == len(events)
    run_id = events[0].data["data"]["run_id"]
    run = (await client.get(f"/api/runs/{run_id}")).json()
    assert events[-2].data["data"] == {
        "release_outcome": run["release_outcome"],
        "published_result": run["published_result"],
    }
    assert run["published_result"]["conclusion"] in events[-3].data["data"]
    assert (run["question"], run["status"], run["intent"]) == (QUESTION, "SUCCESS", "DIAGNOSIS")
    # R55: what controls collection stays with the operator.
    stages = {event.data["data"]["stage"] for event in events[1:-3]}
    assert "execute_tool" in stages
    assert not stages & {"require_stop", "reject_call", "dedup_scope", "validate_envelope"}
    assert not {"stop_reason", "usage", "internal_state", "total_token_count"} & set(run)

    # Every place of the stream can be gone on from, also long after the end.
    for number in range(0, len(events) - 1, 3):
        event = events[number]
        ways = ({"headers": {"Last-Event-ID": event.id}}, {"params": {"after": event.id}})
        async with watching(client, "GET", f"/api/runs/{run_id}/events", **ways[number % 2]) as stream:
            assert [each async for each in stream.events()] == events[number + 1 :]
            assert stream.retry == 1000
    again = await client.get(f"/api/runs/{run_id}/events", headers={"Last-Event-ID": events[-1].id})
    assert again.status_code == 204
    body, last = {"Id": "s-1", "Question": TALK}, {"Last-Event-ID": events[-1].id}
    assert (await client.post("/api/chat_stream", json=body, headers=last)).status_code == 204
    # A client that can only post asks again with the id it has seen last: no second run begins.
    more = await ask_stream(client, body={"Id": "s-1"}, headers={"Last-Event-ID": events[-3].id})
    assert more == events[-2:]
    assert (await client.get("/api/chat/session/s-1")).json()["data"]["messagePairCount"] == 1


async def test_r132_the_base_projects_clients_get_message_events(client: httpx.AsyncClient) -> None:
    events = await ask_stream(client, TALK, params={"compat": "message"})
    assert {event.event for event in events} == {"message"}
    assert kinds(events)[-1] == "done"
    assert isinstance(events[-3].data["data"], str)


@asynccontextmanager
async def stalled(folder: Path, seconds: float, **settings: object) -> AsyncIterator[tuple[Served, StubServer]]:
    """Serve over a model whose first answer takes its time."""
    routed = answer('{"intent":"SYSTEM_CHAT"}')
    async with (
        stub_server(slow(seconds, routed), answer("I diagnose incidents.")) as stub,
        serving(folder, model="openai:stub", api_key="k", base_url=stub.url, **settings) as served,
    ):
        yield served, stub


async def test_r132_silence_is_filled_with_comments(tmp_path: Path) -> None:
    async with stalled(tmp_path, 1.0, heartbeat_seconds=0.2) as (served, _), served.client() as client:
        body = {"Question": TALK}
        async with watching(client, "POST", "/api/chat_stream", json=body) as stream:
            events = [event async for event in stream.events(comments=True)]
    comments = [event for event in events if event.comment]
    assert len(comments) >= 2
    assert kinds([event for event in events if not event.comment])[-1] == "done"
    assert sum(line == "" for line in stream.lines) >= len(events)


async def test_r132_a_broken_stream_is_gone_on_with_while_the_run_works(tmp_path: Path) -> None:
    async with stalled(tmp_path, 1.0) as (served, _):
        async with served.client() as client:
            async with watching(client, "POST", "/api/chat_stream", json={"Question": TALK}) as stream:
                first = await anext(stream.events())
            run_id = first.data["data"]["run_id"]
            url = f"/api/runs/{run_id}/events"
            async with watching(client, "GET", url, headers={"Last-Event-ID": first.id}) as stream:
                rest = [event async for event in stream.events()]
            async with watching(client, "GET", url) as stream:
                assert [event async for event in stream.events()] == [first, *rest]
        assert kinds(rest) == ["status", "status", "content", "result", "done"]
        assert (await ended(served, run_id)).release_outcome == "CHAT"


@pytest.mark.parametrize("cancels", [False, True])
async def test_r134_a_client_that_leaves_ends_the_run_only_when_it_said_so(tmp_path: Path, cancels: bool) -> None:
    async with stalled(tmp_path, 1.5) as (served, stub):
        async with served.client() as client:
            params = {"cancel_on_disconnect": str(cancels).lower()}
            body = {"Question": TALK}
            async with watching(client, "POST", "/api/chat_stream", json=body, params=params) as stream:
                reading = stream.events()
                first = await anext(reading)
                await until(lambda: len(stub.requests) == 1)
        run = await ended(served, first.data["data"]["run_id"])
        assert run.internal_state == ("CANCELLED" if cancels else "SUCCESS")
        assert len(stub.requests) == (1 if cancels else 2)


async def test_r134_a_cancel_that_nobody_waits_for_fails_without_a_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(run_id: str) -> None:
        raise OSError("MARKER: server at db.internal, user superbiz")

    async with stalled(tmp_path, 1.5) as (served, stub):
        monkeypatch.setattr(served.service.manager, "_cancel", unreachable)
        async with served.client() as client:
            for number, url in enumerate(("/api/chat_stream", "/api/chat"), start=1):
                body = {"Question": TALK, "Id": f"s-{number}"}
                asked = asyncio.create_task(client.post(f"{url}?cancel_on_disconnect=true", json=body))
                await until(lambda number=number: len(stub.requests) >= number)
                asked.cancel()
                await until(lambda number=number: caplog.text.count("could not be cancelled: OSError") == number)
        asyncio.get_running_loop().create_task(unreachable("run-1"), name="nobody waits for it")
        await until(lambda: "failed that nobody waited for" in (gc.collect(), caplog.text)[1])
    assert "MARKER" not in caplog.text


async def test_r132_a_reader_that_does_not_read_holds_nothing_up(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            reader.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(reader, (host, int(port)))
            body = b'{"Id":"slow","Question":"' + QUESTION.encode() + b'"}'
            head = f"POST /api/chat_stream HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            await loop.sock_sendall(reader, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            manager = served.service.manager
            await until(lambda: any(manager.steps(each) for each in manager.active))
            (run_id,) = manager.active
            assert (await ended(served, run_id)).internal_state == "SUCCESS"
            # Not a byte was taken until here; now all of it is.
            received = b""
            while b'"type":"done"' not in received:
                received += await asyncio.wait_for(loop.sock_recv(reader, 65536), 20)
        assert received.count(b"event: done") == 1


async def test_r132_another_process_tells_the_same_events(tmp_path: Path) -> None:
    async with serving(tmp_path) as first, first.client() as client:
        events = await ask_stream(client, TALK)
    run_id = events[0].data["data"]["run_id"]
    async with (
        serving(tmp_path) as second,
        second.client() as client,
        watching(client, "GET", f"/api/runs/{run_id}/events") as stream,
    ):
        assert [event async for event in stream.events()] == events
