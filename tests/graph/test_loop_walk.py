"""The product of moves through the real graph (R26-R42, R57, R58, R153).

By default every third sequence of depth 3 from every distinct state the moves reach is walked, shorter ones whole; `-m slow`
walks all of them, and the whole product.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from nodes.ports import ModelReply
from tests.fakes import ProbeTool, call, calls, draft, envelope, text
from tests.loop import Loop, assert_every_call_answered_once, make_loop
from tests.oracle import MOVES, Move, Oracle

TERMINAL = {"draft", "empty output", "bad id"}


def reply(oracle: Oracle, move: Move) -> ModelReply:
    """What the scripted model says for a move, given what happened so far."""
    previous, outcome = move
    if outcome == "draft":
        return draft()
    if outcome == "empty output":
        return text("")
    turn = copy.deepcopy(oracle)
    turn.turn += 1
    named = turn.named_id(previous)
    value = previous if previous in ("GAINED", "NO_GAIN") else "GAINED"
    evaluation = (named, value) if named else None
    if outcome == "bad id":
        return call("not an id!", "found", evaluation)
    query = turn.query(outcome)
    if outcome == "unknown tool":
        return calls((turn.call_id, "no_such_tool", envelope(query, evaluation)))
    first = (turn.call_id, "query_probe", envelope(query, evaluation))
    if outcome == "extra call":
        return calls(first, (f"{turn.call_id}-extra", "query_probe", envelope("found extra")))
    return calls(first)


class Walk:
    """One loop that every sequence is run through: the graph is compiled once, and nothing of a Run may reach the next (R1)."""

    def __init__(self) -> None:
        self.loop = make_loop([], checkpointer=None, tool=ProbeTool())

    async def run(self, moves: tuple[Move, ...]) -> tuple[Loop, Oracle]:
        """Run the moves; when they do not end the run, the model says nothing and the empty output ends it."""
        oracle, replies = Oracle(), list[ModelReply]()
        for move in moves:
            replies.append(reply(oracle, move))
            oracle.step(move)
        if oracle.ended is None:
            oracle.step(("", "empty output"))
        self.loop.model.answers, self.loop.model.requests = replies, []
        self.loop.tool.ran.clear()
        await self.loop.run(no_gain_threshold=2, protocol_violation_threshold=2)
        return self.loop, oracle


def answer_code(content: dict[str, object]) -> str:
    """Name an answer as the oracle does."""
    stop = "stop_required" in content
    if content.get("evidence_status"):
        return str(content["evidence_status"]) + ("+STOP" if stop else "")
    if stop and "error_code" not in content:
        return "STOP"
    return str(content.get("violation_type") or content["error_code"]) + ("+STOP" if stop else "")


def assert_as_written(loop: Loop, oracle: Oracle) -> None:
    tracker = loop.state["tracker"]
    assert loop.state["ended"]["cause"] == oracle.ended
    assert len(loop.tool.ran) == oracle.executed
    assert tracker["consecutive_no_gain"] == oracle.no_gain
    assert tracker["consecutive_protocol_violations"] == oracle.violations
    assert tracker["stop_reason"] == oracle.stop_reason
    assert tracker["pending_tool_call_id"] == oracle.pending
    assert len(loop.state.get("tracker_index") or []) == oracle.indexed
    assert_every_call_answered_once(loop.state)
    expected = [code for turn in oracle.answers for code in turn]
    assert [answer_code(content) for content in loop.answers()] == expected
    assert loop.outcome["internal_state"] in {"SUCCESS", "FAILED"}


def sequences_by_state(depth: int) -> Iterator[tuple[Move, ...]]:
    """Every move at each depth, from one representative of every distinct state reached before."""
    frontier: dict[tuple[object, ...], tuple[Move, ...]] = {(): ()}
    for _ in range(depth):
        reached: dict[tuple[object, ...], tuple[Move, ...]] = {}
        for prefix in frontier.values():
            for move in MOVES:
                sequence = (*prefix, move)
                yield sequence
                oracle = Oracle()
                for each in sequence:
                    oracle.step(each)
                if oracle.ended is None:
                    reached.setdefault(state_of(oracle), sequence)
        frontier = reached


def state_of(oracle: Oracle) -> tuple[object, ...]:
    same = "found same" in oracle.scopes
    pending, latest = oracle.pending is not None, oracle.latest is not None
    return oracle.no_gain, oracle.violations, oracle.stop_reason, pending, latest, oracle.stop_delivered, same


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
async def test_r37_depth_three_from_every_distinct_state_agrees_with_the_written_order(stride: int) -> None:
    count, walk = 0, Walk()
    for place, sequence in enumerate(sequences_by_state(3)):
        if len(sequence) == 3 and (place + place // len(MOVES)) % stride:
            continue  # each move is left out after other beginnings
        loop, oracle = await walk.run(sequence)
        try:
            assert_as_written(loop, oracle)
        except AssertionError as error:
            raise AssertionError(f"{sequence}: {error}") from error
        count += 1
    assert count > 500 // stride


@pytest.mark.slow
async def test_r37_the_whole_product_to_depth_three_agrees_with_the_written_order() -> None:
    ending = [move for move in MOVES if move[1] in TERMINAL]
    walk = Walk()
    going = [move for move in MOVES if move[1] not in TERMINAL]
    for first in MOVES:
        for second in MOVES if first in going else [None]:
            for third in MOVES if second in going else [None]:
                sequence = tuple(move for move in (first, second, third) if move is not None)
                oracle = Oracle()
                for at, move in enumerate(sequence):
                    oracle.step(move)
                    if oracle.ended is not None:
                        sequence = sequence[: at + 1]
                        break
                loop, expected = await walk.run(sequence)
                assert_as_written(loop, expected)
    assert len(ending) == 6
