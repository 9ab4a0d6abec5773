"""A host's own word about the Run it starts: id, owner, session, thread; nothing else can give it (R3, R134)."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from typing import Any

import pytest

from graph.contract import RunState
from nodes.ports import ORIGIN, RunEnd, RunOrigin, SessionBusy
from release.contract import ReleaseOutcome
from tests.fakes import by_round, call, draft
from tests.hooks import Crash, crash
from tests.loop import Loop, make_loop

RUN = str(uuid.UUID(int=7, version=4))


async def started(loop: Loop, origin: Any, session: str | None = "s-1", thread: str = "t") -> None:
    config = loop.config(thread)
    config["configurable"][ORIGIN] = origin
    loop.state = await loop.graph.ainvoke({"query": "why?", "session_id": session}, config)


async def test_r1_r134_a_host_says_who_asks_and_where() -> None:
    held: list[str | None] = []

    async def look(*_: Any) -> None:
        held.append((await loop.runs.runs())[0].session_lock)

    loop = make_loop([draft()])
    loop.journal.after["start_run"] = look
    await started(loop, RunOrigin(RUN, "alice", alone_in_session=True))
    record = await loop.record()
    assert (record.run_id, record.owner, record.thread_id) == (RUN, "alice", "t")
    assert record.context is not None
    assert record.context["no_gain_threshold"] == 3
    assert (held, record.session_lock) == (['["alice", "s-1"]'], None)
    assert (await loop.journal.archived(RUN, "id"))["0001:start_run"] == {"ids": [RUN]}


@pytest.mark.parametrize("pretended", [asdict(RunOrigin(RUN, "alice", True)), RUN, None])
async def test_r134_plain_data_from_a_client_is_no_origin(pretended: Any) -> None:
    loop = make_loop([draft()])
    await started(loop, pretended)
    record = await loop.record()
    assert record.run_id != RUN
    assert (record.owner, record.session_lock, record.context) == (None, None, None)


@pytest.mark.parametrize(
    ("owner", "session", "alone", "busy"),
    [
        ("alice", "s-1", True, True),
        ("bob", "s-1", True, False),
        ("alice", "s-2", True, False),
        ("alice", None, True, False),
        ("alice", "s-1", False, False),
    ],
)
async def test_r134_one_active_run_in_an_owners_session(
    owner: str, session: str | None, alone: bool, busy: bool
) -> None:
    async def second(*_: Any) -> None:
        try:
            await started(loop, RunOrigin(str(uuid.uuid4()), owner, alone), session, thread="other")
        except SessionBusy:
            refused.append(True)

    refused: list[bool] = []
    loop = make_loop([draft()] * 3)
    loop.journal.after["start_run"] = second
    await started(loop, RunOrigin(RUN, "alice", alone_in_session=True))
    assert bool(refused) is busy
    assert len(await loop.runs.runs()) == (1 if busy else 2)
    await started(loop, RunOrigin(str(uuid.uuid4()), "alice", alone_in_session=True))
    assert {run.internal_state for run in await loop.runs.runs()} == {RunState.SUCCESS}


async def test_r3_a_fork_belongs_to_whom_the_run_belonged() -> None:
    loop = make_loop([draft(), draft()])
    await started(loop, RunOrigin(RUN, "alice", alone_in_session=True))
    await loop.resume((await loop.at("model_step")).config)
    fork = await loop.record()
    assert (fork.forked_from, fork.owner, fork.thread_id, fork.session_lock) == (RUN, "alice", "t", None)


async def resumed(loop: Loop) -> None:
    config = loop.config()
    config["configurable"][ORIGIN] = RunOrigin(RUN)
    loop.state = await loop.graph.ainvoke(None, config)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_r8_a_crash_inside_the_release_resumed_by_another_execution_is_no_fork(moment: str) -> None:
    loop = make_loop(by_round([call("c1", "found a"), draft()]))
    getattr(loop.journal, moment)["release"] = crash
    with pytest.raises(Crash):
        await started(loop, RunOrigin(RUN, "alice", alone_in_session=True))
    (run,) = await loop.runs.runs()
    assert run.release_outcome == "FALLBACK"
    await resumed(loop)
    assert await loop.runs.runs() == (run,), "no second Run, no second end"
    assert loop.outcome["fallback"] == run.fallback
    names = [event["type"] for event in await loop.events()]
    assert names.count("RUN_ENDED") == names.count("RELEASE_DECIDED") == 1


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.TIMED_OUT])
async def test_r8_r120_a_run_that_somebody_else_has_ended_is_neither_released_nor_forked(state: RunState) -> None:
    async def end_it(*_: Any) -> None:
        end = RunEnd(ReleaseOutcome.NONE, ended_at=1.0, error_code="INTERRUPTED")
        assert await loop.runs.transition(RUN, frozenset({RunState.RUNNING}), state, end)

    loop = make_loop(by_round([call("c1", "found a"), draft()]))
    loop.journal.after["execute_tool"] = end_it
    await started(loop, RunOrigin(RUN, "alice", alone_in_session=True))
    (run,) = await loop.runs.runs()
    assert (run.internal_state, run.published_result, run.fallback) == (state, None, None)
    assert (loop.outcome["internal_state"], loop.outcome["error_code"]) == (state, "INTERRUPTED")
    assert len(loop.model.requests) == 1, "nothing is asked for an ended Run"
    assert [event["stage"] for event in await loop.events("LATE_RESULT_DROPPED")] == ["release"]
    assert await loop.events("RUN_ENDED") == [], "whoever ended it tells its end"
