"""The graph on LangGraph's development server: schemas, a run, its history, and a fork (R3)."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from nodes.ports import RunRecord
from service.app import open_canonical, open_stores
from service.settings import Settings
from tests.langgraph_dev import langgraph_dev
from tests.scenes import conclusion, log_call, write_answers, write_scene
from tools.contract import CanonicalRecord

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("langgraph_api") is None, reason="the extra `server` is not installed"
)


@dataclass(frozen=True)
class Server:
    url: str
    settings: Settings

    async def record(self, run_id: str) -> RunRecord:
        async with open_stores(self.settings) as (runs, _):
            record = await runs.get(run_id)
        assert record is not None
        return record

    async def trace(self, run_id: str) -> list[tuple[str, dict[str, Any]]]:
        async with open_stores(self.settings) as (_, journal):
            return [(row.type.value, dict(row.fields)) for row in await journal.trace(run_id)]

    async def canonical(self, run_id: str, call_id: str) -> CanonicalRecord | None:
        async with open_canonical(self.settings) as store:
            return await store.get(run_id, call_id)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    catalog, home = write_scene(folder), folder / "home"
    script = [
        log_call("c1", "timeout"),
        log_call("c2", "pool", ("c1", "GAINED")),
        conclusion("c1"),
    ]
    variables = {
        "SUPERBIZ_CATALOG": str(catalog),
        "SUPERBIZ_HOME": str(home),
        "SUPERBIZ_LANGUAGE": "en",
        "SUPERBIZ_NO_GAIN_THRESHOLD": "1",
        "SUPERBIZ_MODEL": write_answers(folder / "answers.json", script),
    }
    with langgraph_dev(folder, variables) as url:
        yield Server(url, Settings(home=home))


@pytest.fixture
async def client(server: Server) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=server.url) as client:
        yield client


async def test_schemas_make_a_form(client: LangGraphClient) -> None:
    assistants = await client.assistants.search(graph_id="diagnosis")
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


async def test_r3_a_fork_is_a_new_run_and_leaves_the_old_one_alone(server: Server, client: LangGraphClient) -> None:
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


async def test_a_question_that_cannot_be_diagnosed_ends_the_run_without_a_record(
    server: Server, client: LangGraphClient
) -> None:
    async with open_stores(server.settings) as (runs, _):
        before = await runs.runs(100)
    thread = await client.threads.create()
    run = await client.runs.create(thread["thread_id"], "diagnosis", input={"query": "   "})
    await client.runs.join(thread["thread_id"], run["run_id"])
    ended = await client.runs.get(thread["thread_id"], run["run_id"])
    assert ended["status"] == "error"
    async with open_stores(server.settings) as (runs, _):
        assert await runs.runs(100) == before


def test_nothing_blocked_the_event_loop(server: Server) -> None:
    log = (Path(server.settings.home).parent / "server.log").read_text(errors="replace")
    assert "Blocking call" not in log
