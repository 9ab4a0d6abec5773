"""The stop and the one closing chance on the real graph (R35, R36, R56-R61)."""

from __future__ import annotations

from typing import Any

import pytest

from nodes.ports import ModelReply
from tests.fakes import SUPPORTED, call, calls, draft, envelope
from tests.loop import Loop, assert_every_call_answered_once, make_loop

PAIR = {"stop_required": True, "reason": "INFORMATION_SATURATED"}
PROTOCOL_PAIR = {"stop_required": True, "reason": "PROGRESS_PROTOCOL_VIOLATED"}
CONCLUDED = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c1"])])


async def ran(*agent: Any, **context: Any) -> Loop:
    loop = make_loop(list(agent))
    await loop.run(**context)
    assert_every_call_answered_once(loop.state)
    return loop


def malformed(tool_call_id: str) -> ModelReply:
    return calls((tool_call_id, "query_probe", None))


async def test_r56_a_result_that_saturates_carries_the_pair_beside_its_whole_observation() -> None:
    plain = await ran(call("c1", "none a"), draft())
    loop = await ran(call("c1", "none a"), draft(), no_gain_threshold=1)
    assert loop.answers() == [{**plain.answers()[0], **PAIR}]
    assert loop.answers()[0]["evidence_status"] == "NO_EVIDENCE"
    assert loop.tool.ran == ["none a"]


async def test_r56_a_call_whose_evaluation_saturates_is_refused_with_the_pair_alone() -> None:
    loop = await ran(call("c1", "found a"), call("c2", "found b", ("c1", "NO_GAIN")), draft(), no_gain_threshold=1)
    assert loop.answers()[1] == {**PAIR, "previous_observation_applied": True}
    assert loop.tool.ran == ["found a"]
    (rejected,) = await loop.events("TOOL_REQUEST_REJECTED")
    assert (rejected["tool_call_id"], rejected["error_code"]) == ("c2", "INFORMATION_SATURATED")


async def test_r56_a_duplicate_that_reaches_the_threshold_gets_the_pair_instead_of_the_hint() -> None:
    again = call("c2", "found  a", ("c1", "GAINED"))
    loop = await ran(call("c1", "found a"), again, draft(), no_gain_threshold=1)
    assert loop.answers()[1] == {**PAIR, "previous_observation_applied": True}
    hint = await ran(call("c1", "found a"), again, draft())
    assert hint.answers()[1] == {
        "error_code": "DUPLICATE_SCOPE",
        "duplicate_of_tool_call_id": "c1",
        "previous_observation_applied": True,
    }


async def test_r40_one_request_may_add_two_no_gains() -> None:
    loop = await ran(call("c1", "found a"), call("c2", "found a", ("c1", "NO_GAIN")), draft(), no_gain_threshold=2)
    assert loop.state["tracker"]["consecutive_no_gain"] == 2
    assert loop.answers()[1] == {**PAIR, "previous_observation_applied": True}
    gains = await loop.events("INFORMATION_GAIN_APPLIED")
    assert [(each["producer"], each["before"], each["after"]) for each in gains] == [("MODEL", 0, 1), ("HARNESS", 1, 2)]


async def test_r35_the_protocol_threshold_delivers_its_own_pair_and_leaves_the_evaluation_pending() -> None:
    loop = await ran(call("c1", "found a"), malformed("c2"), malformed("c3"), draft())
    assert loop.answers()[1]["violation_type"] == "MALFORMED_ENVELOPE"
    assert loop.answers()[1]["repair_required"] is True
    assert loop.answers()[2] == PROTOCOL_PAIR
    assert loop.state["tracker"]["pending_tool_call_id"] == "c1"
    first, second = await loop.events("TOOL_REQUEST_REJECTED")
    assert (first["repair_prompt_delivered"], first["consecutive_protocol_violations"]) == (True, 1)
    assert (second["repair_prompt_delivered"], second["consecutive_protocol_violations"]) == (False, 2)
    assert "stop_reason" not in first
    assert second["stop_reason"] == "PROGRESS_PROTOCOL_VIOLATED"


@pytest.mark.parametrize(
    "stopping",
    [
        [call("c2", "none b", ("c1", "GAINED"))],
        [call("c2", "found b", ("c1", "NO_GAIN"))],
        [malformed("c2"), malformed("c3")],
    ],
    ids=["by a result", "by an evaluation", "by the protocol"],
)
async def test_r57_r58_a_second_call_after_the_stop_ends_collection_and_nothing_runs(stopping: list[Any]) -> None:
    late = calls(
        ("late-1", "query_probe", envelope("found x")),
        ("late-2", "no_such_tool", envelope("found y")),
        ("late-3", "query_probe", None),
    )
    loop = await ran(call("c1", "found a"), *stopping, late, CONCLUDED, SUPPORTED, no_gain_threshold=1)
    assert loop.state["ended"]["cause"] == "STOPPED"
    assert loop.answers()[-3:] == [{"error_code": "COLLECTION_STOPPED"}] * 3
    assert "found x" not in loop.tool.ran
    assert len(loop.model.requests) == 2 + len(stopping), "exactly one closing chance (R58, R59)"
    assert loop.state.get("draft") is None
    assert loop.outcome["release_outcome"] == "FALLBACK"
    codes = [each["error_code"] for each in await loop.events("TOOL_REQUEST_REJECTED")]
    assert codes[-3:] == ["COLLECTION_STOPPED"] * 3
    (stopped,) = await loop.events("COLLECTION_STOPPED")
    assert stopped["stop_reason"] == loop.outcome["stop_reason"]


async def test_r58_a_valid_draft_after_the_stop_is_released() -> None:
    for stopping in ([call("c2", "none b", ("c1", "GAINED"))], [malformed("c2"), malformed("c3")]):
        loop = await ran(call("c1", "found a"), *stopping, CONCLUDED, SUPPORTED, no_gain_threshold=1)
        assert (loop.outcome["release_outcome"], loop.outcome["internal_state"]) == ("CONCLUSION", "SUCCESS")


async def test_r59_the_stop_is_delivered_once_in_a_run() -> None:
    agent = [call("c1", "none a"), *(call(f"c{i}", f"found {i}") for i in range(2, 9))]
    loop = await ran(*agent, no_gain_threshold=1)
    assert sum("stop_required" in answer for answer in loop.answers()) == 1
    assert len(loop.model.requests) == 2


async def test_r61_tools_stay_bound_in_the_closing_turn() -> None:
    loop = await ran(call("c1", "none a"), draft(), no_gain_threshold=1)
    assert [len(request.tools) for request in loop.model.requests] == [1, 1]
    assert loop.model.requests[1].output is loop.model.requests[0].output


async def test_r15_r16_the_first_stop_reason_wins_and_collection_never_reopens() -> None:
    loop = await ran(call("c1", "none a"), malformed("c2"), draft(), no_gain_threshold=1)
    assert loop.outcome["stop_reason"] == "INFORMATION_SATURATED"
    states = [each.values["tracker"]["state"] for each in await loop.history() if "tracker" in each.values]
    assert states == sorted(states), "COLLECTING, then SATURATED, never back"
    assert len(await loop.events("COLLECTION_SATURATED")) == 1


async def test_r29_a_parallel_message_saturated_by_its_first_result_gets_the_pair_on_every_answer() -> None:
    both = calls(("c1", "query_probe", envelope("none a")), ("c2", "query_probe", envelope("found b")))
    loop = await ran(both, draft(), no_gain_threshold=1)
    first, second = loop.answers()
    assert first["evidence_status"] == "NO_EVIDENCE"
    assert PAIR.items() <= first.items()
    assert second["violation_type"] == "PARALLEL_TOOL_CALL"
    assert PAIR.items() <= second.items()
    assert loop.tool.ran == ["none a"]


async def test_r38_errors_change_no_count_and_leave_nothing_pending() -> None:
    agent = [call("c1", "none a"), *(call(f"c{i}", f"error {i}") for i in range(2, 6)), call("c6", "error 2"), draft()]
    loop = await ran(*agent, no_gain_threshold=2)
    assert loop.state["tracker"]["consecutive_no_gain"] == 1
    assert loop.state["tracker"]["stop_reason"] is None
    assert loop.tool.ran[-1] == "error 2", "a failed scope may be asked again"
