"""The walk-through of docs/operating.md on LangGraph's development server, as Studio walks it: read, stop, edit, fork."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from tests.data import ROOT
from tests.documents import QUESTION
from tests.langgraph_dev import langgraph_dev

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("langgraph_api") is None, reason="the extra `server` is not installed"),
    pytest.mark.xdist_group("langgraph_walk"),
    pytest.mark.slow,
]
ROW = re.compile(r"\| (\d+) \| `([a-z_]+)` \| (.*) \| (.*) \|")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("walk")
    variables = {
        "SUPERBIZ_CATALOG": str(ROOT / "examples/shop/superbiz.toml"),
        "SUPERBIZ_HOME": str(folder / "home"),
        "SUPERBIZ_LANGUAGE": "en",
        "SUPERBIZ_MODEL": "offline",
    }
    with langgraph_dev(folder, variables) as running:
        yield running


@pytest.fixture
async def client(url: str) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=url) as client:
        yield client


def told() -> list[tuple[int, str, str, set[str]]]:
    """The rows of the walk-through: step, node, what it decided, the channels that it wrote."""
    text = (ROOT / "docs/operating.md").read_text(encoding="utf-8")
    rows = ROW.findall(text.split("<!-- walk:begin -->")[1].split("<!-- walk:end -->")[0])
    return [(int(number), node, step, set(re.findall(r"`(\w+)`", wrote))) for number, node, step, wrote in rows]


async def walked(client: LangGraphClient) -> str:
    """Run the question of the walk-through on a thread; the input is a query and nothing else."""
    thread_id = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread_id, "diagnosis", input={"query": QUESTION})
    return thread_id


async def place(client: LangGraphClient, thread_id: str, step: int) -> Any:
    """The checkpoint that stands after a step."""
    history = await client.threads.get_history(thread_id, limit=200)
    return next(each for each in history if (each["values"].get("position") or {}).get("step") == step)


async def fork(client: LangGraphClient, thread_id: str, step: int, edit: dict[str, Any]) -> dict[str, Any]:
    """Edit what a step has left behind, as if that step had written it, and go on from there."""
    rows, at = told(), await place(client, thread_id, step)
    changed = await client.threads.update_state(thread_id, edit, as_node=rows[step - 1][1], checkpoint=at["checkpoint"])
    ended: Any = await client.runs.wait(thread_id, "diagnosis", input=None, checkpoint=changed["checkpoint"])
    assert ended["run"]["run_id"] != at["values"]["run"]["run_id"]
    return dict(ended)


async def test_r4_the_walk_through_is_what_the_server_shows(client: LangGraphClient) -> None:
    thread_id, seen = (await client.threads.create())["thread_id"], []
    async for part in client.runs.stream(thread_id, "diagnosis", input={"query": QUESTION}, stream_mode="updates"):
        if part.event == "updates":
            for node, wrote in part.data.items():
                channels = set(wrote) - {"step", "position"}
                seen.append((wrote["position"]["step"], node, wrote["step"], channels))
    assert seen == told()
    history = await client.threads.get_history(thread_id, limit=200)
    steps = [each["values"]["step"] for each in history if each["values"].get("step")]
    assert steps[::-1] == [step for _, _, step, _ in told()]


async def test_r3_the_edits_of_the_walk_through_lead_where_it_says(client: LangGraphClient) -> None:
    thread_id, rows = await walked(client), told()
    first_without = next(number for number, _, step, _ in rows if "counted as no gain (1 in a row)" in step)
    second_without = next(number for number, _, step, _ in rows if "counted as no gain (2 in a row)" in step)
    # Another threshold: saturated by the second result without gain, not by the third.
    at = await place(client, thread_id, first_without)
    ended = await fork(
        client, thread_id, first_without, {"tracker": {**at["values"]["tracker"], "no_gain_threshold": 2}}
    )
    assert (ended["tracker"]["stop_reason"], ended["tracker"]["consecutive_no_gain"]) == ("INFORMATION_SATURATED", 2)
    assert len(ended["tracker_index"]) == len(
        (await place(client, thread_id, second_without))["values"]["tracker_index"]
    )
    # An evaluation flipped: one more result without gain, so one call less is asked.
    flipped = next(number for number, node, _, _ in rows if node == "validate_envelope" and number > first_without - 5)
    at = await place(client, thread_id, flipped)
    call = at["values"]["call"]
    assert call["evaluation"]["information_gain"] == "GAINED"
    edited = {**call, "evaluation": {**call["evaluation"], "information_gain": "NO_GAIN"}}
    ended = await fork(client, thread_id, flipped, {"call": edited})
    assert ended["tracker"]["stop_reason"] == "INFORMATION_SATURATED"
    whole = (await place(client, thread_id, len(rows)))["values"]
    assert len(ended["tracker_index"]) == len(whole["tracker_index"]) - 1


async def test_r3_an_edited_observation_changes_what_the_model_does_and_not_what_is_proved(
    client: LangGraphClient,
) -> None:
    thread_id, rows = await walked(client), told()
    projected = next(number for number, node, _, _ in rows if node == "project_observation")
    at = await place(client, thread_id, projected)
    message = at["values"]["messages"][-1]
    nothing = {**json.loads(message["content"]), "documents": [], "evidence_status": "NO_EVIDENCE"}
    edited = {**message, "content": json.dumps(nothing)}
    ended = await fork(client, thread_id, projected, {"messages": [edited]})
    # Without the runbook the offline model does not know what to look for in the database.
    asked = [each["tool_name"] for each in ended["tracker_index"]]
    whole = (await place(client, thread_id, len(rows)))["values"]
    assert asked != [each["tool_name"] for each in whole["tracker_index"]]
    # What was found stays found: the record is the truth, not the message.
    checked = {each["tool_call_id"]: each["evidence_status"] for each in ended["snapshot"]["checked"]}
    assert checked[message["tool_call_id"]] == "EVIDENCE_FOUND"


async def test_r3_a_rerun_from_the_first_place_of_every_node_ends_alike(client: LangGraphClient) -> None:
    """What Studio's `Re-run from here` does; the thread stays readable, whatever was forked on it."""
    thread_id, rows = await walked(client), told()
    whole = (await place(client, thread_id, len(rows)))["values"]["outcome"]["published_result"]
    history = [each for each in await client.threads.get_history(thread_id, limit=200) if each["next"]]
    seen = set[str]()
    for each in reversed(history):
        (node,) = each["next"]
        if node in seen or node == "__start__":
            continue
        seen.add(node)
        again: Any = await client.runs.wait(thread_id, "diagnosis", input=None, checkpoint=each["checkpoint"])
        assert again["outcome"]["published_result"] == whole, node
        state: Any = await client.threads.get_state(thread_id)
        assert (state["values"]["run"], state["next"]) == (again["run"], []), node
    assert seen == {node for _, node, _, _ in rows}
