"""The diagnosis as a subgraph of the chat: crashes, forks, leases, checkpoints, on SQLite (R1, R3, R8)."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from graph.contract import Intent, RunState
from tests.chat_loop import Chat, by_component, knowledge, make_chat, routed
from tests.fakes import call, draft, text
from tests.hooks import Crash, crash
from tests.replays import replay_all

CONCLUSION = draft("it is the pool", [("A1", "OBSERVATION", "line about found a", ["c1"])])
DIAGNOSIS = {
    "intent_router": routed(Intent.DIAGNOSIS),
    "diagnosis_agent": [call("c1", "found a"), call("c2", "found b", ("c1", "GAINED")), CONCLUSION],
}
KNOWLEDGE = {
    "intent_router": routed(Intent.KNOWLEDGE_QUERY),
    "knowledge_answer": knowledge(("Raise the pool.", "lookup-1", ["runbooks/pool.md#1"])),
}
TALK = {"intent_router": routed(Intent.SYSTEM_CHAT), "system_chat": text("hi")}


@pytest.fixture
async def saver(tmp_path: Path) -> AsyncIterator[AsyncSqliteSaver]:
    async with aiosqlite.connect(tmp_path / "checkpoints.db") as connection:
        made = AsyncSqliteSaver(connection)
        await made.setup()
        yield made


async def crashed_then_resumed(chat: Chat, node: str, when: str, same: bool) -> None:
    """Run until a node's batch is (about to be) written, die, and go on as the same execution or as another."""
    execution = uuid.uuid4()
    getattr(chat.journal, when)[node] = crash
    with pytest.raises(Crash):
        await chat.run("why do orders fail?", run_id=execution)
    if not same:
        chat.clock.advance(61)  # the dead execution's lease runs out
    await chat.resume(run_id=execution if same else None)


INSIDE = ["model_step", "execute_tool", "guard_evidence"]


@pytest.mark.parametrize("same", [True, False], ids=["same execution", "another one"])
@pytest.mark.parametrize(
    ("node", "when"),
    # Nothing is known of a Run before its first node ended.
    [("start_run", "after"), *((node, when) for node in ("route_intent", *INSIDE) for when in ("before", "after"))],
)
async def test_r3_a_crash_inside_the_diagnosis_resumes_inside_and_asks_no_tool_again(
    saver: AsyncSqliteSaver, node: str, when: str, same: bool
) -> None:
    chat = make_chat(by_component(**DIAGNOSIS), checkpointer=saver)
    if node == "start_run":
        # The hook is used once: leave the chat's own first node alone, meet the diagnosis' one.
        chat.journal.after["start_run"] = lambda _: chat.journal.after.update(start_run=crash)
        with pytest.raises(Crash):
            await chat.run("why do orders fail?")
        chat.clock.advance(61)
        await chat.resume()
    else:
        await crashed_then_resumed(chat, node, when, same)
    assert chat.state["release_outcome"] == "CONCLUSION"
    assert chat.tool.ran == ["found a", "found b"]
    (record,) = await chat.runs.runs()
    assert record.internal_state is RunState.SUCCESS
    assert record.run_id == chat.state["run_id"]
    assert len(await chat.events("RUN_STARTED")) == len(await chat.events("RUN_ENDED")) == 1
    keys = [batch.key for batch in chat.journal.batches]
    assert [key for key in dict.fromkeys(keys) if key.endswith(":start_run")] == ["0001:start_run", "0003:start_run"]


@pytest.mark.parametrize("same", [True, False], ids=["same execution", "another one"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("script", [KNOWLEDGE, TALK], ids=["knowledge", "talk"])
@pytest.mark.parametrize("node", ["route_intent", "branch", "release"])
async def test_r8_a_crash_on_the_other_branches_ends_once_and_looks_up_once(
    saver: AsyncSqliteSaver, script: dict[str, Any], node: str, when: str, same: bool
) -> None:
    chat = make_chat(by_component(**script), checkpointer=saver)
    branch = "answer_knowledge" if script is KNOWLEDGE else "system_chat"
    await crashed_then_resumed(chat, branch if node == "branch" else node, when, same)
    runs = await chat.runs.runs()
    # Whoever enters the state of a Run that has ended, but its own execution, makes a new one (R3).
    assert len(runs) == (2 if node == "release" and not same else 1)
    assert chat.state["release_outcome"] == ("KNOWLEDGE_ANSWER" if script is KNOWLEDGE else "CHAT")
    assert {run.internal_state for run in runs} == {RunState.SUCCESS}
    assert len(await chat.events("RUN_ENDED")) == 1
    tool: Any = chat.resources.tools["search_documents"]
    assert len(tool.ran) == (1 if script is KNOWLEDGE else 0)
    if script is KNOWLEDGE:
        assert await chat.canonical.get(chat.run_id, "lookup-1") is not None


async def test_r3_the_lease_is_held_inside_the_subgraph(saver: AsyncSqliteSaver) -> None:
    seen: list[tuple[str | None, float | None]] = []

    async def look(_: str) -> None:
        (record,) = await chat.runs.runs()
        seen.append((record.execution_id, record.lease_until))

    chat = make_chat(by_component(**DIAGNOSIS), checkpointer=saver)
    chat.tool.before_run = look
    execution = uuid.uuid4()
    chat.journal.after["route_intent"] = lambda _: chat.clock.advance(50)
    await chat.run(run_id=execution)
    assert seen[0] == (str(execution), chat.clock.now() + 60)


async def test_r3_another_execution_may_not_enter_the_subgraph_of_a_live_run(saver: AsyncSqliteSaver) -> None:
    from nodes.harness import RunTakenElsewhere

    chat = make_chat(by_component(**DIAGNOSIS), checkpointer=saver)
    chat.journal.after["execute_tool"] = crash
    with pytest.raises(Crash):
        await chat.run()
    with pytest.raises(RunTakenElsewhere):
        await chat.resume()


@pytest.mark.parametrize("node", ["route_intent", "diagnosis"])
async def test_r3_a_step_before_the_diagnosis_forks_into_a_new_run(saver: AsyncSqliteSaver, node: str) -> None:
    chat = make_chat(by_component(**DIAGNOSIS), checkpointer=saver)
    await chat.run()
    first = chat.run_id
    at = await chat.at(node)
    await chat.resume(at.config)
    assert chat.state["release_outcome"] == "CONCLUSION"
    assert chat.run_id != first
    record = await chat.record()
    assert (record.forked_from, record.intent) == (first, Intent.DIAGNOSIS)
    assert len(await chat.runs.runs()) == 2
    assert chat.tool.ran == ["found a", "found b"] * 2
    assert len(await chat.events("RUN_ENDED")) == 1


async def test_r3_a_forked_answer_keeps_its_intent_and_its_record(saver: AsyncSqliteSaver) -> None:
    chat = make_chat(by_component(**KNOWLEDGE), checkpointer=saver)
    await chat.run()
    first = chat.run_id
    await chat.resume((await chat.at("release")).config)
    record = await chat.record()
    assert (record.forked_from, record.intent) == (first, Intent.KNOWLEDGE_QUERY)
    assert record.published_result == (await chat.runs.get(first)).published_result  # type: ignore[union-attr]
    assert await chat.canonical.get(chat.run_id, "lookup-1") is not None


async def test_r1_turns_on_one_thread_share_nothing(saver: AsyncSqliteSaver) -> None:
    chat = make_chat(by_component(**DIAGNOSIS), checkpointer=saver)
    await chat.run("why?")
    first = chat.run_id
    chat.model.answers = by_component(**TALK)
    await chat.run("hello")
    assert chat.state["release_outcome"] == "CHAT"
    assert chat.state["fallback"] is None
    chat.model.answers = by_component(**KNOWLEDGE)
    await chat.run("how?")
    assert chat.state["release_outcome"] == "KNOWLEDGE_ANSWER"
    chat.model.answers = by_component(**DIAGNOSIS)
    await chat.run("why again?")
    assert chat.state["release_outcome"] == "CONCLUSION"
    assert chat.run_id != first
    runs = await chat.runs.runs()
    assert len(runs) == 4
    assert all(run.internal_state is RunState.SUCCESS and run.forked_from is None for run in runs)


async def test_checkpoints_of_a_subgraph_grow_as_those_of_the_flat_graph(tmp_path: Path) -> None:
    from tests.loop import make_loop

    calls_, before = [], None
    for number in range(1, 13):
        calls_.append(call(f"c{number}", f"found {number}", before))
        before = (f"c{number}", "GAINED")
    agent = [*calls_, draft("x", [("A1", "OBSERVATION", "line about found 1", ["c1"])])]
    sizes = []
    for kind in ("flat", "chat"):
        async with aiosqlite.connect(tmp_path / f"{kind}.db") as connection:
            made = AsyncSqliteSaver(connection)
            await made.setup()
            script = by_component(intent_router=routed(Intent.DIAGNOSIS), diagnosis_agent=agent)
            make: Any = make_chat if kind == "chat" else make_loop
            loop = make(script, checkpointer=made)
            await loop.run()
            assert loop.outcome["release_outcome"] == "CONCLUSION"
            tables = [("checkpoints", "checkpoint"), ("writes", "value")]
            total = 0
            for table, column in tables:
                cursor = await connection.execute(f"SELECT sum(length({column})) FROM {table}")
                total += (await cursor.fetchone())[0]  # type: ignore[index]
            sizes.append(total)
    assert sizes[1] < 1.25 * sizes[0], sizes


async def test_r60_what_a_faulty_diagnosis_had_verified_can_be_released_from_outside(saver: AsyncSqliteSaver) -> None:
    script = {**DIAGNOSIS, "diagnosis_agent": [call("c1", "found a"), RuntimeError("a bug")]}
    chat = make_chat(by_component(**script), checkpointer=saver)
    execution = uuid.uuid4()
    with pytest.raises(RuntimeError):
        await chat.run(run_id=execution)
    config = chat.config(run_id=execution)
    (task,) = (await chat.graph.aget_state(config, subgraphs=True)).tasks
    inside: Any = task.state
    ended = {"cause": "FAULT", "dimension": None, "fault": "INTERNAL_ERROR"}
    await chat.graph.aupdate_state(inside.config, {"ended": ended, "outcome": None}, as_node="execute_tool")
    await chat.resume(run_id=execution)
    assert chat.state["release_outcome"] == "FALLBACK"
    assert "FAULT" in chat.state["fallback"]["limitations"]["notes"]
    assert chat.state["fallback"]["observed_facts"][0]["tool_call_id"] == "c1"
    (record,) = await chat.runs.runs()
    assert (record.run_id, record.internal_state) == (chat.state["run_id"], RunState.SUCCESS)
    assert await replay_all(chat) == 1
