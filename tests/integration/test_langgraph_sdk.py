"""What LangGraph Studio calls, through the SDK against `langgraph dev`: streams, forks, edits, cancels, double texting."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import APIStatusError

from graph.contract import RunState
from service.store.status import TERMINAL
from tests.graph_server import GraphServer

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("langgraph_api") is None, reason="the extra `server` is not installed"),
    pytest.mark.xdist_group("langgraph_dev"),
]
QUESTION = {"query": "why do orders fail?"}


@pytest.fixture
async def client(server: GraphServer) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=server.url) as client:
        yield client


async def _thread(client: LangGraphClient) -> str:
    return (await client.threads.create())["thread_id"]


async def _finished(client: LangGraphClient) -> tuple[str, dict[str, Any]]:
    thread_id = await _thread(client)
    values = await client.runs.wait(thread_id, "diagnosis", input=QUESTION)
    assert isinstance(values, dict)
    return thread_id, values


@pytest.fixture(scope="module")
def finished(server: GraphServer) -> tuple[str, dict[str, Any], list[Any]]:
    """A finished thread, its values and its history before anything was forked off it; forks and edits start from there."""

    async def ask() -> tuple[str, dict[str, Any], list[Any]]:
        async with get_client(url=server.url) as client:
            thread_id, values = await _finished(client)
            return thread_id, values, list(await client.threads.get_history(thread_id, limit=100))

    return asyncio.run(ask())


async def test_r4_every_stream_mode_shows_the_run_node_by_node(client: LangGraphClient) -> None:
    thread_id, events = await _thread(client), dict[str, list[Any]]()
    modes: Any = ["values", "updates", "custom", "tasks"]
    async for part in client.runs.stream(thread_id, "diagnosis", input=QUESTION, stream_mode=modes):
        events.setdefault(part.event, []).append(part.data)
    assert "error" not in events
    nodes = [name for update in events["updates"] for name in update]
    assert nodes[:5] == ["start_run", "model_step", "validate_envelope", "dedup_scope", "execute_tool"]
    assert nodes[-1] == "release"
    assert [task["name"] for task in events["tasks"] if "triggers" in task] == nodes
    assert [note["node"] for note in events["custom"]] == nodes
    assert all(note["step"] for note in events["custom"])
    assert events["values"][-1]["outcome"]["release_outcome"] == "CONCLUSION"
    assert len(await client.threads.get_history(thread_id, limit=100)) == len(nodes) + 2


async def test_r3_a_fork_at_every_checkpoint_ends_legally_as_a_new_run(
    server: GraphServer, client: LangGraphClient, finished: tuple[str, dict[str, Any], list[Any]]
) -> None:
    thread_id, values, states = finished
    old = await server.record(values["run"]["run_id"])
    history = [state for state in states if state["next"]]
    assert len(history) == 17
    seen = {old.run_id}
    for state in history:
        forked = await client.runs.wait(thread_id, "diagnosis", input=None, checkpoint=state["checkpoint"])
        assert isinstance(forked, dict), state["next"]
        assert "run" in forked, (state["next"], forked)
        record = await server.record(forked["run"]["run_id"])
        assert record.run_id not in seen, state["next"]
        seen.add(record.run_id)
        started_over = state["next"] in (["__start__"], ["start_run"])
        assert record.forked_from == (None if started_over else old.run_id), state["next"]
        assert record.internal_state is RunState.SUCCESS
        assert record.published_result == old.published_result
        # The thread can still be looked at: its messages are those of the fork.
        shown: Any = await client.threads.get_state(thread_id)
        assert [each["id"] for each in shown["values"]["messages"]] == [each["id"] for each in forked["messages"]]
    assert await client.threads.get_history(thread_id, limit=1000)
    assert await server.record(old.run_id) == old


EDITS: list[tuple[str, str, dict[str, Any], str]] = [
    # where, channel edited, its new value (merged into the old one), the outcome that the rules demand
    ("dedup_scope", "call", {"input": {"topic": "app", "query": "retrying", "lookback_minutes": 60}}, "CONCLUSION"),
    ("model_step", "tracker", {"no_gain_threshold": 2}, "CONCLUSION"),
    ("model_step", "tracker", {"protocol_violation_threshold": 3}, "CONCLUSION"),
    ("model_step", "budget", {"tool_calls": 16}, "CONCLUSION"),
    ("model_step", "ledger", {}, "CONCLUSION"),
    ("project_progress", "draft", {"conclusion": None}, "FALLBACK"),
    ("guard_semantics", "guard", {}, "CONCLUSION"),
    ("release", "snapshot", {"observed_facts": []}, "CONCLUSION"),
]


@pytest.mark.parametrize(("node", "channel", "change", "outcome"), EDITS)
async def test_r3_an_edited_channel_leads_where_the_rules_say(
    server: GraphServer,
    client: LangGraphClient,
    finished: tuple[str, dict[str, Any], list[Any]],
    node: str,
    channel: str,
    change: dict[str, Any],
    outcome: str,
) -> None:
    thread_id, values, history = finished
    place = next(state for state in history if list(state["next"]) == [node])
    edited = {**place["values"][channel], **change}
    # The checkpoint before the place is where its predecessor's work is replaced by the edit.
    before = history[history.index(place) + 1]
    changed = await client.threads.update_state(
        thread_id, {channel: edited}, as_node=next(iter(before["next"])), checkpoint=place["checkpoint"]
    )
    forked = await client.runs.wait(thread_id, "diagnosis", input=None, checkpoint=changed["checkpoint"])
    assert isinstance(forked, dict)
    assert "run" in forked, forked
    record = await server.record(forked["run"]["run_id"])
    assert record.forked_from == values["run"]["run_id"]
    assert record.release_outcome.value == outcome


async def test_r3_an_edit_into_nonsense_is_refused_and_no_run_is_made(
    server: GraphServer, client: LangGraphClient, finished: tuple[str, dict[str, Any], list[Any]]
) -> None:
    thread_id, _, history = finished
    place = next(
        state for state in history if list(state["next"]) == ["model_step"] and state["values"]["position"]["turn"]
    )
    changed = await client.threads.update_state(
        thread_id,
        {"tracker": {"no_gain_threshold": "many"}},
        as_node="project_observation",
        checkpoint=place["checkpoint"],
    )
    before = await server.newest(1)
    run = await client.runs.create(thread_id, "diagnosis", input=None, checkpoint=changed["checkpoint"])
    await client.runs.join(thread_id, run["run_id"])
    assert (await client.runs.get(thread_id, run["run_id"]))["status"] == "error"
    assert await server.newest(1) == before


@pytest.mark.slow
async def test_r4_interrupt_before_any_node_works(client: LangGraphClient) -> None:
    thread_id = await _thread(client)
    await client.runs.wait(thread_id, "diagnosis", input=QUESTION, interrupt_before="*")
    passed = []
    while (state := await client.threads.get_state(thread_id))["next"]:
        passed += list(state["next"])
        await client.runs.wait(thread_id, "diagnosis", input=None, interrupt_before="*")
    assert passed[0] == "start_run"
    assert passed[-1] == "release"
    assert len(passed) == 16
    assert state["values"]["outcome"]["release_outcome"] == "CONCLUSION"


@pytest.mark.parametrize("action", ["interrupt", "rollback"])
async def test_r119_cancel_ends_the_run_as_cancelled(server: GraphServer, client: LangGraphClient, action: Any) -> None:
    thread_id, asked = await _thread(client), len(server.model.asked)
    run = await client.runs.create(thread_id, "diagnosis", input=QUESTION, context={"model": "openai:slow-30"})
    await server.model.is_asked_again(asked)
    await client.runs.cancel(thread_id, run["run_id"], wait=True, action=action)
    (record,) = await server.newest(1)
    assert record.internal_state is RunState.CANCELLED
    assert record.release_outcome.value == "NONE"
    left = [each["run_id"] for each in await client.runs.list(thread_id)]
    assert left == ([run["run_id"]] if action == "interrupt" else [])


@pytest.mark.parametrize("strategy", ["reject", "enqueue", "interrupt", "rollback"])
async def test_r134_double_texting_leaves_every_run_with_one_end(
    server: GraphServer, client: LangGraphClient, strategy: Any
) -> None:
    thread_id, asked = await _thread(client), len(server.model.asked)
    first = await client.runs.create(thread_id, "diagnosis", input=QUESTION, context={"model": "openai:slow-0.7"})
    await server.model.is_asked_again(asked)
    if strategy == "reject":
        with pytest.raises(APIStatusError) as refused:
            await client.runs.create(thread_id, "diagnosis", input=QUESTION, multitask_strategy=strategy)
        assert refused.value.status_code == 409
        await client.runs.join(thread_id, first["run_id"])
        (record,) = await server.newest(1)
        assert record.internal_state is RunState.SUCCESS
        return
    second = await client.runs.create(thread_id, "diagnosis", input=QUESTION, multitask_strategy=strategy)
    await client.runs.join(thread_id, second["run_id"])
    later, earlier = await server.newest(2)
    assert {earlier.internal_state, later.internal_state} <= TERMINAL
    assert later.internal_state is RunState.SUCCESS
    assert later.forked_from is None
    expected = RunState.SUCCESS if strategy == "enqueue" else RunState.CANCELLED
    assert earlier.internal_state is expected
