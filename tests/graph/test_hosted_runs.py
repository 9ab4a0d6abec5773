"""A host begins the Run that the service has stored for it, once, and no other (R3, R134)."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from graph.contract import RunState
from nodes.harness import RunOfAnother, RunTakenElsewhere, session_lock, thread_lock
from nodes.ports import LOCAL_CALLER, RunOrigin, RunRecord, SessionBusy
from tests.fakes import SUPPORTED, by_round, call, draft
from tests.hooks import Crash, crash
from tests.loop import Loop, make_loop

CONCLUDED = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c1"])])


@dataclass
class User:
    """Whom a host has let in."""

    identity: str


def hosted(**options: Any) -> Loop:
    answers = by_round([call("c1", "found a")], [CONCLUDED], [SUPPORTED])
    return make_loop(answers, on_host=True, host_serialises_threads=True, **options)


async def stored(loop: Loop, owner: str | None = "ada", query: str = "why?") -> RunRecord:
    """What the service stores before it asks the host."""
    run_id, now = str(uuid.uuid4()), loop.clock.now()
    origin = RunOrigin(run_id, owner, alone_in_session=True)
    record = RunRecord(
        run_id,
        query,
        "s",
        RunState.CREATED,
        now,
        lease_until=now,
        owner=owner,
        session_lock=session_lock(origin, "s"),
        context={"language": "en"},
    )
    assert await loop.runs.create(record)
    return record


async def asked(loop: Loop, thread: str, caller: str | None = None, run_id: uuid.UUID | None = None) -> dict[str, Any]:
    config: Any = loop.config(thread, run_id)
    config["configurable"]["graph_id"] = "diagnosis"
    if caller is not None:
        config["configurable"]["langgraph_auth_user"] = User(caller)
    loop.state = await loop.graph.ainvoke({"query": "why?", "session_id": "s"}, config)
    return loop.state


@pytest.mark.parametrize("caller", [None, "ada"])
async def test_r134_the_stored_run_is_taken_up_by_the_thread_of_its_id(caller: str | None) -> None:
    loop = hosted()
    record = await stored(loop)
    loop.clock.advance(5)
    execution = uuid.uuid4()
    await asked(loop, record.run_id, caller, execution)
    ended = await loop.record()
    assert (ended.run_id, ended.owner, ended.internal_state) == (record.run_id, "ada", RunState.SUCCESS)
    assert (ended.execution_id, ended.session_lock) == (str(execution), None)
    # Its clocks begin with its execution, however long it waited for it (R117).
    assert loop.state["run"]["started_at"] == record.created_at + 5
    assert len(await loop.runs.runs()) == 1


@pytest.mark.parametrize(("query", "caller"), [("another question", None), ("why?", "bob"), ("why?", LOCAL_CALLER)])
async def test_r134_another_question_or_caller_begins_a_run_of_its_own(query: str, caller: str | None) -> None:
    loop = hosted()
    record = await stored(loop, query=query)
    await asked(loop, record.run_id, caller)
    assert loop.run_id != record.run_id
    assert (await loop.record()).owner == (None if caller in (None, LOCAL_CALLER) else caller)
    assert await loop.runs.get(record.run_id) == record


async def test_r119_a_run_that_was_cancelled_before_it_began_does_not_begin() -> None:
    loop = hosted()
    record = await stored(loop)
    await loop.runs.transition(record.run_id, frozenset({RunState.CREATED}), RunState.CANCEL_REQUESTED)
    with pytest.raises(RunTakenElsewhere):
        await asked(loop, record.run_id)
    assert [run.run_id for run in await loop.runs.runs()] == [record.run_id]


async def test_r3_of_two_executions_one_begins_the_stored_run() -> None:
    loop = hosted()
    record = await stored(loop)
    ends = await asyncio.gather(asked(loop, record.run_id), asked(loop, record.run_id), return_exceptions=True)
    # The second makes a run of its own when it comes late, and gives up when it comes between.
    assert sum(isinstance(end, dict) and end["run"]["run_id"] == record.run_id for end in ends) == 1
    assert all(isinstance(end, dict | RunTakenElsewhere) for end in ends)


@pytest.mark.parametrize("is_stored", [True, False])
async def test_r3_an_execution_that_is_repeated_begins_no_second_run(is_stored: bool) -> None:
    loop, execution = hosted(), uuid.uuid4()
    thread = (await stored(loop)).run_id if is_stored else "t"
    loop.journal.after["start_run"] = crash
    with pytest.raises(Crash):
        await asked(loop, thread, run_id=execution)
    await asked(loop, thread, run_id=execution)
    (run,) = await loop.runs.runs()
    assert run.internal_state is RunState.SUCCESS
    assert len(await loop.events("RUN_STARTED")) == 1


async def test_r134_a_thread_of_a_host_that_lets_two_loose_has_one_run() -> None:
    loop = hosted(one_run_per_thread=True)
    held = RunRecord("r", "why?", None, RunState.RUNNING, 0.0, session_lock=thread_lock("t"))
    assert await loop.runs.create(held)
    with pytest.raises(SessionBusy):
        await asked(loop, "t")
    await asked(loop, "another")
    assert (await loop.record()).internal_state is RunState.SUCCESS


@pytest.mark.parametrize(("owner", "caller"), [("ada", "bob"), ("ada", LOCAL_CALLER), (None, "bob")])
async def test_r134_a_state_that_names_another_callers_run_is_refused(owner: str | None, caller: str) -> None:
    loop = hosted()
    theirs = await asked(loop, "theirs", owner or LOCAL_CALLER)
    place = await loop.at("release", "theirs")
    config: Any = loop.config("mine")
    config["configurable"]["langgraph_auth_user"] = User(caller)
    await loop.graph.aupdate_state(config, place.values, as_node="guard_semantics")
    before = await loop.runs.runs()
    with pytest.raises(RunOfAnother):
        await loop.graph.ainvoke(None, config)
    assert await loop.runs.runs() == before
    assert theirs["run"]["run_id"] in {run.run_id for run in before}
