"""The graph on LangGraph's development server: schemas, a run, its history, and a fork (R3)."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from service.replay.text import read_bundle, write_bundle
from tests.graph_server import GraphServer
from tests.replays import assert_replays

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("langgraph_api") is None, reason="the extra `server` is not installed"),
    pytest.mark.xdist_group("langgraph_dev"),
]


@pytest.fixture
async def client(server: GraphServer) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=server.url) as client:
        yield client


@pytest.mark.parametrize("graph", ["chat", "diagnosis"])
async def test_schemas_make_a_form(client: LangGraphClient, graph: str) -> None:
    assistants = await client.assistants.search(graph_id=graph)
    schemas = await client.assistants.get_schemas(assistants[0]["assistant_id"])
    asked = schemas["input_schema"]
    assert asked is not None
    assert set(asked["properties"]) == {"query", "session_id"}
    assert asked["required"] == ["query"]
    context = schemas["context_schema"]
    assert context is not None
    for name, field in context["properties"].items():
        assert field.get("description"), name
    threshold = context["properties"]["no_gain_threshold"]
    # The configured value is what the form starts from.
    assert (threshold["minimum"], threshold["maximum"], threshold["default"]) == (1, 50, 1)


async def test_r3_a_fork_is_a_new_run_and_leaves_the_old_one_alone(
    server: GraphServer, client: LangGraphClient
) -> None:
    thread = await client.threads.create()
    thread_id = thread["thread_id"]
    first = await client.runs.wait(thread_id, "diagnosis", input={"query": "why do orders fail?"})
    assert isinstance(first, dict)
    old_id = first["run"]["run_id"]
    old, old_trace = await server.record(old_id), await server.trace(old_id)
    assert old.release_outcome.value == "CONCLUSION"
    assert old.forked_from is None
    assert old.stop_reason is None

    history = await client.threads.get_history(thread_id, limit=100)
    place = next(
        state
        for state in history
        if list(state["next"]) == ["dedup_scope"] and state["values"]["call"]["evaluation"] is not None
    )
    call = place["values"]["call"]
    edited = {**call, "evaluation": {**call["evaluation"], "information_gain": "NO_GAIN"}}
    changed = await client.threads.update_state(
        thread_id,
        {"call": edited},
        as_node="validate_envelope",
        checkpoint=place["checkpoint"],
    )
    second = await client.runs.wait(thread_id, "diagnosis", input=None, checkpoint=changed["checkpoint"])
    assert isinstance(second, dict)
    new_id = second["run"]["run_id"]
    assert new_id != old_id
    new, new_trace = await server.record(new_id), await server.trace(new_id)
    assert new.forked_from == old_id
    assert new.internal_state.value == "SUCCESS"
    # The edited evaluation reached the threshold of 1: the second call was refused, the draft still released.
    assert new.stop_reason == "INFORMATION_SATURATED"
    assert new.release_outcome.value == "CONCLUSION"
    gains = [fields for kind, fields in new_trace if kind == "INFORMATION_GAIN_APPLIED"]
    assert [gain["information_gain"] for gain in gains] == ["NO_GAIN"]

    copied = await server.canonical(new_id, "c1")
    original = await server.canonical(old_id, "c1")
    assert copied is not None
    assert original is not None
    assert copied.agent_result == original.agent_result
    assert await server.canonical(new_id, "c2") is None
    assert await server.canonical(old_id, "c2") is not None
    assert await server.record(old_id) == old
    assert await server.trace(old_id) == old_trace


async def test_r67_r154_a_run_of_this_server_and_its_fork_are_exported_and_replayed_identically(
    server: GraphServer, client: LangGraphClient
) -> None:
    thread_id = (await client.threads.create())["thread_id"]
    first = await client.runs.wait(thread_id, "diagnosis", input={"query": "why do orders fail?"})
    history = await client.threads.get_history(thread_id, limit=100)
    place = next(state for state in history if list(state["next"]) == ["dedup_scope"])
    second = await client.runs.wait(thread_id, "diagnosis", input=None, checkpoint=place["checkpoint"])
    for state, is_fork in ((first, False), (second, True)):
        assert isinstance(state, dict)
        bundle = await server.bundle(state["run"]["run_id"])
        assert bool(bundle.by_kind["fork"]) is is_fork
        await assert_replays(read_bundle(write_bundle(bundle).encode()))


async def test_a_question_that_cannot_be_diagnosed_ends_the_run_without_a_record(
    server: GraphServer, client: LangGraphClient
) -> None:
    before = await server.newest(100)
    thread = await client.threads.create()
    run = await client.runs.create(thread["thread_id"], "diagnosis", input={"query": "   "})
    await client.runs.join(thread["thread_id"], run["run_id"])
    ended = await client.runs.get(thread["thread_id"], run["run_id"])
    assert ended["status"] == "error"
    assert await server.newest(100) == before


def test_nothing_blocked_the_event_loop(server: GraphServer) -> None:
    log = (Path(server.settings.home).parent / "server.log").read_text(errors="replace")
    assert "Blocking call" not in log
