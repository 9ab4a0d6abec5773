"""The chat graph and the mounted service on LangGraph's development server, as Studio and an HTTP client use them."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from graph.contract import RunState
from graph.state import ChatOutput
from nodes.prompts import COMPONENTS, prompt
from tests.graph_server import GraphServer

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("langgraph_api") is None, reason="the extra `server` is not installed"),
    pytest.mark.xdist_group("langgraph_dev"),
]
QUESTION = {"query": "why do orders fail?"}
MAX_VALUE_CHARS = 4_000
"""What one channel may show in one step of this small incident."""


@pytest.fixture
async def client(server: GraphServer) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=server.url) as client:
        yield client


@pytest.fixture
async def http(server: GraphServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        yield http


async def test_r97_every_stream_mode_shows_a_chat_and_its_output_is_narrow(client: LangGraphClient) -> None:
    thread_id, events = (await client.threads.create())["thread_id"], dict[str, list[Any]]()
    modes: Any = ["values", "updates", "custom", "tasks"]
    stream = client.runs.stream(thread_id, "chat", input=QUESTION, stream_mode=modes, stream_subgraphs=True)
    async for part in stream:
        events.setdefault(part.event.partition("|")[0], []).append((part.event, part.data))
    assert "error" not in events
    outer = [name for event, update in events["updates"] if "|" not in event for name in update]
    assert outer == ["start_run", "route_intent", "diagnosis"]
    inner = [name for event, update in events["updates"] if "|" in event for name in update]
    assert inner[:3] == ["start_run", "model_step", "validate_envelope"]
    assert inner[-1] == "release"
    # What a user may see of a stream is the output, not the operator's channels (R55).
    shown = [data for event, data in events["values"] if "|" not in event]
    updates = [update for event, data in events["updates"] if "|" not in event for update in data.values()]
    last = shown[-1]
    assert all(set(each) <= set(ChatOutput.__annotations__) for each in (last, *updates))
    for each in (*shown, *updates):
        # Neither a log line nor a call of the model's.
        assert not [word for word in ("ERROR order-service", "previous_observation") if word in json.dumps(each)]
    everything = json.dumps(events, ensure_ascii=False)
    for component in COMPONENTS:
        begins = json.dumps(prompt(component, "en").splitlines()[0], ensure_ascii=False)[1:-1]
        assert begins not in everything, component
    assert last["release_outcome"] == "CONCLUSION"
    waited = await client.runs.wait((await client.threads.create())["thread_id"], "chat", input=QUESTION)
    assert set(waited) <= set(ChatOutput.__annotations__)


@pytest.mark.parametrize("graph", ["diagnosis", "chat"])
async def test_every_channel_is_readable_at_every_step(client: LangGraphClient, graph: str) -> None:
    thread_id = (await client.threads.create())["thread_id"]
    async for part in client.runs.stream(
        thread_id, graph, input=QUESTION, stream_mode=["values", "updates"], stream_subgraphs=True
    ):
        if part.event.startswith("updates"):
            for node, update in part.data.items():
                for channel, value in update.items():
                    assert len(json.dumps(value, ensure_ascii=False)) <= MAX_VALUE_CHARS, (node, channel)
                if graph == "chat" and "|" not in part.event:
                    # An update outside shows what the output has: nothing of the operator's (R55).
                    assert set(update) <= set(ChatOutput.__annotations__)
                else:
                    assert 0 < len(update["step"]) <= 300, node
    history = await client.threads.get_history(thread_id, limit=100)
    assert all(0 < len(state["values"]["step"]) <= 300 for state in history[:-2])


@pytest.mark.parametrize(
    ("graph", "conditional"),
    [
        (
            "chat",
            {("route_intent", to) for to in ("system_chat", "answer_knowledge", "diagnosis", "release")},
        ),
        ("diagnosis", {("model_step", "validate_envelope"), ("model_step", "project_progress")}),
    ],
)
async def test_the_drawn_graph_is_complete(
    client: LangGraphClient, graph: str, conditional: set[tuple[str, str]]
) -> None:
    (assistant,) = await client.assistants.search(graph_id=graph)
    drawn: Any = await client.assistants.get_graph(assistant["assistant_id"])
    nodes = {node["id"] for node in drawn["nodes"]}
    edges = {(edge["source"], edge["target"]): bool(edge.get("conditional")) for edge in drawn["edges"]}
    assert {name for edge in edges for name in edge} == nodes
    assert {edge for edge, is_conditional in edges.items() if is_conditional} >= conditional
    # Every node is reached and left: none hangs in the air.
    assert nodes - {target for _, target in edges} == {"__start__"}
    assert nodes - {source for source, _ in edges} == {"__end__"}


@pytest.mark.slow
async def test_r3_a_fork_at_every_checkpoint_of_a_chat_ends_as_a_new_run(
    server: GraphServer, client: LangGraphClient
) -> None:
    thread_id = (await client.threads.create())["thread_id"]
    values: Any = await client.runs.wait(thread_id, "chat", input=QUESTION)
    seen = {values["run_id"]}
    old = await server.record(values["run_id"])
    history = [state for state in await client.threads.get_history(thread_id, limit=100) if state["next"]]
    assert [state["next"][0] for state in history] == ["diagnosis", "route_intent", "start_run", "__start__"]
    for state in history:
        forked: Any = await client.runs.wait(thread_id, "chat", input=None, checkpoint=state["checkpoint"])
        record = await server.record(forked["run_id"])
        assert record.run_id not in seen, state["next"]
        seen.add(record.run_id)
        assert (record.internal_state, record.published_result) == (RunState.SUCCESS, old.published_result)
    assert await server.record(old.run_id) == old


async def test_r134_a_question_over_http_is_carried_by_the_host(
    server: GraphServer, client: LangGraphClient, http: httpx.AsyncClient
) -> None:
    answer = (await http.post("/api/chat", json={"Id": "hosted", "Question": QUESTION["query"]})).json()["data"]
    assert answer["release_outcome"] == "CONCLUSION"
    record = await server.record(answer["run_id"])
    (run,) = await client.runs.list(record.run_id)
    assert run["run_id"] == record.execution_id
    assert (await client.threads.get(record.run_id))["status"] == "idle"
    trace = [kind for kind, _ in await server.trace(record.run_id)]
    assert trace.count("RUN_STARTED") == trace.count("RELEASE_DECIDED") == 1
    # Whoever goes on with that thread on the host makes a run of its own and leaves this one alone.
    again: Any = await client.runs.wait(record.run_id, "chat", input=QUESTION)
    assert again["run_id"] != record.run_id
    assert await server.record(record.run_id) == record
    events = await http.get(f"/api/runs/{record.run_id}/events")
    assert "event: done" in events.text


async def test_r119_r134_a_session_has_one_run_and_its_cancel_reaches_the_host(
    server: GraphServer, client: LangGraphClient, http: httpx.AsyncClient
) -> None:
    """The configured model answers at once, so the host is kept busy by other runs until it is asked to cancel."""
    asked = len(server.model.asked)
    slow = {"model": "openai:slow-30"}
    keeping = [await client.runs.create(None, "diagnosis", input=QUESTION, context=slow) for _ in range(10)]
    await server.model.is_asked_again(asked)
    question = {"Id": "busy", "Question": QUESTION["query"]}
    async with http.stream("POST", "/api/chat_stream", json=question) as stream:
        run_id = stream.headers["X-Run-Id"]
        refused = await http.post("/api/chat", json=question)
        assert (refused.status_code, refused.json()["code"]) == (409, "SESSION_BUSY")
        assert (await http.post(f"/api/runs/{run_id}/cancel")).status_code == 202
        lines = [line async for line in stream.aiter_lines()]
    assert "event: error" in lines
    record = await server.record(run_id)
    assert record.internal_state is RunState.CANCELLED
    assert "RUN_STARTED" not in [kind for kind, _ in await server.trace(run_id)]
    for run in keeping:
        await client.runs.cancel(run["thread_id"], run["run_id"], wait=False)
    async with asyncio.timeout(20):
        while await client.runs.list(run_id, status="pending"):  # noqa: ASYNC110 the server tells nobody
            await asyncio.sleep(0.1)
    assert await server.record(run_id) == record
