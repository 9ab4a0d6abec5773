"""Tool Call IDs, parallel messages, and models that do the same for ever (R28-R30, R72, R117)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graph.budget import BudgetLimits
from nodes.ports import ModelRequest
from tests.fakes import call, calls, draft, envelope
from tests.loop import Loop, assert_every_call_answered_once, make_loop


async def ran(*agent: Any, **context: Any) -> Loop:
    loop = make_loop(list(agent))
    await loop.run(**context)
    assert_every_call_answered_once(loop.state)
    return loop


BAD_IDS = ["", "x" * 129, "with space", "c1\n", "ü", "a/b", "\x00", "c1;", "\u202ec1"]


@pytest.mark.parametrize("bad", BAD_IDS)
@pytest.mark.parametrize("facts", [True, False])
async def test_r72_r78_an_unsafe_id_fails_the_turn_before_any_call_runs(bad: str, facts: bool) -> None:
    first = [call("c1", "found a")] if facts else []
    message = calls(("good", "query_probe", envelope("found b")), (bad, "query_probe", envelope("found c")))
    loop = await ran(*first, message, draft())
    assert loop.tool.ran == ["found a"] * facts
    assert loop.state["output_failure"]["failure"] == "INVALID_TOOL_CALL_ID"
    (rejected,) = await loop.events("AGENT_OUTPUT_REJECTED")
    assert (rejected["failure"], rejected["has_publishable_progress"]) == ("INVALID_TOOL_CALL_ID", facts)
    assert loop.outcome["release_outcome"] == ("FALLBACK" if facts else "NONE")
    assert loop.outcome["internal_state"] == ("SUCCESS" if facts else "FAILED")
    assert len(loop.model.requests) == 1 + facts
    for row in await loop.journal.steps(loop.run_id):
        assert "good" not in row.tool_call_ids


async def test_r72_the_longest_and_oddest_allowed_ids_work() -> None:
    for good in ("x" * 128, "a_b.c:d-e", "0", "functions.query_probe:0"):
        loop = await ran(call(good, "found a"), call("next", "found b", (good, "GAINED")), draft())
        assert loop.tool.ran == ["found a", "found b"]


async def test_r72_an_id_twice_in_one_message_or_again_in_the_run_fails_the_turn() -> None:
    twice = calls(("c1", "query_probe", envelope("found a")), ("c1", "query_probe", envelope("found b")))
    loop = await ran(twice)
    assert (loop.tool.ran, loop.state["output_failure"]["failure"]) == ([], "INVALID_TOOL_CALL_ID")
    for first in (call("c1", "found a"), call("c1", "invalid"), calls(("c1", "no_tool", {})), calls(("c1", "x", None))):
        again = await ran(first, call("c1", "found b", ("c1", "GAINED")))
        assert again.state["output_failure"]["failure"] == "INVALID_TOOL_CALL_ID"
        assert "found b" not in again.tool.ran


async def test_r72_an_id_of_an_earlier_run_on_the_thread_may_come_again() -> None:
    loop = await ran(call("c1", "found a"), draft(), call("c1", "found a"), draft())
    await loop.run()
    assert loop.tool.ran == ["found a", "found a"], "another Run: no duplicate scope, no used id (R1)"
    assert not loop.state.get("output_failure")


@pytest.mark.parametrize("count", [2, 20])
async def test_r29_the_first_of_many_calls_is_handled_and_all_are_answered_in_order(count: int) -> None:
    many = calls(*((f"c{i}", "query_probe", envelope(f"found {i}")) for i in range(1, count + 1)))
    loop = await ran(many, call("d1", "found d", ("c1", "GAINED")), draft())
    assert loop.tool.ran == ["found 1", "found d"]
    first, *others = loop.answers()[:count]
    assert first["evidence_status"] == "EVIDENCE_FOUND"
    assert others == [
        {
            "error_code": "INVALID_PROGRESS_PROTOCOL",
            "repair_required": True,
            "violation_type": "PARALLEL_TOOL_CALL",
            "expected_previous_tool_call_id": "c1",
            "allowed_information_gain": ["GAINED", "NO_GAIN"],
        }
    ] * (count - 1)
    rejected = await loop.events("TOOL_REQUEST_REJECTED")
    assert [each["tool_call_id"] for each in rejected] == [f"c{i}" for i in range(2, count + 1)]
    assert {each["consecutive_protocol_violations"] for each in rejected} == {1}, "one message, one violation"


async def test_r29_two_parallel_messages_in_a_row_stop_and_the_second_runs_nothing() -> None:
    def two(turn: int, previous: tuple[str, str] | None = None) -> Any:
        return calls(
            (f"c{turn}", "query_probe", envelope(f"found {turn}", previous)),
            (f"e{turn}", "query_probe", envelope("found extra")),
        )

    loop = await ran(two(1), two(2, ("c1", "GAINED")), draft())
    assert loop.tool.ran == ["found 1"]
    pair = {"stop_required": True, "reason": "PROGRESS_PROTOCOL_VIOLATED"}
    assert loop.answers()[2:] == [pair, pair]
    assert loop.state["tracker"]["pending_tool_call_id"] == "c1", "the evaluation of a refused message is not consumed"


async def test_r29_r34_a_valid_single_call_in_between_resets_the_count() -> None:
    two = calls(("c1", "query_probe", envelope("found a")), ("e1", "query_probe", envelope("found extra")))
    again = calls(("c3", "query_probe", envelope("found c", ("c2", "GAINED"))), ("e3", "query_probe", None))
    loop = await ran(two, call("c2", "found b", ("c1", "GAINED")), again, draft())
    assert loop.state["tracker"]["stop_reason"] is None
    assert loop.tool.ran == ["found a", "found b", "found c"]


async def test_r29_a_call_of_a_parallel_message_that_is_itself_wrong_counts_once() -> None:
    both = calls(("c1", "query_probe", None), ("e1", "query_probe", None))
    loop = await ran(both, draft())
    assert [each["violation_type"] for each in loop.answers()] == ["MALFORMED_ENVELOPE", "PARALLEL_TOOL_CALL"]
    assert loop.state["tracker"]["consecutive_protocol_violations"] == 1


@pytest.mark.parametrize(
    ("arguments", "violation", "field"),
    [
        (None, "MALFORMED_ENVELOPE", None),
        ({"query": "found a"}, "MALFORMED_ENVELOPE", None),
        ({"input": {"query": "found a"}, "reason": "because"}, "MALFORMED_ENVELOPE", None),
        ({"input": "found a"}, "MALFORMED_ENVELOPE", None),
        ({"input": {"query": "found a"}, "previous_observation": []}, "MALFORMED_ENVELOPE", None),
        ({}, "MISSING_FIELD", "input"),
        ({"input": None}, "MISSING_FIELD", "input"),
        (
            {"input": {"query": "found a"}, "previous_observation": {"tool_call_id": "c1"}},
            "MISSING_FIELD",
            "previous_observation.information_gain",
        ),
        (
            {
                "input": {"query": "found a"},
                "previous_observation": {"tool_call_id": "c1", "information_gain": "MAYBE"},
            },
            "INVALID_INFORMATION_GAIN",
            None,
        ),
        (envelope("found a", ("c9", "GAINED")), "UNEXPECTED_PREVIOUS_OBSERVATION", None),
    ],
)
async def test_r23_r24_r28_r33_a_broken_envelope_is_named_and_nothing_runs(
    arguments: Any, violation: str, field: str | None
) -> None:
    loop = await ran(calls(("c1", "query_probe", arguments)), draft())
    answer = loop.answers()[0]
    assert (answer["violation_type"], answer.get("missing_field")) == (violation, field)
    assert loop.tool.ran == []
    assert "expected_previous_tool_call_id" not in answer
    assert "c9" not in json.dumps(answer)


async def test_r26_r33_a_pending_result_needs_its_own_id_and_only_that_is_named() -> None:
    for previous, violation in (
        (None, "MISSING_PREVIOUS_OBSERVATION"),
        (("c9", "GAINED"), "PREVIOUS_TOOL_CALL_MISMATCH"),
    ):
        loop = await ran(call("c1", "found a"), call("c2", "found b", previous), draft())
        answer = loop.answers()[1]
        assert (answer["violation_type"], answer["expected_previous_tool_call_id"]) == (violation, "c1")
        assert "c9" not in json.dumps(answer)
        assert loop.tool.ran == ["found a"]
        assert loop.state["tracker"]["pending_tool_call_id"] == "c1"


async def test_r27_an_already_consumed_id_is_refused_and_the_latest_answered_one_tolerated() -> None:
    agent = [
        call("c1", "found a"),
        call("c2", "error b", ("c1", "GAINED")),
        call("c3", "none c", ("c2", "NO_GAIN")),
        call("c4", "found d", ("c1", "GAINED")),
        draft(),
    ]
    loop = await ran(*agent)
    assert loop.answers()[3]["violation_type"] == "UNEXPECTED_PREVIOUS_OBSERVATION"
    assert loop.tool.ran == ["found a", "error b", "none c"]
    assert loop.state["tracker"]["consecutive_no_gain"] == 1, "the tolerated NO_GAIN changed nothing"


async def test_r28_a_bad_input_names_field_and_rule_never_the_value_and_keeps_the_evaluation() -> None:
    wrong = [
        {"query": "VALUE", "VALUE-KEY": 1},
        {"query": 7_654_321},
        {"query": "VALUE" * 100},
        {"query": "invalid VALUE"},
        {},
    ]
    for business in wrong:
        bad = calls(("c2", "query_probe", {**envelope("x", ("c1", "NO_GAIN")), "input": business}))
        loop = await ran(call("c1", "found a"), bad, call("c3", "found b", ("c1", "GAINED")), draft())
        answer = loop.answers()[1]
        assert answer["error_code"] == "INVALID_TOOL_REQUEST"
        assert set(answer) == {"error_code", "field", "rule", "allowed", "previous_observation_applied"}
        assert "VALUE" not in json.dumps(answer)
        assert "7654321" not in json.dumps(answer)
        assert loop.state["budget"]["tool_calls"] == 2
        assert loop.state["tracker"]["consecutive_no_gain"] == 0
        assert loop.tool.ran == ["found a", "found b"]


async def test_r28_a_name_that_only_looks_like_a_tool_is_not_available() -> None:
    for name in ("query/probe", "query probe", "QUERY_PROBE", "", "query_probe" + "\u200b", "query_probe" + "!" * 60):
        loop = await ran(calls(("c1", name, envelope("found a"))), draft())
        assert loop.tool.ran == [], name
        assert loop.answers() == [{"error_code": "TOOL_NOT_AVAILABLE", "available_tools": ["query_probe"]}]
        (rejected,) = await loop.events("TOOL_REQUEST_REJECTED")
        assert (rejected["tool_name"], rejected["error_code"]) == ("unknown", "TOOL_NOT_AVAILABLE")


async def test_r23_a_megabyte_of_arguments_is_refused_and_bounded_in_every_answer() -> None:
    huge = "x" * 1_000_000
    loop = await ran(
        call("c1", huge),
        calls(("c2", "query_probe", {"input": {"query": "found a", huge: 1}})),
        calls(("c3", "query_probe", {huge: 1})),
        draft(),
    )
    assert loop.tool.ran == []
    assert all(len(json.dumps(answer)) < 2000 for answer in loop.answers())
    assert max(len(str(each)) for each in await loop.events()) < 2000


def for_ever(request: ModelRequest, name: str = "query_probe", **business: Any) -> Any:
    arguments: Any = {"input": {"query": "found same", **business}}
    if request.round_ > 1 and not business and name == "query_probe":
        arguments["previous_observation"] = {"tool_call_id": f"c{request.round_ - 1}", "information_gain": "GAINED"}
    return calls((f"c{request.round_}", name, arguments))


async def test_r37_r45_the_same_call_for_ever_ends_by_saturation() -> None:
    loop = make_loop(for_ever)
    await loop.run()
    assert_every_call_answered_once(loop.state)
    assert loop.tool.ran == ["found same"], "a duplicate is not executed (R46)"
    assert loop.outcome["stop_reason"] == "INFORMATION_SATURATED"
    assert len(loop.model.requests) == 5, "one found, three duplicates, one closing turn"
    assert loop.state["budget"]["tool_calls"] == 1


@pytest.mark.parametrize("how", ["unknown tool", "invalid request"])
async def test_r30_neutral_refusals_for_ever_end_by_the_model_call_budget(how: str) -> None:
    def same(request: ModelRequest) -> Any:
        return for_ever(request, "no_tool") if how == "unknown tool" else for_ever(request, limit=1)

    loop = make_loop(same)
    await loop.run()
    assert_every_call_answered_once(loop.state)
    limits = BudgetLimits()
    assert len(loop.model.requests) == limits.model_calls - limits.reserve_model_calls
    assert loop.outcome["stop_reason"] == "BUDGET_LIMIT_REACHED"
    assert loop.tool.ran == []
    assert loop.state["tracker"]["consecutive_no_gain"] == 0
    assert loop.state["tracker"]["consecutive_protocol_violations"] == 0


async def test_r38_errors_for_ever_end_by_the_tool_budget() -> None:
    def failing(request: ModelRequest) -> Any:
        return call(f"c{request.round_}", "error same")

    loop = make_loop(failing)
    await loop.run()
    assert len(loop.tool.ran) == BudgetLimits().tool_calls
    (stopped,) = await loop.events("COLLECTION_STOPPED")
    assert stopped["dimension"] == "TOOL_CALLS"
