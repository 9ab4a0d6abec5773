"""Uploads and alerts over real TCP (R134)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from graph.contract import Intent, RunState
from service.uploads import MAX_NAME_BYTES
from tests.alertmanager import alert, webhook
from tests.http_service import ANN, BOB, TOKENS, serving
from tests.scenes import conclusion, log_call, write_answers, write_scene
from tools.rag import schema
from tools.rag.search import search_index

SLOW = [log_call("c1", "timeout"), {"text": "too late", "seconds": 120}]
QUICK = [log_call("c1", "timeout"), conclusion("c1")]
LIMIT = 2_048


def settings(folder: Path, script: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    name = write_answers(folder / "answers.json", script)
    return {"catalog": folder / "superbiz.toml", "model": name, "language": "en", "max_upload_bytes": LIMIT} | more


def found(folder: Path, query: str) -> list[str]:
    index = schema.index_file(folder / "home" / "knowledge", "runbooks", folder / "runbooks")
    return [hit.source for hit in search_index(index, "runbooks", query, time.monotonic() + 5)]


async def send(client: httpx.AsyncClient, name: str, content: str | bytes, **more: Any) -> httpx.Response:
    return await client.post("/api/upload", files={"file": (name, content)}, **more)


def refusal(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"code", "message"}
    return str(body["message"])


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[tuple[Path, httpx.AsyncClient]]:
    write_scene(tmp_path)
    async with serving(tmp_path, **settings(tmp_path, QUICK)) as served, served.client() as client:
        yield tmp_path, client


async def test_r134_an_uploaded_document_is_searchable_and_replaced(shop: tuple[Path, httpx.AsyncClient]) -> None:
    folder, client = shop
    answer = await send(client, "磁盘.md", "# 磁盘\n\ninodes exhausted")
    assert answer.status_code == 200
    assert answer.json() == {
        "code": 200,
        "message": "success",
        "data": {"document_id": "runbooks/磁盘.md", "chunks": 1, "replaced": False},
    }
    assert found(folder, "inodes exhausted") == ["磁盘.md"]
    again = await send(client, "../磁盘.md", "snapshot quota", data={"knowledge": "runbooks"})
    assert again.json()["data"]["replaced"] is True
    assert (found(folder, "inodes exhausted"), found(folder, "snapshot quota")) == ([], ["磁盘.md"])
    assert sorted(path.name for path in (folder / "runbooks").iterdir()) == ["redis.md", "磁盘.md"]


async def test_r134_uploads_that_are_refused_say_what_is_allowed(shop: tuple[Path, httpx.AsyncClient]) -> None:
    folder, client = shop
    assert refusal(await send(client, "a.exe", b"x"), 422) == "file: the name must end in one of .markdown, .md, .txt"
    assert refusal(await send(client, "a.md", b"\x89PNG\0"), 422) == "file: must be text in UTF-8"
    assert refusal(await send(client, "x" * 300 + ".md", b"x"), 422).endswith(
        f"at most {MAX_NAME_BYTES} bytes in UTF-8"
    )
    assert refusal(await send(client, "", b"x"), 422) == "file: must be a file with a name"
    assert refusal(await send(client, "a.md", b"x", data={"knowledge": "no"}), 422).startswith("knowledge: must be one")
    assert refusal(await send(client, "a.md", b"x" * (LIMIT + 1)), 413) == f"file: at most {LIMIT} bytes are allowed"
    two = [("file", ("a.md", b"x")), ("file", ("b.md", b"y"))]
    assert refusal(await client.post("/api/upload", files=two), 400).startswith("body: must be one `file`")
    assert refusal(await client.post("/api/upload", json={}), 415) == "Content-Type: must be multipart/form-data"
    garbage = {"Content-Type": "multipart/form-data; boundary=x"}
    assert refusal(await client.post("/api/upload", content=b"garbage", headers=garbage), 400)
    assert sorted(path.name for path in (folder / "runbooks").iterdir()) == ["redis.md"]


@pytest.mark.parametrize("told", [True, False], ids=["length told", "chunked"])
async def test_r134_a_body_is_refused_while_it_streams_in(shop: tuple[Path, httpx.AsyncClient], told: bool) -> None:
    _, client = shop
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.md"\r\n\r\n'
        while sent < 4_000_000:
            sent += 100_000
            yield b"x" * 100_000

    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    content: Any = b"".join([part async for part in endless()]) if told else endless()
    answer = await client.post("/api/upload", content=content, headers=headers)
    assert refusal(answer, 413) == f"body: at most {LIMIT + 16_384} bytes are allowed"
    answer = await client.post("/api/chat", json={"Id": "s", "Question": "x" * 70_000})
    assert refusal(answer, 413) == "body: at most 65536 bytes are allowed"
    assert (await client.get("/healthz")).status_code == 200


async def test_r134_a_folder_that_cannot_be_written_changes_nothing(shop: tuple[Path, httpx.AsyncClient]) -> None:
    folder, client = shop
    (folder / "runbooks").rename(folder / "elsewhere")
    message = refusal(await send(client, "a.md", b"x"), 503)
    assert message.startswith("knowledge runbooks: ")
    assert str(folder) not in message


async def test_r134_uploads_and_alerts_need_a_token_where_there_are_some(tmp_path: Path) -> None:
    write_scene(tmp_path)
    async with serving(tmp_path, tokens=TOKENS, **settings(tmp_path, QUICK)) as served, served.client() as client:
        assert (await send(client, "a.md", b"x")).status_code == 401
        assert (await client.post("/api/alerts", json=webhook())).status_code == 401
        evil = {"Origin": "http://evil.example", "Authorization": f"Bearer {ANN}"}
        assert (await send(client, "a.md", b"text", headers=evil)).status_code in (200, 403)
        ann = {"Authorization": f"Bearer {ANN}"}
        bob = {"Authorization": f"Bearer {BOB}"}
        first = (await client.post("/api/alerts", json=webhook(), headers=ann)).json()["run_id"]
        other = (await client.post("/api/alerts", json=webhook(), headers=bob)).json()["run_id"]
        assert first != other
        assert (await client.get(f"/api/runs/{first}", headers=bob)).status_code == 404


async def test_a_page_of_another_site_can_upload_nothing(shop: tuple[Path, httpx.AsyncClient]) -> None:
    _, client = shop
    assert (await send(client, "a.md", b"x", headers={"Origin": "http://evil.example"})).status_code == 403


async def test_an_alert_is_diagnosed_once_in_all_processes_and_after_a_restart(tmp_path: Path) -> None:
    write_scene(tmp_path)
    slow = settings(tmp_path, SLOW)
    async with (
        serving(tmp_path, **slow) as one,
        serving(tmp_path, **slow) as two,
        one.client() as here,
        two.client() as there,
    ):
        posts = [client.post("/api/alerts", json=webhook()) for client in (here, there, here, there)]
        answers = [answer.json() for answer in await asyncio.gather(*posts)]
        (run_id,) = {answer["run_id"] for answer in answers}
        states = sorted(answer["alerts"][0]["state"] for answer in answers)
        assert states == ["JOINED", "JOINED", "JOINED", "STARTED"]
        shown = (await here.get(f"/api/runs/{run_id}")).json()
        assert (shown["session_id"], shown["status"]) == ("alert:1a30ba71cca2921f", "RUNNING")
        assert shown["question"].startswith("Connection pool of payment is exhausted.")
    async with serving(tmp_path, **slow) as restarted, restarted.client() as client:
        answer = (await client.post("/api/alerts", json=webhook())).json()
        assert (answer["run_id"], answer["alerts"][0]["state"]) == (run_id, "JOINED")


async def test_r134_an_alert_of_two_callers_is_two_alerts_and_neither_sees_the_others(tmp_path: Path) -> None:
    write_scene(tmp_path)
    slow = settings(tmp_path, SLOW)
    async with (
        serving(tmp_path, tokens=TOKENS, **slow) as one,
        serving(tmp_path, tokens=TOKENS, **slow) as two,
        one.client(ANN) as ann,
        two.client(BOB) as bob,
        two.client(ANN) as ann_elsewhere,
    ):
        posts = [client.post("/api/alerts", json=webhook()) for client in (ann, bob)]
        first, other = [answer.json()["alerts"][0] for answer in await asyncio.gather(*posts)]
        assert (first["state"], other["state"]) == ("STARTED", "STARTED")
        assert (first["fingerprint"], first["run_id"] == other["run_id"]) == (other["fingerprint"], False)
        for client, own in ((ann_elsewhere, first), (ann, first), (bob, other)):
            again = (await client.post("/api/alerts", json=webhook())).json()["alerts"][0]
            assert again == {**own, "state": "JOINED"}
        for client, theirs in ((ann, other), (bob, first)):
            for method, path in (("GET", ""), ("GET", "/trace"), ("GET", "/events"), ("POST", "/cancel")):
                refused = await client.request(method, f"/api/runs/{theirs['run_id']}{path}")
                assert refused.status_code == 404, path
            turns = (await client.get(f"/api/chat/session/alert:{theirs['fingerprint']}")).text
            assert theirs["run_id"] not in turns
        # The other's cancel touches only its own.
        assert (await bob.post(f"/api/runs/{other['run_id']}/cancel")).status_code == 202
        assert (await ann.get(f"/api/runs/{first['run_id']}")).json()["status"] == "RUNNING"


async def test_an_alert_says_when_it_began_and_is_known_after_its_diagnosis(tmp_path: Path) -> None:
    write_scene(tmp_path)
    async with serving(tmp_path, **settings(tmp_path, QUICK)) as served, served.client() as client:
        first = await client.post("/api/alerts", json=webhook(alert(startsAt="2026-03-01T03:10:00.5Z")))
        assert first.status_code == 202
        record = await served.service.manager.wait(first.json()["run_id"])
        assert record is not None
        assert (record.internal_state, record.intent) == (RunState.SUCCESS, Intent.DIAGNOSIS)
        events = await served.service.app.journal.trace(record.run_id)
        assert all(event.fields.get("component") != "INTENT_ROUTER" for event in events)
        assert (record.context or {})["at"] == "2026-03-01T03:10:00.500000+00:00"
        second = await client.post("/api/alerts", json=webhook(alert(startsAt="2026-03-01T03:10:00.5Z")))
        assert second.status_code == 200
        assert second.json()["alerts"] == [
            {"fingerprint": "1a30ba71cca2921f", "state": "KNOWN", "run_id": record.run_id}
        ]


async def test_where_there_is_no_room_alertmanager_is_asked_to_come_again(tmp_path: Path) -> None:
    write_scene(tmp_path)
    async with serving(tmp_path, **settings(tmp_path, SLOW, max_runs=1)) as served, served.client() as client:
        answer = await client.post("/api/alerts", json=webhook(alert("a"), alert("b")))
        assert refusal(answer, 503) == "at most 1 runs at once are allowed"
        assert answer.headers["retry-after"] == "30"
        assert (await client.post("/api/alerts", json=webhook(alert("a")))).json()["alerts"][0]["state"] == "JOINED"


async def test_hostile_webhooks_are_refused_by_their_place(shop: tuple[Path, httpx.AsyncClient]) -> None:
    _, client = shop

    async def post(body: Any) -> httpx.Response:
        return await client.post("/api/alerts", json=body)

    assert refusal(await post({"version": "4"}), 422).startswith("alerts: ")
    assert refusal(await post(webhook(version="3")), 422).startswith("version: ")
    assert refusal(await post(webhook(alert("../x"))), 422).startswith("alerts.0.fingerprint: ")
    assert refusal(await post(webhook(alert(labels=dict.fromkeys(map(str, range(101)), "x")))), 422)
    assert refusal(await post([]), 422)
    secret = "password=hunter2hunter2"
    assert secret not in refusal(await post(webhook(alert(startsAt=secret))), 422)
    assert refusal(await post(webhook(*[alert(str(n)) for n in range(1001)])), 422).startswith("alerts: ")
    assert refusal(await post(webhook(alert(x="x" * 1_100_000))), 413) == "body: at most 1048576 bytes are allowed"


async def test_r134_a_session_shows_its_turns_and_none_after_a_clear(tmp_path: Path) -> None:
    write_scene(tmp_path)
    routed = {"INTENT_ROUTER/1": {"text": '{"intent": "DIAGNOSIS"}', "usage": [20, 5]}}
    model = write_answers(tmp_path / "chat.json", QUICK, **routed)
    changed = settings(tmp_path, QUICK) | {"model": model}
    async with (
        serving(tmp_path, tokens=TOKENS, **changed) as served,
        served.client(ANN) as ann,
        served.client(BOB) as bob,
    ):
        for question in ("why?", "why again?"):
            assert (await ann.post("/api/chat", json={"Id": "s", "Question": question})).status_code == 200
        assert (await bob.post("/api/chat", json={"Id": "s", "Question": "bob asks"})).status_code == 200
        shown = (await ann.get("/api/chat/session/s")).json()["data"]
        assert (shown["messagePairCount"], [turn["question"] for turn in shown["turns"]]) == (2, ["why?", "why again?"])
        turn = shown["turns"][0]
        assert "order-service cannot reach redis-01." in turn["answer"]
        assert (turn["status"], turn["intent"], turn["release_outcome"]) == ("SUCCESS", "DIAGNOSIS", "CONCLUSION")
        assert turn["created_at"] < turn["ended_at"]
        runs = served.service.app.runs
        before = await runs.previous_turn("s", "ann")
        assert before is not None
        assert before.query == "why again?"
        assert (await ann.post("/api/chat/clear", json={"Id": "s"})).status_code == 200
        assert (await ann.get("/api/chat/session/s")).status_code == 404
        assert await runs.previous_turn("s", "ann") is None
        assert (await ann.get(f"/api/runs/{turn['run_id']}")).status_code == 200
        assert len((await bob.get("/api/chat/session/s")).json()["data"]["turns"]) == 1
