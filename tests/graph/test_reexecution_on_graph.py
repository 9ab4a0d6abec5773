"""A node that is executed again from its input checkpoint does no harm (R8, R48, R108, R120)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from nodes.ports import ModelFailureKind
from service.store.journal import SqlJournal
from tests.fakes import SUPPORTED, Answer, by_round, call, calls, draft, envelope
from tests.hooks import Crash, crash
from tests.loop import Loop, assert_every_call_answered_once, make_loop
from tests.stores import database

CONCLUDED = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c1"])])
FALSE = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c9"])])
AGENT: list[Answer] = [
    call("c1", "found a"),
    calls(("c2", "query_probe", envelope("found a", ("c1", "GAINED")))),
    calls(("c3", "query_probe", None)),
    call("c4", "none d"),
    FALSE,
]
NODES = [
    "model_step",
    "validate_envelope",
    "dedup_scope",
    "execute_tool",
    "project_observation",
    "reject_call",
    "require_stop",
    "project_progress",
    "guard_evidence",
    "repair_evidence",
    "guard_semantics",
]


def scripted(**options: Any) -> Loop:
    return make_loop(by_round(AGENT, [CONCLUDED], [SUPPORTED]), **options)


async def resumed(loop: Loop, **settings: Any) -> None:
    with pytest.raises(Crash):
        await loop.run(**settings)
    loop.clock.advance(61)
    await loop.resume()


async def plain(**settings: Any) -> tuple[Loop, list[str]]:
    loop = scripted()
    await loop.run(**settings)
    return loop, [json.dumps(each) for each in await loop.events()]


@pytest.mark.parametrize(
    ("node", "moment"), [*((node, "after") for node in NODES), ("model_step", "before"), ("execute_tool", "before")]
)
async def test_r108_a_node_executed_again_leaves_no_second_trace(node: str, moment: str) -> None:
    settings = {"no_gain_threshold": 2}
    reference, expected = await plain(**settings)
    loop = scripted()
    getattr(loop.journal, moment)[node] = crash
    await resumed(loop, **settings)
    assert_every_call_answered_once(loop.state)
    (run,) = await loop.runs.runs()
    assert (run.run_id, run.internal_state, run.forked_from) == (loop.run_id, "SUCCESS", None)
    assert [json.dumps(each) for each in await loop.events()] == expected
    assert loop.outcome == reference.outcome
    assert loop.state["tracker"] == reference.state["tracker"]
    assert loop.tool.ran == reference.tool.ran == ["found a", "none d"], "a READY record is reused"
    lost = (node, moment) == ("model_step", "before")
    assert len(loop.model.requests) == len(reference.model.requests) + lost, "an archived answer is reused (R154)"
    steps = await loop.journal.steps(loop.run_id)
    assert steps == await reference.journal.steps(reference.run_id)
    keys = [batch.key for batch in loop.journal.batches]
    assert len(set(keys)) == len({key.partition(":")[0] for key in keys})


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_r1_a_run_that_crashes_at_its_start_is_not_the_one_that_goes_on(moment: str) -> None:
    loop = scripted()
    getattr(loop.journal, moment)["start_run"] = crash
    await resumed(loop)
    assert Counter(run.internal_state.value for run in await loop.runs.runs()) == {"RUNNING": 1, "SUCCESS": 1}
    assert [event["type"] for event in await loop.events()].count("RUN_STARTED") == 1


async def test_r8_a_crash_inside_the_release_leaves_one_end_and_one_result() -> None:
    """The end was written, the trace was not: the same execution, run again, must not end or publish twice."""
    import uuid

    for moment in ("before", "after"):
        loop, execution = scripted(), uuid.uuid4()
        getattr(loop.journal, moment)["release"] = crash
        with pytest.raises(Crash):
            await loop.run(run_id=execution)
        (run,) = await loop.runs.runs()
        assert run.release_outcome == "CONCLUSION"
        await loop.resume(run_id=execution)
        assert await loop.runs.runs() == (run,), "no second Run"
        assert loop.outcome["release_outcome"] == "CONCLUSION"
        assert loop.outcome["published_result"] == run.published_result
        names = [event["type"] for event in await loop.events()]
        assert names.count("RUN_ENDED") == names.count("RELEASE_DECIDED") == 1
        assert await loop.journal.archived(loop.run_id, "result")


async def test_r154_attempts_that_failed_are_not_made_again_either() -> None:
    script = by_round([call("c1", "found a"), ModelFailureKind.UNAVAILABLE, ModelFailureKind.RATE_LIMITED])
    reference = make_loop(script)
    await reference.run()
    loop = make_loop(script)
    loop.journal.after["model_step"] = lambda _: loop.journal.after.update(model_step=crash)
    await resumed(loop)
    assert len(loop.model.requests) == len(reference.model.requests) == 3
    assert loop.outcome == reference.outcome
    assert await loop.events() == await reference.events()


@pytest.mark.not_replayable("its state was edited in the middle of the run")
async def test_r154_an_answer_belongs_to_the_messages_it_was_given_to() -> None:
    loop = scripted()
    loop.journal.after["model_step"] = crash
    with pytest.raises(Crash):
        await loop.run()
    other = [HumanMessage(content="another question", id=f"question-{(await loop.runs.runs())[0].run_id}")]
    await loop.graph.aupdate_state(loop.config(), {"messages": other}, as_node="start_run")
    loop.clock.advance(61)
    await loop.resume()
    assert [request.round_ for request in loop.model.requests[:2]] == [1, 1], "what was edited is asked"
    assert "another question" in str(loop.model.requests[1].messages)


async def test_r48_a_projecting_record_left_by_a_crash_is_executed_once_more() -> None:
    loop = scripted()

    def on(operation: str, count: int) -> None:
        if operation == "finish" and count == 1:
            raise Crash

    loop.canonical.on = on
    await resumed(loop)
    assert loop.tool.ran == ["found a", "found a", "none d"]
    assert loop.state["budget"]["tool_calls"] == 2
    assert len(await loop.events("TOOL_CALL_COMPLETED")) == 2
    record = await loop.canonical.get(loop.run_id, "c1")
    assert record is not None
    assert record.status == "READY"


async def test_r48_a_record_that_was_finished_before_the_crash_is_not_asked_for_again() -> None:
    loop = scripted()
    loop.journal.before["execute_tool"] = crash
    await resumed(loop)
    assert loop.tool.ran == ["found a", "none d"]
    assert loop.state["budget"]["tool_calls"] == 2


async def test_r65_a_record_rejected_before_the_crash_stays_rejected() -> None:
    loop = make_loop(by_round([call("c1", "violate a"), draft()]))
    loop.journal.before["project_observation"] = crash
    await resumed(loop)
    assert loop.answers()[0]["error_code"] == "OBSERVATION_CONTRACT_VIOLATION"
    assert len(loop.tool.ran) == 1
    assert loop.outcome["fallback"]["observed_facts"] == []
    rejected = await loop.events("TOOL_REQUEST_REJECTED")
    assert [each["error_code"] for each in rejected] == ["OBSERVATION_CONTRACT_VIOLATION"]


async def test_r8_r119_a_run_cancelled_while_it_was_down_is_cancelled_when_it_comes_back() -> None:
    loop = scripted()
    loop.journal.after["dedup_scope"] = crash
    with pytest.raises(Crash):
        await loop.run()
    await loop.cancel()
    loop.clock.advance(61)
    await loop.resume()
    assert loop.outcome["internal_state"] == "CANCELLED"
    assert loop.tool.ran == []
    assert len(await loop.runs.runs()) == 1


async def test_r60_a_run_that_was_down_too_long_is_timed_out_when_it_comes_back() -> None:
    loop = make_loop(by_round([call("c1", "found a"), CONCLUDED]))
    loop.journal.after["project_observation"] = crash
    with pytest.raises(Crash):
        await loop.run()
    loop.clock.advance(301)
    await loop.resume()
    assert loop.outcome["reason"] == "TIMED_OUT"
    assert "FAULT" in loop.outcome["fallback"]["limitations"]["notes"]
    assert len(loop.model.requests) == 1


async def test_r108_the_sql_journal_takes_a_node_s_batch_once_too(tmp_path: Path) -> None:
    loop, expected = await plain()
    async with database("sqlite", tmp_path) as engine:
        journal = SqlJournal(engine, loop.clock, strict=True)
        for batch in loop.journal.batches:
            await journal.write(batch)
            await journal.write(batch)
        rows = await journal.trace(loop.run_id)
        assert [json.dumps({"type": row.type.value, **row.fields}) for row in rows] == expected
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        assert await journal.steps(loop.run_id) == await loop.journal.steps(loop.run_id)
        assert await journal.archive(loop.run_id) == await loop.journal.archive(loop.run_id)
