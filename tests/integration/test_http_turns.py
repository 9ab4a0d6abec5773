"""More runs than may execute at once: the others wait in order, with their clocks stopped (R117, R119, R134)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from service.runner import Question
from tests.http_service import ended, serving, until, watching
from tests.stub_model_server import answer, slow, stub_server

ROUTED, TEXT = answer('{"intent":"SYSTEM_CHAT"}'), answer("I diagnose incidents.")


async def begun(client: httpx.AsyncClient, session: str) -> str:
    """Ask, read of the run's begin, which a waiting run tells at once, and leave; return its id."""
    body = {"Id": session, "Question": "what can you do?"}
    async with watching(client, "POST", "/api/chat_stream", json=body) as stream:
        first = await anext(stream.events())
    assert first.event == "run_started"
    return str(first.data["data"]["run_id"])


async def test_r117_a_waiting_run_spends_nothing_and_can_be_cancelled(tmp_path: Path) -> None:
    async with (
        stub_server(slow(3, ROUTED), TEXT, ROUTED, TEXT) as stub,
        serving(tmp_path, model="openai:stub", api_key="k", base_url=stub.url, max_executing=1) as served,
        served.client() as client,
    ):
        manager = served.service.manager
        first, second, third = [await begun(client, session) for session in ("first", "second", "third")]
        assert manager.active == {first, second, third}
        await until(lambda: len(stub.requests) == 1)
        assert (await client.post(f"/api/runs/{second}/cancel")).status_code == 202
        cancelled = await ended(served, second)
        assert (cancelled.internal_state, cancelled.usage.get("model_calls", 0)) == ("CANCELLED", 0)
        assert first in manager.active
        before, after = await ended(served, first), await ended(served, third)
        assert (before.release_outcome, after.release_outcome) == ("CHAT", "CHAT")
        clocks = await served.service.app.journal.archived(third, "clock")
        assert before.ended_at is not None
        assert min(clocks[min(clocks)]["readings"]) >= before.ended_at > after.created_at
        assert len(stub.requests) == 4


async def test_a_stop_gives_a_waiting_run_to_the_next_start(tmp_path: Path) -> None:
    async with stub_server(slow(60, ROUTED), ROUTED, TEXT, ROUTED, TEXT) as stub:
        model: dict[str, Any] = {
            "model": "openai:stub",
            "api_key": "k",
            "base_url": stub.url,
            "max_executing": 1,
            "stop_seconds": 0.2,
        }
        async with serving(tmp_path, **model) as served, served.client() as client:
            carried = [await begun(client, session) for session in ("first", "second")]
            await until(lambda: len(stub.requests) == 1)
            assert served.service.manager.active == set(carried)
        async with serving(tmp_path, **model) as served:
            for run_id in carried:
                assert (await ended(served, run_id)).release_outcome == "CHAT"


async def test_r119_a_run_cut_off_at_any_moment_of_its_turn_leaves_the_turn_to_others(tmp_path: Path) -> None:
    """A cancel that falls between the turn and the run's begin must not keep the turn for ever."""
    async with serving(tmp_path, max_executing=1) as served:
        manager = served.service.manager
        for moments in range(12):
            record = await manager.start(Question("what can you do?", f"cut-{moments}"))
            (carried,) = [task for task in asyncio.all_tasks() if task.get_name() == f"run {record.run_id}"]
            for _ in range(moments):
                await asyncio.sleep(0)
            carried.cancel()
            assert (await ended(served, record.run_id)).internal_state == "CANCELLED"
        last = await manager.start(Question("what can you do?", "last"))
        assert (await ended(served, last.run_id, 20)).release_outcome == "CHAT"
