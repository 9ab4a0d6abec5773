"""Counts of attempts per component and kind of failure; the harness owns every retry (R118)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graph.contract import Component
from nodes.ports import ModelCallFailed, ModelFailureKind, ModelRequest
from tests.fakes import SUPPORTED, by_round, call, draft, text
from tests.loop import Loop, make_loop

K = ModelFailureKind
CONCLUDED = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c1"])])
FALSE = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c9"])])
AGENT_RETRIES = {K.CONNECTION, K.RATE_LIMITED, K.UNAVAILABLE}
GUARD_RETRIES = {
    *AGENT_RETRIES,
    K.TIMEOUT,
    K.SERVER_ERROR,
    K.MALFORMED_RESPONSE,
    K.OUTPUT_TRUNCATED,
}


class Waits:
    """Time that passes at once on the run's clock."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.loop: Loop | None = None
        self.meanwhile: Any = None

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        assert self.loop is not None
        self.loop.clock.advance(seconds)
        if self.meanwhile is not None:
            await self.meanwhile()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    waits = Waits()
    monkeypatch.setattr("nodes.model_calls.asyncio.sleep", waits.sleep)
    return waits


async def ran(waits: Waits, script: Any, **context: Any) -> Loop:
    loop = waits.loop = make_loop(script)
    await loop.run(**context)
    return loop


@pytest.mark.parametrize("kind", [each for each in K if each is not K.CUT_OFF])
async def test_r118_the_agent_repeats_only_where_nothing_of_an_answer_arrived(kind: K, waits: Waits) -> None:
    loop = await ran(waits, by_round([kind, draft()]))
    attempts = 2 if kind in AGENT_RETRIES else 1
    assert len(loop.model.requests) == attempts
    events = await loop.events("MODEL_CALL")
    assert [event["component_round"] for event in events] == list(range(1, attempts + 1))
    assert loop.state["budget"]["model_calls"] == attempts, "each attempt is a model call in ledger and budget"
    assert loop.outcome["usage"]["components"] == {"DIAGNOSIS_AGENT": attempts}
    assert loop.outcome["release_outcome"] == ("FALLBACK" if attempts == 2 else "NONE")


@pytest.mark.parametrize("kind", sorted(AGENT_RETRIES))
async def test_r118_the_agent_does_not_repeat_what_had_begun_to_answer(kind: K, waits: Waits) -> None:
    loop = await ran(waits, by_round([ModelCallFailed(kind, answered=True), draft()]))
    assert len(loop.model.requests) == 1


async def test_r118_two_attempts_and_no_more(waits: Waits) -> None:
    loop = await ran(waits, by_round([K.RATE_LIMITED, K.RATE_LIMITED, draft()], [], []))
    assert len(loop.model.requests) == 2
    guarded = await ran(waits, by_round([call("c1", "found a"), CONCLUDED], [], [K.TIMEOUT, K.TIMEOUT, SUPPORTED]))
    assert len(guarded.model.asked(Component.SEMANTIC_GUARD)) == 2


async def test_r118_each_turn_of_the_agent_has_its_own_two_attempts(waits: Waits) -> None:
    loop = await ran(waits, by_round([K.CONNECTION, call("c1", "found a"), K.CONNECTION, draft()]))
    assert len(loop.model.requests) == 4
    assert loop.state["position"]["turn"] == 2
    assert loop.tool.ran == ["found a"]


@pytest.mark.parametrize("kind", [each for each in K if each is not K.CUT_OFF])
async def test_r118_the_semantic_guard_repeats_technical_and_format_failures(kind: K, waits: Waits) -> None:
    loop = await ran(waits, by_round([call("c1", "found a"), CONCLUDED], [], [kind, SUPPORTED]))
    attempts = 2 if kind in GUARD_RETRIES else 1
    assert len(loop.model.asked(Component.SEMANTIC_GUARD)) == attempts
    assert loop.outcome["release_outcome"] == ("CONCLUSION" if attempts == 2 else "FALLBACK")


@pytest.mark.parametrize("kind", [each for each in K if each is not K.CUT_OFF])
async def test_r118_evidence_repair_is_one_attempt(kind: K, waits: Waits) -> None:
    loop = await ran(waits, by_round([call("c1", "found a"), FALSE], [kind, CONCLUDED]))
    assert len(loop.model.asked(Component.EVIDENCE_REPAIR)) == 1
    assert waits.seconds == []


async def test_r118_a_tool_is_run_once(waits: Waits) -> None:
    loop = await ran(waits, by_round([call("c1", "error a"), call("c2", "crash b"), draft()]))
    assert loop.tool.ran == ["error a", "crash b"]


async def test_r118_the_provider_s_wish_is_waited_for(waits: Waits) -> None:
    loop = await ran(waits, by_round([ModelCallFailed(K.RATE_LIMITED, retry_after=37.0), draft()]))
    assert waits.seconds == [37.0]
    assert len(loop.model.requests) == 2
    assert loop.model.requests[1].timeout_seconds <= 240 - 45 - 37


@pytest.mark.parametrize("seconds", [195.0, 10_000.0, float("inf")])
async def test_r118_a_wish_beyond_the_time_budget_means_no_second_attempt(seconds: float, waits: Waits) -> None:
    loop = await ran(waits, by_round([ModelCallFailed(K.UNAVAILABLE, retry_after=seconds), draft()]))
    assert waits.seconds == []
    assert len(loop.model.requests) == 1
    assert loop.outcome["reason"] == "FAULT"
    assert loop.outcome["stop_reason"] is None


async def test_r117_r118_a_guard_may_wait_into_the_reserve(waits: Waits) -> None:
    def late(request: ModelRequest) -> Any:
        loop.clock.advance(190)
        return CONCLUDED

    script = by_round([call("c1", "found a"), late], [], [ModelCallFailed(K.RATE_LIMITED, retry_after=30.0), SUPPORTED])
    loop = waits.loop = make_loop(script)
    await loop.run()
    assert waits.seconds == [30.0]
    assert loop.outcome["release_outcome"] == "CONCLUSION"


async def test_r118_r119_a_cancel_while_waiting_makes_no_second_attempt(waits: Waits) -> None:
    loop = waits.loop = make_loop(by_round([K.RATE_LIMITED, call("c1", "found a")]))
    waits.meanwhile = loop.cancel
    await loop.run()
    assert len(loop.model.requests) == 1
    assert loop.outcome["internal_state"] == "CANCELLED"


async def test_r118_a_client_that_never_returns_is_cut_off_as_a_timeout(waits: Waits) -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    loop = make_loop([lambda request: never()], model_timeout_seconds=-0.9)
    await loop.run()
    (stopped,) = await loop.events("COLLECTION_STOPPED")
    assert stopped["fault"] == "MODEL_TIMEOUT"
    assert len(loop.model.requests) == 1


async def test_r118_an_unusable_text_of_the_guard_costs_one_more_call_and_is_counted(waits: Waits) -> None:
    loop = await ran(waits, by_round([call("c1", "found a"), CONCLUDED], [], [text("yes"), text("yes"), SUPPORTED]))
    (ended,) = await loop.events("RUN_ENDED")
    assert ended["model_calls"] == 4
    assert ended["tokens_reconciled"] is True
