"""Whole Runs of the real graph over a Redis that fails in between: only what is verified is published (R60, R65, R87)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from nodes.contract import CallInHand, RunSettings
from nodes.tool_boundary import NotRecorded, execute
from release.contract import LimitationCode
from service.store.clock import FixedClock
from tests.fakes import ProbeTool, call, draft, text
from tests.integration.test_redis_canonical import patience, two_ways
from tests.loop import Loop, assert_every_call_answered_once, make_loop
from tests.redis_server import SERVER_URL, Fault, Line, leased_database
from tools.canonical.redis import RedisCanonicalStore
from tools.canonical.store import canonical_key
from tools.contract import InvocationStatus
from tools.scope import make_scope

SUPPORTED = text('{"verdict": "SUPPORTED", "unsupported_analysis_ids": []}')
FAULTS: list[Fault] = ["cut before request", "cut before reply", "cut reply", "swallow requests", "swallow replies"]
ANSWERS = [
    call("c1", "found a"),
    call("c2", "found b", ("c1", "GAINED")),
    draft("a is the cause", [("A1", "OBSERVATION", "line about found a", ["c1"])]),
    SUPPORTED,
]


@pytest.fixture
def database() -> Iterator[int]:
    with leased_database() as number:
        yield number


def acting(on_query: str, act: Callable[[], None]) -> ProbeTool:
    """A tool during whose run on one query something happens: after its begin, before its finish."""

    async def before_run(query: str) -> None:
        if query == on_query:
            act()
            await asyncio.sleep(0.01)

    return ProbeTool(before_run=before_run)


def published_facts(loop: Loop) -> list[str]:
    return [fact["tool_call_id"] for fact in (loop.outcome["fallback"] or {"observed_facts": []})["observed_facts"]]


async def test_a_run_over_redis_publishes_its_conclusion(database: int) -> None:
    async with two_ways(database) as (store, _, way):
        loop = make_loop(ANSWERS, canonical=store)
        await loop.run()
        assert loop.outcome["release_outcome"] == "CONCLUSION"
        assert way.accepted == 1
        for call_id in ("c1", "c2"):
            record = await store.get(loop.run_id, call_id)
            assert record is not None
            assert record.raw_response == {"raw": "MARKER-RAW-PAYLOAD"}


@pytest.mark.parametrize(
    "fault", ["cut before request", "cut before reply", "cut reply", "swallow requests", "swallow replies"]
)
async def test_r60_r65_an_outage_during_finish_is_a_fault_and_earlier_facts_are_published(
    database: int, fault: Fault
) -> None:
    """Also where the server applied the write: the harness cannot know, so call c2 is neither checked nor a fact."""
    async with two_ways(database, patience(fault)) as (store, _, way):

        def act() -> None:
            way.fault, way.once = fault, True

        loop = make_loop(ANSWERS, canonical=store, tool=acting("found b", act))
        await loop.run()
    assert loop.state["ended"]["fault"] == "CANONICAL_STORE"
    assert loop.outcome["internal_state"] == "SUCCESS"
    assert loop.outcome["published_result"] is None
    assert published_facts(loop) == ["c1"]
    assert [entry["scope"] for entry in loop.outcome["fallback"]["process"]] == [{"query": "found a"}]
    assert loop.outcome["fallback"]["limitations"]["notes"] == [
        LimitationCode.FAULT,
        LimitationCode.CANONICAL_RECORD_UNAVAILABLE,
    ]
    assert loop.outcome["usage"]["tool_calls"] == 2
    assert loop.outcome["stop_reason"] is None
    assert_every_call_answered_once(loop.state)
    assert not [event for event in await loop.events("TOOL_CALL_COMPLETED") if event["tool_call_id"] == "c2"]


async def test_r65_an_outage_that_stays_publishes_no_fact_and_the_stored_record_survives_it(database: int) -> None:
    async with two_ways(database) as (store, near, way):

        def act() -> None:
            way.fault = "refuse"
            way.cut()

        loop = make_loop(ANSWERS, canonical=store, tool=acting("found b", act))
        await loop.run()
        assert loop.state["ended"]["fault"] == "CANONICAL_STORE"
        assert published_facts(loop) == []
        assert loop.outcome["published_result"] is None
        projected = (await loop.events("PROGRESS_PROJECTED"))[0]
        assert projected["observed_facts"] == 0
        assert LimitationCode.CANONICAL_RECORD_UNAVAILABLE in projected["limitations"]
        record = await near.get(loop.run_id, "c1")
        assert record is not None
        assert record.status is InvocationStatus.READY


async def test_r65_an_outage_before_the_first_begin_runs_no_tool(database: int) -> None:
    async with two_ways(database) as (store, _, way):
        way.fault = "refuse"
        loop = make_loop(ANSWERS, canonical=store)
        await loop.run()
    assert loop.tool.ran == []
    assert loop.outcome["internal_state"] == "FAILED"
    assert loop.outcome["published_result"] is None


@pytest.mark.parametrize("loss", ["flushed", "garbage", "foreign"])
async def test_r65_a_record_lost_or_broken_during_the_run_is_a_limitation_never_a_fact(
    database: int, loss: str
) -> None:
    with redis.Redis.from_url(f"{SERVER_URL}/{database}") as server:
        async with two_ways(database) as (store, _, _):

            def act() -> None:
                (key,) = server.keys(canonical_key("*", "c1"))
                held = server.get(key)
                assert isinstance(held, bytes)
                broken = {"garbage": b"READY\n{", "foreign": held.replace(b'"c1"', b'"c9"')}
                assert server.set(key, broken[loss]) if loss in broken else server.delete(key)

            loop = make_loop(ANSWERS, canonical=store, tool=acting("found b", act))
            await loop.run()
    assert loop.outcome["published_result"] is None
    assert published_facts(loop) == ["c2"]
    assert LimitationCode.CANONICAL_RECORD_UNAVAILABLE in loop.outcome["fallback"]["limitations"]["notes"]


async def test_r51_r65_a_violating_record_that_cannot_be_rejected_ends_the_run_and_is_no_fact(database: int) -> None:
    async with two_ways(database) as (store, near, way):
        answers: list[Any] = [call("c1", "found a"), call("c2", "violate", ("c1", "GAINED")), *ANSWERS[2:]]
        loop = make_loop(answers, canonical=store)
        way.on_request = lambda: _cut_the_reject(way)
        await loop.run()
        record = await near.get(loop.run_id, "c2")
        assert record is not None
        assert record.status is InvocationStatus.READY
    assert loop.state["ended"]["fault"] == "CANONICAL_STORE"
    assert published_facts(loop) == ["c1"]
    assert_every_call_answered_once(loop.state)


def _cut_the_reject(way: Line) -> None:
    """The fifth write of that run is the reject: two begins, two finishes came before."""
    if way.sent("EVAL") == 5 and not way.once:
        way.fault, way.once = "cut before request", True


async def test_a_node_that_runs_again_after_a_lost_reply_reuses_its_own_result(database: int) -> None:
    tool, clock = ProbeTool(), FixedClock()
    scope = make_scope("query_probe", {"query": "found a"}, "probe")
    hand = CallInHand(tool_call_id="c1", tool_name="query_probe", input={"query": "found a"}, scope=scope)
    settings = RunSettings.model_construct(run_id="run-1", now=0.0, at_given=False)

    async with two_ways(database) as (store, _, way):

        async def lose(_: str) -> None:
            way.fault, way.once = "cut before reply", True

        tool.before_run = lose
        with pytest.raises(NotRecorded):
            await execute(tool, hand, settings, store, clock)
        again = await execute(tool, hand, settings, store, clock)
    assert again.status is InvocationStatus.READY
    assert tool.ran == ["found a"]
    assert isinstance(store, RedisCanonicalStore)
