"""Cancel at every moment of a run, by request and by the host (R8, R94, R119, R120)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graph.contract import RunState
from nodes.ports import ModelReply, ModelRequest
from tests.fakes import SUPPORTED, ProbeTool, by_round, call, draft
from tests.loop import Loop, assert_every_call_answered_once, make_loop

SECOND = call("c2", "found b", ("c1", "GAINED"))
CONCLUDED = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c1"])])
FALSE = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c9"])])
AGENT = [call("c1", "found a"), SECOND, CONCLUDED]


async def assert_cancelled(loop: Loop) -> None:
    assert_every_call_answered_once(loop.state)
    assert (loop.outcome["release_outcome"], loop.outcome["internal_state"]) == ("NONE", "CANCELLED")
    assert (loop.outcome["published_result"], loop.outcome["fallback"]) == (None, None)
    record = await loop.record()
    assert (record.internal_state, record.release_outcome) == ("CANCELLED", "NONE")
    assert (record.published_result, record.fallback) == (None, None)
    (ended,) = await loop.events("RUN_ENDED")
    assert ended["internal_state"] == "CANCELLED"


async def test_r119_a_cancel_before_the_model_asks_nothing() -> None:
    loop = make_loop(by_round(AGENT))
    loop.journal.after["start_run"] = loop.cancel
    await loop.run()
    await assert_cancelled(loop)
    assert (loop.model.requests, loop.tool.ran) == ([], [])


async def test_r120_a_cancel_during_the_model_drops_its_answer() -> None:
    async def slowly(request: ModelRequest) -> ModelReply:
        await loop.cancel()
        return SECOND

    loop = make_loop(by_round([call("c1", "found a"), lambda request: slowly(request), CONCLUDED]))
    await loop.run()
    await assert_cancelled(loop)
    (late,) = await loop.events("LATE_RESULT_DROPPED")
    assert late["stage"] == "model"
    assert (len(loop.model.requests), loop.tool.ran) == (2, ["found a"])
    assert "c2" not in str(loop.state["messages"])
    assert len(await loop.events("MODEL_CALL")) == 2, "what was spent is audited all the same (R112)"
    assert (await loop.record()).total_token_count == 240


async def test_r120_a_cancel_during_the_tool_drops_its_result() -> None:
    async def slowly(query: str) -> None:
        if query == "found b":
            await loop.cancel()

    loop = make_loop(by_round(AGENT), tool=ProbeTool(before_run=slowly))
    await loop.run()
    await assert_cancelled(loop)
    (late,) = await loop.events("LATE_RESULT_DROPPED")
    assert late["stage"] == "tool"
    assert loop.answers()[-1]["error_code"] == "COLLECTION_STOPPED"
    assert len(loop.model.requests) == 2
    assert [entry["tool_call_id"] for entry in loop.state["tracker_index"]] == ["c1"]
    (ended,) = await loop.events("RUN_ENDED")
    assert ended["tool_calls"] == 2, "the dropped call was executed and counts"


@pytest.mark.parametrize("node", ["validate_envelope", "dedup_scope"])
async def test_r119_a_cancel_between_model_and_tool_runs_no_tool(node: str) -> None:
    loop = make_loop(by_round(AGENT))
    loop.journal.after[node] = loop.cancel
    await loop.run()
    await assert_cancelled(loop)
    assert loop.tool.ran == []
    assert loop.answers() == [{"error_code": "COLLECTION_STOPPED"}]


@pytest.mark.parametrize("node", ["execute_tool", "project_observation"])
async def test_r119_a_cancel_after_the_tool_asks_no_model(node: str) -> None:
    loop = make_loop(by_round(AGENT))
    loop.journal.after[node] = loop.cancel
    await loop.run()
    await assert_cancelled(loop)
    assert (len(loop.model.requests), loop.tool.ran) == (1, ["found a"])


async def test_r94_r119_a_cancel_before_the_guards_runs_none() -> None:
    loop = make_loop(by_round([call("c1", "found a"), FALSE], [CONCLUDED]))
    loop.journal.after["project_progress"] = loop.cancel
    await loop.run()
    await assert_cancelled(loop)
    assert len(loop.model.requests) == 2
    assert await loop.events("EVIDENCE_GUARD") == await loop.events("SEMANTIC_GUARD") == []


@pytest.mark.parametrize("node", ["guard_evidence", "repair_evidence"])
async def test_r94_r119_a_cancel_between_the_guards_calls_no_model_any_more(node: str) -> None:
    loop = make_loop(by_round([call("c1", "found a"), FALSE], [CONCLUDED]))
    loop.journal.after[node] = loop.cancel
    await loop.run()
    await assert_cancelled(loop)
    assert [r.component.value for r in loop.model.requests[2:]] == ["EVIDENCE_REPAIR"] * (node == "repair_evidence")


@pytest.mark.parametrize("guard", ["repair", "semantics"])
async def test_r120_a_cancel_during_a_guard_s_call_drops_its_verdict(guard: str) -> None:
    async def slowly(reply: ModelReply) -> ModelReply:
        await loop.cancel()
        return reply

    repair = [lambda request: slowly(CONCLUDED)] if guard == "repair" else [CONCLUDED]
    semantics = [lambda request: slowly(SUPPORTED)] if guard == "semantics" else [SUPPORTED]
    loop = make_loop(by_round([call("c1", "found a"), FALSE], repair, semantics))
    await loop.run()
    await assert_cancelled(loop)
    assert len(loop.model.requests) == (3 if guard == "repair" else 4)
    (late,) = await loop.events("LATE_RESULT_DROPPED")
    assert late["stage"] == "guard"


async def test_r94_r119_a_cancel_before_the_release_of_the_final_draft_wins() -> None:
    loop = make_loop(by_round([call("c1", "found a"), CONCLUDED]))
    loop.journal.after["guard_semantics"] = loop.cancel
    await loop.run()
    await assert_cancelled(loop)


async def test_r8_r94_a_cancel_inside_the_release_wins_by_compare_and_set() -> None:
    loop = make_loop(by_round([call("c1", "found a"), CONCLUDED]))
    real = loop.runs.transition
    moves: list[RunState] = []

    async def transition(run_id: str, expected: Any, to: RunState, end: Any = None, **more: Any) -> bool:
        if to is RunState.SUCCESS:
            await real(run_id, frozenset({RunState.RUNNING}), RunState.CANCEL_REQUESTED)
        moved = await real(run_id, expected, to, end, **more)
        moves.extend([to] if moved else [])
        return moved

    loop.runs.transition = transition  # type: ignore[method-assign]
    await loop.run()
    await assert_cancelled(loop)
    assert moves == [RunState.CANCELLED]


async def test_r8_r94_a_cancel_of_a_budget_fallback_wins_too() -> None:
    loop = make_loop(by_round(AGENT))
    loop.journal.after["project_progress"] = loop.cancel
    await loop.run(budget={"tool_calls": 0})
    await assert_cancelled(loop)


async def test_r8_a_cancel_after_the_end_changes_nothing() -> None:
    loop = make_loop([draft()])
    await loop.run()
    before = await loop.record()
    assert not await loop.runs.transition(loop.run_id, frozenset(RunState), RunState.CANCEL_REQUESTED)
    assert await loop.record() == before


@pytest.mark.parametrize("place", ["model", "tool", "repair", "semantics"])
async def test_r94_r116_r120_a_host_that_cancels_the_task_gets_its_cancel_and_the_run_ends_once(place: str) -> None:
    entered = asyncio.Event()

    async def hang(*_: Any) -> Any:
        entered.set()
        await asyncio.Event().wait()

    def at(name: str, otherwise: Any) -> Any:
        return (lambda request: hang()) if place == name else otherwise

    async def in_tool(query: str) -> None:
        if place == "tool":
            await hang()

    script = by_round(
        [call("c1", "found a"), at("model", FALSE)], [at("repair", CONCLUDED)], [at("semantics", SUPPORTED)]
    )
    loop = make_loop(script, tool=ProbeTool(before_run=in_tool))
    moves: list[RunState] = []
    real = loop.runs.transition

    async def transition(run_id: str, expected: Any, to: RunState, end: Any = None, **more: Any) -> bool:
        moved = await real(run_id, expected, to, end, **more)
        moves.extend([to] if moved else [])
        return moved

    loop.runs.transition = transition  # type: ignore[method-assign]
    task = asyncio.ensure_future(loop.run())
    await asyncio.wait_for(entered.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (record,) = await loop.runs.runs()
    assert (record.internal_state, record.release_outcome, record.error_code) == ("CANCELLED", "NONE", "CANCELLED")
    assert moves == [RunState.CANCELLED]
    (ended,) = await loop.events("RUN_ENDED", record.run_id)
    spent = {"tool": 120, "model": 120, "repair": 240, "semantics": 360}[place]
    assert record.total_token_count == spent, "what was spent is told, not zero (R115, R116)"
    assert (ended["internal_state"], ended["budget_total_tokens"]) == ("CANCELLED", spent)
    calls_, gaps = await loop.events("MODEL_CALL", record.run_id), 0 if place == "tool" else 1
    assert [each["usage_available"] for each in calls_] == [True] * (spent // 120) + [False] * gaps
    assert (ended["model_calls"], ended["usage_unavailable"]) == (len(calls_), gaps), (
        "the call that was cut off is a gap"
    )
    assert (record.usage["tokens_reconciled"], sum(record.usage["components"].values())) == (not gaps, len(calls_))
    answers = (await loop.journal.archived(record.run_id, "model_answer")).values()
    assert [each["failure"] for each in answers].count("CUT_OFF") == gaps


async def test_r8_a_host_cancel_and_a_cancel_request_together_end_once() -> None:
    async def hang() -> Any:
        await loop.cancel()
        task.cancel()
        await asyncio.Event().wait()

    loop = make_loop([lambda request: hang()])
    task = asyncio.ensure_future(loop.run())
    with pytest.raises(asyncio.CancelledError):
        await task
    (record,) = await loop.runs.runs()
    assert record.internal_state == "CANCELLED"
    assert len(await loop.events("RUN_ENDED", record.run_id)) == 1


async def test_r94_r115_a_host_cancel_while_the_trace_is_written_marks_the_end_too() -> None:
    loop = make_loop(by_round(AGENT))
    entered = asyncio.Event()

    async def hang(batch: Any) -> None:
        if not entered.is_set():
            entered.set()
            await asyncio.Event().wait()

    loop.journal.before["model_step"] = hang
    task = asyncio.ensure_future(loop.run())
    await asyncio.wait_for(entered.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (record,) = await loop.runs.runs()
    assert record.internal_state == "CANCELLED"
    told = await loop.events(run_id=record.run_id)
    assert [each["type"] for each in told] == ["RUN_STARTED", "MODEL_CALL", "RUN_ENDED"], (
        "nothing is lost, nothing twice"
    )
    assert told[1]["total_tokens"] == record.total_token_count == 120
