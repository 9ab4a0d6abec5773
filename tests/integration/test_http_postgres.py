"""The service over PostgreSQL: what it refuses in text, two processes at once, checkpoints side by side (R3, R134)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
from langgraph.checkpoint.base import empty_checkpoint

from graph.contract import Intent
from nodes.ports import ORIGIN
from service.checkpoints import CONNECTIONS, open_checkpoints
from service.settings import Settings
from tests.durable import begin, config_of, opened, settings_of, url_of
from tests.http_service import ended, process, serving
from tests.scenes import LOG
from tests.stores import KINDS
from tests.stub_model_server import answer, slow, stub_server

HELLO = "what can you do?"
NOT_TEXT = ["\\u0000", "\\ud800", "\\udc80\\ud83d"]
"""As JSON writes them: PostgreSQL refuses NUL in text, UTF-8 knows no lone surrogate."""


async def url_on_postgres(name: str) -> str:
    url = await url_of("postgres", name)
    assert url is not None
    return url


async def post(client: httpx.AsyncClient, path: str, body: str) -> httpx.Response:
    return await client.post(path, content=body.encode(), headers={"Content-Type": "application/json"})


async def test_r134_text_that_postgresql_refuses_is_refused_or_cleaned_and_loses_no_run(tmp_path: Path) -> None:
    url = await url_on_postgres("texts")
    async with serving(tmp_path, database_url=url) as served, served.client() as client:
        for bad in NOT_TEXT:
            asked = await post(client, "/api/chat", f'{{"Question": "what can you do{bad}?"}}')
            if bad == "\\u0000":
                assert (asked.status_code, asked.json()["data"]["success"]) == (200, True), asked.text
                turn = await client.get(f"/api/runs/{asked.json()['data']['run_id']}")
                assert turn.json()["question"] == "what can you do\ufffd?"
            else:
                assert (asked.status_code, asked.json()["code"]) == (422, "INVALID_REQUEST")
                assert "Question" in asked.json()["message"]
            for path in ("/api/chat", "/api/chat_stream", "/api/chat/clear"):
                answer = await post(client, path, f'{{"Id": "s{bad}", "Question": "{HELLO}"}}')
                assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST"), (path, bad)
                assert "Id" in answer.json()["message"]
            label = json.loads(f'"shop{bad}x"')
            alert = {
                "status": "firing",
                "labels": {"alertname": "Down", "job": label},
                "annotations": {"summary": label},
            }
            sent = await post(client, "/api/alerts", json.dumps({"version": "4", "alerts": [alert]}))
            assert sent.status_code in {202, 422}, sent.text
            if sent.status_code == 202:
                record = await ended(served, sent.json()["run_id"])
                assert (record.intent, record.error_code) == (Intent.DIAGNOSIS, None)
        for name, data in (("a.md", b"nul \0 here"), ("b.md", "\ud800".encode("utf-8", "surrogatepass"))):
            refused = await client.post("/api/upload", files={"file": (name, data)})
            assert (refused.status_code, refused.json()["code"]) == (422, "INVALID_REQUEST"), refused.text
        for session in ("%00", "s%00", "%ED%A0%80"):
            assert (await client.get(f"/api/chat/session/{session}")).status_code in {404, 422}
        assert all(run.ended_at is not None for run in await served.service.app.runs.runs(100))


async def diagnosed(kind: str, folder: Path) -> tuple[str, list[str]]:
    """Diagnose over a log line that holds NUL and a lone surrogate; return the outcome and what the model was shown."""
    settings = settings_of(folder, await url_of(kind, "results"))
    line = b"2026-03-01T03:07:00Z ERROR order-service timeout \0 \xed\xa0\x80 end\n"
    (folder / "logs" / "app.log").write_bytes(LOG.encode() + b"\n" + line + b"2026-03-01T03:08:00Z INFO idle\n" * 600)
    async with opened(settings) as app:
        await begin(app, "run-1")
        record = await app.runs.get("run-1")
        state = await app.graph.aget_state({"configurable": {"thread_id": "thread-run-1"}})
        assert record is not None
        assert record.error_code is None
        return record.release_outcome, [str(each.content) for each in state.values["messages"]]


async def test_r134_a_tool_result_that_postgresql_refuses_reads_as_on_sqlite(tmp_path: Path) -> None:
    folders = [tmp_path / kind for kind in KINDS]
    await asyncio.to_thread(lambda: [folder.mkdir() for folder in folders])
    on_sqlite, on_postgres = [await diagnosed(folder.name, folder) for folder in folders]
    assert on_sqlite == on_postgres
    assert any("order-service timeout" in text for text in on_postgres[1])


async def test_r134_of_two_processes_asked_for_one_session_at_once_one_begins_a_run(tmp_path: Path) -> None:
    routed, rounds = slow(60, answer('{"intent":"SYSTEM_CHAT"}')), 3
    async with stub_server(*[routed] * rounds) as stub:
        options = {
            "SUPERBIZ_DATABASE_URL": await url_on_postgres("pair"),
            "SUPERBIZ_MODEL": "openai:stub",
            "SUPERBIZ_API_KEY": "k",
            "SUPERBIZ_BASE_URL": stub.url,
        }
        with process(tmp_path, **options) as (_, first), process(tmp_path / "other", **options) as (_, second):
            async with httpx.AsyncClient(timeout=60) as client:
                for number in range(rounds):
                    await _asked_at_once(client, (first, second), f"session-{number}")


async def _asked_at_once(client: httpx.AsyncClient, services: tuple[str, str], session: str) -> None:
    body = {"Id": session, "Question": HELLO}
    asking = {asyncio.create_task(client.post(f"{at}/api/chat", json=body)) for at in services}
    (refused,), (waiting,) = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    assert (refused.result().status_code, refused.result().json()["code"]) == (409, "SESSION_BUSY")
    shown = [(await client.get(f"{at}/api/chat/session/{session}")).json()["data"] for at in services]
    assert [each["messagePairCount"] for each in shown] == [1, 1]
    run_id = shown[0]["active_run_id"]
    assert run_id in refused.result().json()["message"]
    cancels = [await client.post(f"{at}/api/runs/{run_id}/cancel") for at in services]
    assert cancels[0].status_code == 202
    ended_run = (await waiting).json()["data"]
    assert (ended_run["run_id"], ended_run["status"]) == (run_id, "CANCELLED")


async def forked(kind: str, folder: Path) -> dict[str, Any]:
    """Fork a finished run before its second call; return what channels, delta channels among them, hold afterwards."""
    settings = settings_of(folder, await url_of(kind, "forks"))
    async with opened(settings) as app:
        await begin(app, "run-1")
        config: Any = config_of("run-1", "thread-run-1", "00000000-0000-4000-8000-000000000001")
        del config["configurable"][ORIGIN]
        history = [each async for each in app.graph.aget_state_history(config)]
        at = next(each for each in history if each.next == ("model_step",) and len(each.values["tracker_index"]) == 1)
        changed = await app.graph.aupdate_state(at.config, {"step": "looked at by a person"})
        kept = await app.graph.aget_state(changed)
        await app.graph.ainvoke(None, {**config, "configurable": changed["configurable"]}, context=settings.context())
        last = await app.graph.aget_state({"configurable": {"thread_id": "thread-run-1"}})
        held = {name: delta_channels(state.values) for name, state in (("at", at), ("kept", kept), ("last", last))}
        return held | {"outcome": last.values["outcome"]["release_outcome"], "runs": len(await app.runs.runs())}


def delta_channels(values: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return of messages and index what does not tell when and where a run ran."""
    return [str(each.content) for each in values["messages"]], [each["scope_key"] for each in values["tracker_index"]]


async def test_r12_a_fork_on_postgresql_holds_what_it_holds_on_sqlite(tmp_path: Path) -> None:
    folders = [tmp_path / kind for kind in KINDS]
    await asyncio.to_thread(lambda: [folder.mkdir() for folder in folders])
    on_sqlite, on_postgres = [await forked(folder.name, folder) for folder in folders]
    assert on_sqlite == on_postgres
    assert on_sqlite["kept"] == on_sqlite["at"]
    assert (len(on_sqlite["last"][1]), on_sqlite["runs"]) == (2, 2)


async def test_checkpoints_of_many_runs_are_written_side_by_side(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=await url_on_postgres("pool"))  # type: ignore[arg-type]
    async with open_checkpoints(settings) as saver:

        async def kept(number: int) -> bool:
            config: Any = {"configurable": {"thread_id": f"t-{number}", "checkpoint_ns": ""}}
            checkpoint = empty_checkpoint()
            await saver.aput(config, checkpoint, {"source": "input", "step": number}, {})
            found = await saver.aget_tuple(config)
            return found is not None and found.checkpoint["id"] == checkpoint["id"]

        assert all(await asyncio.gather(*(kept(number) for number in range(30))))
        pool: Any = saver.conn  # type: ignore[attr-defined]
        assert pool.get_stats()["pool_size"] == CONNECTIONS
