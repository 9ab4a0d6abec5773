"""Cancel over real TCP while a model answers slowly and while MySQL computes (R119, R120)."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import httpx
import pytest

from service.replay.export import export_run
from tests.http_service import Served, ended, serving, until, watching
from tests.mysql_server import account_url, as_root, create_account, fresh_name, require_server
from tests.replays import assert_replays
from tests.stub_model_server import answer, call, slow, stub_server

SLOW_SECONDS = 20.0


async def cancelled(served: Served, client: httpx.AsyncClient, run_id: str) -> float:
    """Cancel; return how long the run took to its end, in seconds."""
    begun = time.monotonic()
    response = await client.post(f"/api/runs/{run_id}/cancel")
    acknowledged = time.monotonic() - begun
    assert (response.status_code, response.json()["state"]) == (202, "CANCEL_REQUESTED")
    run = await ended(served, run_id)
    took = time.monotonic() - begun
    assert acknowledged <= took
    assert (run.internal_state, run.release_outcome, run.error_code) == ("CANCELLED", "NONE", "CANCELLED")
    assert run.published_result is None
    assert run.fallback is None
    types: list[str] = []
    async with asyncio.timeout(10):
        # The last event is written after the end.
        while "RUN_ENDED" not in types:
            trace = (await client.get(f"/api/runs/{run_id}/trace")).json()
            types = [event["type"] for event in trace["events"]]
    assert types.index("RUN_CANCEL_REQUESTED") < types.index("RUN_ENDED")
    assert types.count("RUN_ENDED") == 1
    async with watching(client, "GET", f"/api/runs/{run_id}/events") as stream:
        events = [event async for event in stream.events()]
    assert events[-1].event == "error"
    assert events[-1].data["data"]["code"] == "CANCELLED"
    assert {event.event for event in events[:-1]} <= {"run_started", "status"}
    again = await client.post(f"/api/runs/{run_id}/cancel")
    assert (again.status_code, again.json()) == (200, {"run_id": run_id, "state": "CANCELLED"})
    return took


async def a_gap_and_no_zero(served: Served, run_id: str) -> None:
    """The call was made: row and trace count it, and know that they do not know its tokens."""
    app = served.service.app
    run = await app.runs.get(run_id)
    assert run is not None
    assert (run.usage["components"], run.usage["usage_unavailable"]) == ({"INTENT_ROUTER": 1}, 1)
    assert (run.usage["model_calls"], run.usage["tokens_reconciled"]) == (1, False)
    *_, called, ended = [(row.type, dict(row.fields)) for row in await app.journal.trace(run_id)]
    assert called == ("MODEL_CALL", {"component": "INTENT_ROUTER", "component_round": 1, "usage_available": False})
    assert (ended[0], ended[1]["model_calls"], ended[1]["usage_unavailable"]) == ("RUN_ENDED", 1, 1)
    await assert_replays(await export_run(run, app.journal))


async def test_r116_r119_a_slow_model_call_is_cut_off(tmp_path: Path) -> None:
    async with (
        stub_server(slow(SLOW_SECONDS, answer('{"intent":"SYSTEM_CHAT"}'))) as stub,
        serving(tmp_path, model="openai:stub", api_key="k", base_url=stub.url) as served,
        served.client() as client,
    ):
        asking = asyncio.create_task(client.post("/api/chat", json={"Id": "s", "Question": "what can you do?"}))
        await until(lambda: len(stub.requests) == 1)
        (run_id,) = served.service.manager.active
        assert await cancelled(served, client, run_id) < SLOW_SECONDS / 2
        reply = (await asking).json()["data"]
        assert (reply["success"], reply["status"], reply["error_code"]) == (False, "CANCELLED", "CANCELLED")
        assert reply["answer"] is None
        assert len(stub.requests) == 1
        await a_gap_and_no_zero(served, run_id)


async def test_r119_another_processs_run_is_cancelled_through_the_store(tmp_path: Path) -> None:
    async with (
        stub_server(slow(SLOW_SECONDS, answer('{"intent":"SYSTEM_CHAT"}'))) as stub,
        serving(tmp_path, model="openai:stub", api_key="k", base_url=stub.url) as served,
        serving(tmp_path) as other,
        served.client() as client,
        other.client() as elsewhere,
    ):
        asking = asyncio.create_task(client.post("/api/chat", json={"Id": "s", "Question": "what can you do?"}))
        await until(lambda: len(stub.requests) == 1)
        (run_id,) = served.service.manager.active
        assert run_id not in other.service.manager.active
        assert await cancelled(other, elsewhere, run_id) < SLOW_SECONDS / 2
        assert (await asking).json()["data"]["status"] == "CANCELLED"


CATALOG = """
[[datasource]]
name = "shop"
description = "orders"
dsn_env = "SHOP_DSN"
tables.numbers = ["n"]
"""
SLOW_QUERY = "SELECT COUNT(*) AS c FROM numbers a, numbers b, numbers c, numbers d WHERE a.n + b.n + c.n + d.n = 7"


async def test_r120_a_slow_query_is_killed_at_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await require_server()
    # The tool's own time is short; here only the cancel may end the query.
    for name in ("tools.mysql.tool.TIMEOUT_SECONDS", "tools.mysql.mysql_session.MAX_STATEMENT_SECONDS"):
        monkeypatch.setattr(name, int(SLOW_SECONDS))
    database, user = fresh_name("superbiz"), fresh_name("u")
    (tmp_path / "superbiz.toml").write_text(CATALOG)
    arguments = json.dumps({"input": {"datasource": "shop", "sql": SLOW_QUERY, "params": []}})
    try:
        rows = [(number,) for number in range(1000)]
        fill = ("CREATE TABLE numbers (n INT)", ("INSERT INTO numbers VALUES (%s)", rows))
        await as_root(f"CREATE DATABASE {database}")
        await as_root(*fill, database=database)
        await create_account(user, f"SELECT ON {database}.*")
        dsn = account_url(user, database).render_as_string(hide_password=False)
        async with (
            stub_server(answer('{"intent":"DIAGNOSIS"}'), answer(calls=[call("c1", "query_mysql", arguments)])) as stub,
            serving(
                tmp_path,
                catalog=tmp_path / "superbiz.toml",
                env={"SHOP_DSN": dsn},
                model="openai:stub",
                api_key="k",
                base_url=stub.url,
            ) as served,
            served.client() as client,
        ):
            asking = asyncio.create_task(client.post("/api/chat", json={"Id": "s", "Question": "how many orders?"}))
            async with asyncio.timeout(30):
                while not await _running(database):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            (run_id,) = served.service.manager.active
            assert await cancelled(served, client, run_id) < SLOW_SECONDS / 2
            async with asyncio.timeout(SLOW_SECONDS / 2):
                while await _running(database):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert (await asking).json()["data"]["status"] == "CANCELLED"
            assert len(stub.requests) == 2
    finally:
        await as_root(f"DROP DATABASE IF EXISTS {database}", f"DROP USER IF EXISTS '{user}'@'%'")


async def _running(database: str) -> bool:
    shown = f"SELECT info FROM information_schema.processlist WHERE db = '{database}' AND command = 'Query'"
    return bool(await as_root(shown))
