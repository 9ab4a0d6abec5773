"""LangGraph Server with tokens: nobody without one gets in, and nobody sees, ends or takes up what is another's (R134)."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from tests.graph_server import GraphServer, graph_server

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("langgraph_api") is None, reason="the extra `server` is not installed"),
    pytest.mark.xdist_group("langgraph_dev"),
]
TOKENS = {"ada": "ada-0123456789abcdef", "bob": "bob-0123456789abcdef"}
QUESTION = {"query": "why do orders fail?"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphServer]:
    tokens = ",".join(f"{name}:{token}" for name, token in TOKENS.items())
    with graph_server(tmp_path_factory.mktemp("guarded"), tokens) as running:
        yield running


def _bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[name]}"}


@pytest.fixture
async def ada(guarded: GraphServer) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=guarded.url, headers=_bearer("ada")) as client:
        yield client


@pytest.fixture
async def bob(guarded: GraphServer) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=guarded.url, headers=_bearer("bob")) as client:
        yield client


@pytest.fixture
async def http(guarded: GraphServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=guarded.url, timeout=60) as http:
        yield http


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer nobody-0123456789abcdef"},
        {"authorization": "Basic YWRhOmFkYQ=="},
        {"x-auth-scheme": "langsmith"},
        {"x-api-key": TOKENS["ada"]},
    ],
)
async def test_r127_without_a_token_nothing_but_health_answers(
    http: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    asked: list[tuple[str, str, Any]] = [
        ("POST", "/assistants/search", {}),
        ("POST", "/threads", {}),
        ("POST", "/threads/search", {}),
        ("POST", "/runs/wait", {"assistant_id": "chat", "input": QUESTION}),
        ("POST", "/runs/crons/search", {}),
        ("POST", "/store/items/search", {"namespace_prefix": ["a"]}),
        ("POST", "/api/chat", {"Id": "s", "Question": "why?"}),
        ("GET", "/api/runs/x", None),
    ]
    for method, path, body in asked:
        answer = await http.request(method, path, json=body, headers=headers)
        assert answer.status_code == 401, (path, answer.text)
    for path in ("/ok", "/healthz", "/readyz"):
        assert (await http.get(path, headers=headers)).status_code == 200, path


async def test_r134_a_run_belongs_to_the_token_that_asked(
    guarded: GraphServer, ada: LangGraphClient, bob: LangGraphClient, http: httpx.AsyncClient
) -> None:
    forged: Any = {"owner": "bob"}
    thread = await ada.threads.create(metadata=forged)
    assert thread["metadata"] is not None
    assert thread["metadata"]["owner"] == "ada"
    config: Any = {"configurable": {"run_origin": {"run_id": "mine", "owner": "bob"}, "user_id": "bob"}}
    values: Any = await ada.runs.wait(thread["thread_id"], "chat", input=QUESTION, config=config, metadata=forged)
    record = await guarded.record(values["run_id"])
    assert (record.owner, record.run_id == "mine") == ("ada", False)
    assert (await http.get(f"/api/runs/{record.run_id}", headers=_bearer("ada"))).status_code == 200
    assert (await http.get(f"/api/runs/{record.run_id}", headers=_bearer("bob"))).status_code == 404
    await ada.threads.update(thread["thread_id"], metadata=forged)
    assert await _refused(lambda: bob.threads.get(thread["thread_id"]))


async def test_r134_nobody_reaches_another_callers_thread(
    guarded: GraphServer, ada: LangGraphClient, bob: LangGraphClient
) -> None:
    thread_id = (await ada.threads.create())["thread_id"]
    await ada.runs.wait(thread_id, "diagnosis", input=QUESTION)
    (run,) = await ada.runs.list(thread_id)
    checkpoint: Any = (await ada.threads.get_history(thread_id, limit=1))[0]["checkpoint"]
    before = await guarded.newest(50)

    attempts: dict[str, Callable[[], Awaitable[Any]]] = {
        "get": lambda: bob.threads.get(thread_id),
        "state": lambda: bob.threads.get_state(thread_id),
        "history": lambda: bob.threads.get_history(thread_id),
        "update": lambda: bob.threads.update(thread_id, metadata={"a": "b"}),
        "update state": lambda: bob.threads.update_state(thread_id, {"query": "mine"}),
        "copy": lambda: bob.threads.copy(thread_id),
        "delete": lambda: bob.threads.delete(thread_id),
        "run": lambda: bob.runs.create(thread_id, "diagnosis", input=QUESTION),
        "fork": lambda: bob.runs.create(thread_id, "diagnosis", input=None, checkpoint=checkpoint),
        "runs": lambda: bob.runs.list(thread_id),
        "run of": lambda: bob.runs.get(thread_id, run["run_id"]),
        "cancel": lambda: bob.runs.cancel(thread_id, run["run_id"]),
        "join": lambda: bob.runs.join(thread_id, run["run_id"]),
        "delete run": lambda: bob.runs.delete(thread_id, run["run_id"]),
    }
    for name, attempt in attempts.items():
        assert await _refused(attempt, {409} if name == "copy" else {403, 404}), name
    streamed = [part async for part in bob.runs.join_stream(thread_id, run["run_id"])]
    assert [(part.event, "404" in part.data["message"]) for part in streamed] == [("error", True)]
    assert not await bob.threads.search(metadata={"owner": "ada"})
    assert await guarded.newest(50) == before
    assert (await ada.threads.get(thread_id))["status"] == "idle"


async def test_r134_a_forged_state_opens_no_other_callers_run(
    guarded: GraphServer, ada: LangGraphClient, bob: LangGraphClient
) -> None:
    theirs: Any = await ada.runs.wait((await ada.threads.create())["thread_id"], "diagnosis", input=QUESTION)
    thread_id = (await bob.threads.create())["thread_id"]
    await bob.runs.wait(thread_id, "diagnosis", input=QUESTION)
    place = next(state for state in await bob.threads.get_history(thread_id, limit=50) if state["next"] == ["release"])
    before = await guarded.newest(50)
    values: Any = place["values"]
    changed = await bob.threads.update_state(
        thread_id,
        {"run": {**values["run"], "run_id": theirs["run"]["run_id"]}},
        as_node="guard_semantics",
        checkpoint=place["checkpoint"],
    )
    run = await bob.runs.create(thread_id, "diagnosis", input=None, checkpoint=changed["checkpoint"])
    await bob.runs.join(thread_id, run["run_id"])
    assert (await bob.runs.get(thread_id, run["run_id"]))["status"] == "error"
    assert await guarded.newest(50) == before


async def test_r134_a_custom_route_is_no_way_around(
    guarded: GraphServer, ada: LangGraphClient, bob: LangGraphClient, http: httpx.AsyncClient
) -> None:
    """The service begins runs through a client that the host does not check: the owner must be the caller all the same."""
    question = {"Id": "shared", "Question": QUESTION["query"], "owner": "bob"}
    answer = await http.post("/api/chat", json=question, headers=_bearer("ada"))
    if answer.status_code == 422:  # unknown fields are refused
        answer = await http.post("/api/chat", json={k: question[k] for k in ("Id", "Question")}, headers=_bearer("ada"))
    run_id = answer.json()["data"]["run_id"]
    assert (await guarded.record(run_id)).owner == "ada"
    assert (await ada.threads.get(run_id))["thread_id"] == run_id
    assert await _refused(lambda: bob.threads.get(run_id))
    assert await _refused(lambda: bob.runs.create(run_id, "chat", input=QUESTION))
    for method, path in (("GET", ""), ("GET", "/trace"), ("GET", "/events"), ("POST", "/cancel")):
        refused = await http.request(method, f"/api/runs/{run_id}{path}", headers=_bearer("bob"))
        assert refused.status_code == 404, path
    assert (await http.get("/api/chat/session/shared", headers=_bearer("bob"))).status_code == 404


async def test_assistants_are_read_by_all_and_changed_by_nobody(ada: LangGraphClient) -> None:
    found = await ada.assistants.search()
    assert {each["graph_id"] for each in found} == {"chat", "diagnosis"}
    assistant_id = found[0]["assistant_id"]
    assert (await ada.assistants.get_schemas(assistant_id))["context_schema"]
    assert await _refused(lambda: ada.assistants.create("chat", name="mine"))
    assert await _refused(lambda: ada.assistants.update(assistant_id, name="mine"))
    assert await _refused(lambda: ada.assistants.delete(assistant_id))
    assert await _refused(lambda: ada.store.put_item(["a"], key="k", value={"a": 1}))
    assert await _refused(lambda: ada.store.search_items(["a"]))


async def test_r134_crons_are_their_owners(ada: LangGraphClient, bob: LangGraphClient) -> None:
    try:
        cron: Any = await ada.crons.create("chat", schedule="0 0 1 1 *", input=QUESTION)
    except httpx.HTTPStatusError as error:
        pytest.skip(f"this server has no crons: {error.response.status_code}")
    found = await ada.crons.search()
    assert found
    assert await bob.crons.search() == []
    assert await _refused(lambda: bob.crons.delete(cron.get("cron_id") or found[0]["cron_id"]))


def test_nothing_blocked_the_event_loop_behind_tokens(guarded: GraphServer) -> None:
    log = (guarded.settings.home.parent / "server.log").read_text(errors="replace")
    assert "Blocking call" not in log
    assert not any(token in log for token in TOKENS.values())


async def _refused(attempt: Callable[[], Awaitable[Any]], statuses: Collection[int] = (403, 404)) -> bool:
    try:
        await attempt()
    except httpx.HTTPStatusError as error:
        return error.response.status_code in statuses
    return False
