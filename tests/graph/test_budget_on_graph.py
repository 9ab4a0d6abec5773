"""Every dimension of the budget on the real graph, and the guards' reserve (R117)."""

from __future__ import annotations

from typing import Any

import pytest

from graph.diagnosis import recursion_limit
from nodes.ports import ModelRequest, TokenUsage
from tests.fakes import SUPPORTED, ProbeTool, ScriptedModel, by_round, call, draft, text
from tests.loop import Loop, assert_every_call_answered_once, make_loop

CONCLUDED = draft("cause of it", [("A1", "OBSERVATION", "line about found 1", ["c1"])])


def gaining(request: ModelRequest) -> Any:
    """A model that always finds something new and never ends."""
    number = request.round_
    previous = (f"c{number - 1}", "GAINED") if number > 1 else None
    return call(f"c{number}", f"found {number}", previous)


async def ran(agent: Any = gaining, tool: ProbeTool | None = None, **budget: Any) -> Loop:
    loop = make_loop(agent, tool=tool or ProbeTool())
    await loop.run(budget=budget)
    assert_every_call_answered_once(loop.state)
    return loop


async def assert_stopped_by(loop: Loop, dimension: str) -> None:
    assert loop.outcome["stop_reason"] == "BUDGET_LIMIT_REACHED"
    assert loop.outcome["internal_state"] == "BUDGET_EXHAUSTED"
    assert loop.outcome["release_outcome"] == "FALLBACK"
    assert "STOPPED_BUDGET" in loop.outcome["fallback"]["limitations"]["notes"]
    (stopped,) = await loop.events("COLLECTION_STOPPED")
    assert (stopped["dimension"], stopped["stop_reason"]) == (dimension, "BUDGET_LIMIT_REACHED")


async def test_r117_model_calls_end_before_the_reserve() -> None:
    loop = await ran(model_calls=8, reserve_model_calls=3)
    await assert_stopped_by(loop, "MODEL_CALLS")
    assert len(loop.model.requests) == 5


async def test_r117_tool_calls() -> None:
    loop = await ran(tool_calls=3)
    await assert_stopped_by(loop, "TOOL_CALLS")
    assert len(loop.tool.ran) == 3
    assert loop.answers()[-1] == {"error_code": "COLLECTION_STOPPED", "previous_observation_applied": True}
    assert loop.state["tracker"]["pending_tool_call_id"] is None, "the evaluation was consumed all the same (R37)"


async def test_r117_tokens_end_before_the_reserve() -> None:
    loop = await ran(tokens=1000, reserve_tokens=500)
    await assert_stopped_by(loop, "TOKENS")
    assert loop.state["budget"]["tokens"] == 600, "five calls of 120: the fifth began below 500"


async def test_r117_observation_bytes() -> None:
    loop = await ran(tool=ProbeTool(size=1000), observation_bytes=2500)
    await assert_stopped_by(loop, "OBSERVATION_BYTES")
    assert len(loop.tool.ran) == 3


@pytest.mark.parametrize("slow", ["model", "tool"])
async def test_r117_wall_time_ends_before_the_reserve(slow: str) -> None:
    async def tool_takes_time(query: str) -> None:
        if slow == "tool":
            loop.clock.advance(40)

    def model_takes_time(request: ModelRequest) -> Any:
        if slow == "model":
            loop.clock.advance(40)
        return gaining(request)

    loop = make_loop(model_takes_time, tool=ProbeTool(before_run=tool_takes_time))
    await loop.run(budget={"wall_seconds": 140, "reserve_seconds": 40})
    await assert_stopped_by(loop, "WALL_TIME")
    assert len(loop.tool.ran) == (2 if slow == "model" else 3)
    assert len(loop.model.requests) == 3


async def test_r117_every_request_is_given_no_more_time_than_remains() -> None:
    def model_takes_time(request: ModelRequest) -> Any:
        loop.clock.advance(40)
        return gaining(request)

    loop = make_loop(model_takes_time)
    await loop.run(budget={"wall_seconds": 140, "reserve_seconds": 40})
    assert [request.timeout_seconds for request in loop.model.requests] == [100, 60, 20]


@pytest.mark.parametrize("dimension", ["calls", "tokens", "time"])
async def test_r117_the_reserve_lets_guards_judge_the_draft_that_used_up_the_rest(dimension: str) -> None:
    false = draft("cause of it", [("A1", "OBSERVATION", "line about found 1", ["c9"])])
    if dimension == "tokens":
        false = text(false.text, TokenUsage(500, 20))

    def last(request: ModelRequest) -> Any:
        if dimension == "time":
            loop.clock.advance(100)
        return false

    script = by_round([call("c1", "found 1"), last], [CONCLUDED], [text("no verdict"), SUPPORTED])
    loop = make_loop(script)
    budget = {
        "calls": {"model_calls": 5, "reserve_model_calls": 3},
        "tokens": {"tokens": 1000, "reserve_tokens": 500},
        "time": {"wall_seconds": 145, "reserve_seconds": 45},
    }[dimension]
    await loop.run(budget=budget)
    names = [request.component.value for request in loop.model.requests]
    assert names == ["DIAGNOSIS_AGENT"] * 2 + ["EVIDENCE_REPAIR"] + ["SEMANTIC_GUARD"] * 2
    assert (loop.outcome["release_outcome"], loop.outcome["internal_state"]) == ("CONCLUSION", "SUCCESS")
    assert loop.outcome["stop_reason"] is None


async def test_r117_guards_do_not_go_beyond_the_totals_either() -> None:
    loop = make_loop(by_round([call("c1", "found 1"), CONCLUDED], [], [text("no verdict"), SUPPORTED]))
    await loop.run(budget={"model_calls": 3, "reserve_model_calls": 1})
    assert len(loop.model.requests) == 3
    assert loop.outcome["reason"] == "GUARD_UNAVAILABLE"
    assert "FAULT" in loop.outcome["fallback"]["limitations"]["notes"]


async def test_r117_supersteps_stay_within_the_recursion_limit_of_the_tightest_budgets() -> None:
    for calls in (4, 7, 24):
        loop = make_loop(gaining)
        limits = {"model_calls": calls, "tool_calls": 1000}
        await loop.run(budget=limits)
        steps = loop.state["position"]["step"]
        assert steps < recursion_limit(BudgetOf(limits)), "the model and its tools ended it, not the limit"
        assert len(loop.model.requests) == calls - 3


async def test_r117_the_longest_legal_run_stays_within_the_recursion_limit() -> None:
    """Every turn the longest way, a closing turn, both guards and a repair, in a budget that just fits."""
    false = draft("cause of it", [("A1", "OBSERVATION", "line about found 1", ["c9"])])
    agent = [call("c1", "found 1"), call("c2", "none 2", ("c1", "GAINED")), false]
    loop = make_loop(by_round(agent, [CONCLUDED], [SUPPORTED]))
    await loop.run(no_gain_threshold=1, budget={"model_calls": 6, "reserve_model_calls": 3})
    assert loop.outcome["release_outcome"] == "CONCLUSION"


def BudgetOf(limits: dict[str, Any]) -> Any:
    from graph.budget import BudgetLimits

    return BudgetLimits(**limits)


async def test_r2_r117_settings_are_read_once_and_the_model_never_sees_them() -> None:
    model = ScriptedModel([call("c1", "found 1"), draft()])
    loop = make_loop([], model=model)
    await loop.run(no_gain_threshold=17, protocol_violation_threshold=19, budget={"tokens": 313_131})
    seen = "".join(str(message.content) for request in model.requests for message in request.messages)
    assert not [number for number in ("17", "19", "313131") if number in seen]
    assert loop.state["run"]["limits"]["tokens"] == 313_131
