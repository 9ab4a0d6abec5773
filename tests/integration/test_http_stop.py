"""SIGTERM while a run is in flight: the run is handed over, not lost (R3, R119)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx

from graph.contract import RunState
from service.home import open_stores
from service.replay.export import export_run
from service.settings import load_settings
from service.store.status import TERMINAL
from tests.http_service import QUESTION, ended, process, serving, until, watching
from tests.replays import assert_replays
from tests.stub_model_server import answer, slow, stub_server


async def test_r3_r116_a_stopped_service_leaves_its_runs_to_the_next_start(tmp_path: Path) -> None:
    routed, text = answer('{"intent":"SYSTEM_CHAT"}'), answer("I diagnose incidents.")
    async with stub_server(routed, slow(60, text), text) as stub:
        model = {"model": "openai:stub", "api_key": "k", "base_url": stub.url}
        environment = {f"SUPERBIZ_{name.upper()}": value for name, value in model.items()}
        with process(tmp_path, SUPERBIZ_STOP_SECONDS="0.5", **environment) as (running, url):
            async with (
                httpx.AsyncClient(base_url=url, timeout=60) as client,
                watching(client, "POST", "/api/chat_stream", json={"Id": "s", "Question": QUESTION}) as stream,
            ):
                events = []
                async for event in stream.events():
                    events.append(event)
                    if event.data["data"] == {"stage": "route_intent"}:
                        await until(lambda: len(stub.requests) == 2)
                        running.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(running.wait, 30) == 0
        # The stream ended without an end: its client comes back with the last id.
        assert events[-1].event == "status"
        run_id = events[0].data["data"]["run_id"]
        async with serving(tmp_path, **model) as served, served.client() as client:
            record = await served.service.app.runs.get(run_id)
            assert record is not None
            assert record.internal_state not in TERMINAL or record.internal_state == "SUCCESS"
            run = await ended(served, run_id)
            assert (run.internal_state, run.release_outcome) == ("SUCCESS", "CHAT")
            # The call that the stop cut off was made, and what it cost is not known (R116).
            assert run.usage["components"] == {"INTENT_ROUTER": 1, "SYSTEM_CHAT": 2}
            assert (run.usage["usage_unavailable"], run.usage["tokens_reconciled"]) == (1, False)
            await assert_replays(await export_run(run, served.service.app.journal))
            last = {"Last-Event-ID": events[-1].id}
            async with watching(client, "GET", f"/api/runs/{run_id}/events", headers=last) as stream:
                rest = [event async for event in stream.events()]
        assert [event.event for event in rest] == ["status", "content", "result", "done"]
        # The routing call was not made again.
        assert len(stub.requests) == 3


async def test_r116_a_call_that_a_stop_cut_off_counts_where_the_run_is_cancelled_before_it_goes_on(
    tmp_path: Path,
) -> None:
    async with stub_server(slow(60, answer("never"))) as stub:
        model = {"model": "openai:stub", "api_key": "k", "base_url": stub.url}
        async with serving(tmp_path, stop_seconds=0.2, **model) as served, served.client() as client:
            answered = asyncio.create_task(client.post("/api/chat", json={"Id": "s", "Question": QUESTION}))
            await until(lambda: len(stub.requests) == 1)
            (run_id,) = served.service.manager.active
        await asyncio.gather(answered, return_exceptions=True)
        async with open_stores(load_settings(home=tmp_path / "home")) as (runs, _):
            assert await runs.transition(run_id, frozenset({RunState.RUNNING}), RunState.CANCEL_REQUESTED)
        async with serving(tmp_path, **model) as served:
            run = await ended(served, run_id)
            assert (run.internal_state, len(stub.requests)) == ("CANCELLED", 1)
            assert (run.usage["components"], run.usage["usage_unavailable"]) == ({"INTENT_ROUTER": 1}, 1)
            trace = [row.type for row in await served.service.app.journal.trace(run_id)]
            assert trace[-2:] == ["MODEL_CALL", "RUN_ENDED"]
            await assert_replays(await export_run(run, served.service.app.journal))
