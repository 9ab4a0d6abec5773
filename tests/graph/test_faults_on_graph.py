"""Every kind of fault injected into the loop (R60, R65, R87, R139): none is released with a reason it did not earn."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from nodes.ports import ModelCallFailed, ModelFailureKind
from tests.fakes import SUPPORTED, Answer, ProbeTool, by_round, call, draft
from tests.loop import Loop, assert_every_call_answered_once, make_loop
from tools.canonical.memory import MemoryCanonicalStore
from tools.canonical.store import CanonicalRecordTooLarge, CanonicalStoreUnavailable
from tools.contract import CanonicalRecord, ToolErrorCode
from tools.evidence_tool import ObservationContractViolation, ToolFailure

FOUND = call("c1", "found a")
SECOND = call("c2", "found b", ("c1", "GAINED"))
CONCLUDED = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c1"])])


def assert_fault(loop: Loop, *, facts: bool) -> None:
    """R60, R87: with a verified fact INSUFFICIENT_EVIDENCE and FAULT, else FAILED; never with a stop it did not earn."""
    assert_every_call_answered_once(loop.state)
    assert loop.outcome["stop_reason"] is None
    assert loop.outcome["published_result"] is None
    if facts:
        assert loop.outcome["release_outcome"] == "FALLBACK"
        assert loop.outcome["fallback"]["reason"] == "INSUFFICIENT_EVIDENCE"
        assert "FAULT" in loop.outcome["fallback"]["limitations"]["notes"]
        assert not [each for each in loop.outcome["fallback"]["limitations"]["notes"] if each.startswith("STOPPED")]
        assert loop.outcome["internal_state"] == "SUCCESS"
    else:
        assert (loop.outcome["release_outcome"], loop.outcome["internal_state"]) == ("NONE", "FAILED")
        assert loop.outcome["fallback"] is None
    assert "cause of it" not in json.dumps(loop.outcome)


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(seconds: float) -> None:
        return None

    monkeypatch.setattr("nodes.model_calls.asyncio.sleep", at_once)


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("kind", [each for each in ModelFailureKind if each is not ModelFailureKind.CUT_OFF])
@pytest.mark.parametrize("facts", [True, False])
async def test_r60_a_model_failure_is_a_fault(kind: ModelFailureKind, facts: bool) -> None:
    loop = make_loop([*([FOUND] if facts else []), kind, kind, CONCLUDED])
    await loop.run()
    assert_fault(loop, facts=facts)
    assert loop.state["ended"]["cause"] == "FAULT"
    (stopped,) = await loop.events("COLLECTION_STOPPED")
    assert stopped["fault"] == f"MODEL_{kind.value}"
    assert "stop_reason" not in stopped


@pytest.mark.usefixtures("no_waiting")
async def test_r60_a_model_failure_whose_retry_the_budget_forbids_stays_a_fault() -> None:
    loop = make_loop([ModelFailureKind.UNAVAILABLE, CONCLUDED])
    await loop.run(budget={"model_calls": 4, "reserve_model_calls": 3})
    assert len(loop.model.requests) == 1
    assert_fault(loop, facts=False)


async def test_r60_a_model_fault_in_the_closing_turn_is_published_as_a_fault_beside_the_earned_stop() -> None:
    loop = make_loop([call("c1", "none a"), ModelFailureKind.AUTHENTICATION])
    await loop.run(no_gain_threshold=1)
    assert loop.outcome["reason"] == "FAULT"
    assert set(loop.outcome["fallback"]["limitations"]["notes"]) == {"FAULT", "STOPPED_INFORMATION_SATURATED"}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ToolFailure(ToolErrorCode.BACKEND_UNAVAILABLE), "BACKEND_UNAVAILABLE"),
        (ObservationContractViolation(), "OBSERVATION_CONTRACT_VIOLATION"),
        (TimeoutError("MARKER"), "TOOL_TIMEOUT"),
        (RuntimeError("MARKER"), "BACKEND_ERROR"),
        (ModelCallFailed(ModelFailureKind.TIMEOUT), "BACKEND_ERROR"),
        (CanonicalStoreUnavailable("MARKER"), "BACKEND_ERROR"),
        (ExceptionGroup("MARKER", [ValueError("MARKER")]), "BACKEND_ERROR"),
        (RecursionError("MARKER"), "BACKEND_ERROR"),
        (StopAsyncIteration(), "BACKEND_ERROR"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value,
)
async def test_r38_r51_whatever_a_tool_raises_is_an_answered_tool_error(error: Exception, code: str) -> None:
    async def fail(query: str) -> None:
        raise error

    loop = make_loop([FOUND, call("c2", "found b"), draft()], tool=ProbeTool(before_run=fail))
    await loop.run()
    assert [answer["error_code"] for answer in loop.answers()] == [code] * 2
    assert all(set(answer) == {"tool_call_id", "evidence_status", "error_code", "message"} for answer in loop.answers())
    assert loop.state["tracker"]["consecutive_no_gain"] == 0
    assert loop.state["tracker"]["pending_tool_call_id"] is None
    assert loop.outcome["stop_reason"] is None
    assert loop.outcome["fallback"]["observed_facts"] == []
    assert "TOOL_ERROR" in loop.outcome["fallback"]["limitations"]["notes"]
    assert "MARKER" not in json.dumps(loop.outcome)


async def test_r38_a_tool_that_hangs_is_a_timeout() -> None:
    import asyncio

    async def hang(query: str) -> None:
        await asyncio.sleep(30)

    loop = make_loop([FOUND, draft()], tool=ProbeTool(before_run=hang, timeout_seconds=-0.95))
    await loop.run()
    assert loop.answers()[0]["error_code"] == "TOOL_TIMEOUT"


Fault = Callable[[str, int], None]


def failing(operation: str, at: int, error: Exception) -> Fault:
    """Let the `at`-th and every later use of an operation fail; a later operation fails too, as in an outage."""
    started: list[bool] = []

    def on(used: str, count: int) -> None:
        if started or (used == operation and count >= at):
            started.append(True)
            raise error

    return on


def loop_with(on: Fault, agent: list[Answer], **options: Any) -> Loop:
    loop = make_loop(by_round(agent, [CONCLUDED], [SUPPORTED]), **options)
    loop.canonical.on = on
    return loop


async def test_r48_a_raw_answer_too_large_to_keep_is_left_out_and_the_result_stays() -> None:
    def on(used: str, count: int) -> None:
        if used == "finish" and count == 1:
            raise CanonicalRecordTooLarge("MARKER")

    loop = loop_with(on, [FOUND, CONCLUDED])
    await loop.run()
    assert loop.outcome["release_outcome"] == "CONCLUSION"
    record = await MemoryCanonicalStore.get(loop.canonical, loop.run_id, "c1")
    assert record is not None
    assert (record.raw_response, record.evidence_status) == (None, "EVIDENCE_FOUND")


async def test_r38_a_result_too_large_to_keep_is_an_error_of_the_call_and_the_run_goes_on() -> None:
    def on(used: str, count: int) -> None:
        if used == "finish" and count <= 2:
            raise CanonicalRecordTooLarge("MARKER")

    loop = loop_with(on, [FOUND, draft()])
    await loop.run()
    assert loop.answers()[0]["error_code"] == "RESULT_TOO_LARGE"
    assert loop.state["ended"]["cause"] == "DRAFT"
    assert loop.outcome["usage"]["tool_calls"] == 1
    assert "MARKER" not in json.dumps([loop.answers(), loop.outcome])


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ("begin", CanonicalStoreUnavailable("MARKER")),
        ("finish", CanonicalStoreUnavailable("MARKER")),
        ("begin", CanonicalRecordTooLarge("MARKER")),
    ],
)
@pytest.mark.parametrize("facts", [True, False])
async def test_r60_r65_a_result_that_cannot_be_recorded_is_a_fault(
    operation: str, error: Exception, facts: bool
) -> None:
    at = 2 if facts else 1

    def on(used: str, count: int) -> None:
        if used == operation and count == at:
            raise error

    loop = loop_with(on, [FOUND, SECOND, CONCLUDED])
    await loop.run()
    assert_fault(loop, facts=facts)
    assert loop.state["ended"]["cause"] == "FAULT"
    assert "MARKER" not in json.dumps([loop.state["ended"], loop.state["step"], loop.outcome])


@pytest.mark.parametrize(
    ("operation", "ran"), [("begin", False), ("finish", True)], ids=["before the tool ran", "after it"]
)
@pytest.mark.parametrize(
    "error", [CanonicalStoreUnavailable("MARKER"), CanonicalRecordTooLarge("MARKER")], ids=["away", "too large"]
)
async def test_r17_r65_r108_a_call_that_ran_without_a_record_is_indexed_and_counted(
    operation: str, ran: bool, error: Exception
) -> None:
    def on(used: str, count: int) -> None:
        # Nothing of the second call is taken, however small: it is tried three times.
        if used == operation and count >= 2:
            raise error

    loop = loop_with(on, [FOUND, SECOND, CONCLUDED])
    await loop.run()
    assert_fault(loop, facts=True)
    assert [entry["tool_call_id"] for entry in loop.state["tracker_index"]] == (["c1", "c2"] if ran else ["c1"])
    (ended,) = await loop.events("RUN_ENDED")
    assert ended["tool_calls"] == loop.outcome["usage"]["tool_calls"] == (2 if ran else 1)
    (projected,) = await loop.events("PROGRESS_PROJECTED")
    unavailable = ["CANONICAL_RECORD_UNAVAILABLE"] if ran else []
    assert projected["limitations"] == ["FAULT", *unavailable]
    assert projected["checked"] == 1


@pytest.mark.parametrize("facts", [True, False])
async def test_r60_r65_a_record_that_cannot_be_read_back_is_a_fault(facts: bool) -> None:
    def on(used: str, count: int) -> None:
        if used == "get" and count == (2 if facts else 1):
            raise CanonicalStoreUnavailable

    loop = loop_with(on, [FOUND, SECOND, CONCLUDED])
    await loop.run()
    assert_fault(loop, facts=facts)


async def test_r60_r65_an_outage_from_the_second_call_on_invents_nothing() -> None:
    loop = loop_with(failing("begin", 2, CanonicalStoreUnavailable()), [FOUND, SECOND, CONCLUDED])
    await loop.run()
    assert_fault(loop, facts=False)


@pytest.mark.parametrize("facts", [True, False])
async def test_r60_a_violation_that_cannot_be_recorded_is_a_fault(facts: bool) -> None:
    def on(used: str, count: int) -> None:
        if used == "reject":
            raise CanonicalStoreUnavailable

    violating = call("c2", "violate b", ("c1", "GAINED")) if facts else call("c1", "violate a")
    loop = loop_with(on, [*([FOUND] if facts else []), violating, CONCLUDED])
    await loop.run()
    assert_fault(loop, facts=facts)


@pytest.mark.parametrize("stage", ["guard_evidence", "guard_semantics"])
@pytest.mark.parametrize("facts", [True, False])
async def test_r88g_a_guard_without_the_store_could_not_run_and_did_not_say_no(stage: str, facts: bool) -> None:
    class Silent(ProbeTool):
        def facts(self, scope: Any, agent_result: Any) -> tuple[Any, ...]:
            return ()

    loop = make_loop(by_round([FOUND, CONCLUDED]), tool=ProbeTool() if facts else Silent())

    def outage(*_: Any) -> None:
        loop.canonical.on = failing("get", 0, CanonicalStoreUnavailable())

    loop.journal.after["project_progress" if stage == "guard_evidence" else "guard_evidence"] = outage
    await loop.run()
    assert_fault(loop, facts=facts)
    assert loop.outcome["reason"] == "GUARD_UNAVAILABLE"


async def test_r88f_a_repair_without_the_store_is_not_asked_for_and_the_verdict_stands() -> None:
    false = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c9"])])
    loop = make_loop(by_round([FOUND, false], [CONCLUDED]))

    def outage(*_: Any) -> None:
        loop.canonical.on = failing("get", 0, CanonicalStoreUnavailable())

    loop.journal.after["guard_evidence"] = outage
    await loop.run()
    assert loop.outcome["reason"] == "EVIDENCE_REJECTED"
    (repair,) = await loop.events("EVIDENCE_REPAIR")
    assert (repair["accepted"], repair["reason"]) == (False, "CANONICAL_STORE")
    assert len(loop.model.requests) == 2


async def test_r82_r88e_a_no_conclusion_draft_is_published_from_the_snapshot_when_the_store_fails_at_release() -> None:
    loop = make_loop([FOUND, draft(None, [("A1", "OBSERVATION", "line about found a", ["c1"])])])

    def outage(*_: Any) -> None:
        loop.canonical.on = failing("get", 0, CanonicalStoreUnavailable())

    loop.journal.after["project_progress"] = outage
    await loop.run()
    assert loop.outcome["release_outcome"] == "FALLBACK"
    assert len(loop.outcome["fallback"]["observed_facts"]) == 1
    assert await loop.events("EVIDENCE_GUARD") == [], "what could not be checked is not called invalid"


async def test_r65_r67_an_outage_at_the_projection_is_a_limitation_and_no_fact() -> None:
    agent = [FOUND, call("c2", "none b", ("c1", "GAINED")), call("c3", "found c")]
    loop = make_loop(agent)

    def outage(*_: Any) -> None:
        loop.canonical.on = failing("get", 0, CanonicalStoreUnavailable())

    loop.journal.after["require_stop"] = outage
    await loop.run(no_gain_threshold=1)
    assert loop.outcome["stop_reason"] == "INFORMATION_SATURATED"
    assert loop.outcome["fallback"]["observed_facts"] == []
    assert "CANONICAL_RECORD_UNAVAILABLE" in loop.outcome["fallback"]["limitations"]["notes"]


async def test_r17_r65_a_record_that_expires_before_its_projection_is_a_fault_and_leaves_its_limitation() -> None:
    loop = make_loop([FOUND, SECOND, CONCLUDED])
    loop.journal.after["execute_tool"] = lambda batch: loop.canonical.forget()
    await loop.run()
    assert_fault(loop, facts=False)
    (projected,) = await loop.events("PROGRESS_PROJECTED")
    assert set(projected["limitations"]) == {"FAULT", "CANONICAL_RECORD_UNAVAILABLE"}
    assert [entry["tool_call_id"] for entry in loop.state["tracker_index"]] == ["c1"]


@pytest.mark.parametrize("expires", ["before the projection", "after the projection"])
async def test_r65_r89_a_record_that_expires_before_the_guard_carries_no_conclusion(expires: str) -> None:
    def written(request: Any) -> Any:
        if expires == "before the projection":
            loop.canonical.forget()
        return CONCLUDED

    loop = make_loop(by_round([FOUND, written]))
    if expires == "after the projection":
        loop.journal.after["project_progress"] = lambda batch: loop.canonical.forget()
    await loop.run()
    assert loop.outcome["release_outcome"] == "FALLBACK"
    assert loop.outcome["published_result"] is None
    (guard,) = await loop.events("EVIDENCE_GUARD")
    assert "RECORD_UNAVAILABLE" in guard["violations"]
    facts = loop.outcome["fallback"]["observed_facts"]
    assert bool(facts) is (expires == "after the projection"), "facts are those verified when the snapshot was made"


def foreign(record: CanonicalRecord | None) -> CanonicalRecord | None:
    return record and record.model_copy(update={"run_id": "another-run"})


def another_call(record: CanonicalRecord | None) -> CanonicalRecord | None:
    return record and record.model_copy(update={"tool_call_id": "c7"})


@pytest.mark.parametrize("lie", [foreign, another_call])
async def test_r49_r65_a_foreign_record_is_never_shown_to_the_model(lie: Any) -> None:
    loop = make_loop([FOUND, draft()])
    loop.canonical.reading = lie
    await loop.run()
    assert "line about" not in json.dumps(loop.answers())
    assert_fault(loop, facts=False)


@pytest.mark.parametrize("lie", [foreign, another_call])
async def test_r65_a_record_that_turns_foreign_later_proves_nothing(lie: Any) -> None:
    loop = make_loop(by_round([FOUND, CONCLUDED], [CONCLUDED]))

    def turn(batch: Any) -> None:
        loop.canonical.reading = lie

    loop.journal.after["project_observation"] = turn
    await loop.run()
    assert loop.outcome["release_outcome"] == "FALLBACK"
    assert loop.outcome["fallback"]["observed_facts"] == []
    assert "RECORD_NOT_OWNED" in loop.outcome["fallback"]["limitations"]["notes"]
    (guard,) = await loop.events("EVIDENCE_GUARD")
    assert "RECORD_NOT_OWNED" in guard["violations"]


@pytest.mark.parametrize("payload", ["{", "null", '{"run_id": 1}', "[]", ""])
async def test_r65_a_corrupted_record_counts_as_gone(payload: str) -> None:
    from dataclasses import replace

    loop = make_loop(by_round([FOUND, CONCLUDED]))

    def corrupt(batch: Any) -> None:
        store = loop.canonical
        store._entries = {key: replace(entry, payload=payload) for key, entry in store._entries.items()}

    loop.journal.after["project_observation"] = corrupt
    await loop.run()
    assert loop.outcome["release_outcome"] == "FALLBACK"
    assert loop.outcome["fallback"]["observed_facts"] == []
    assert "CANONICAL_RECORD_UNAVAILABLE" in loop.outcome["fallback"]["limitations"]["notes"]


@pytest.mark.not_replayable("the store gives back another result than was stored; the archive holds what was stored")
@pytest.mark.parametrize("result", [{}, {"lines": "MARKER"}, {"lines": None}])
async def test_r65_a_result_of_another_shape_is_withheld_and_proves_nothing(result: dict[str, Any]) -> None:
    loop = make_loop(by_round([FOUND, CONCLUDED]))
    loop.canonical.reading = lambda record: record and record.model_copy(update={"agent_result": result})
    await loop.run()
    assert "MARKER" not in json.dumps(loop.answers())
    assert loop.outcome["release_outcome"] == "FALLBACK"
    assert loop.outcome["fallback"]["observed_facts"] == []


@pytest.mark.parametrize("line", ["lone \ud800 surrogate", "x" * 9000])
async def test_r51_r55_an_observation_that_is_no_text_or_too_large_is_a_contract_violation(line: str) -> None:
    class Odd(ProbeTool):
        def observe(self, tool_call_id: str, scope: Any, agent_result: Any) -> dict[str, Any]:
            return {**super().observe(tool_call_id, scope, agent_result), "events": [line]}

    loop = make_loop([FOUND, draft()], tool=Odd())
    await loop.run()
    assert loop.answers()[0]["error_code"] == "OBSERVATION_CONTRACT_VIOLATION"
    (rejected,) = await loop.events("TOOL_REQUEST_REJECTED")
    assert rejected["error_code"] == "OBSERVATION_CONTRACT_VIOLATION"
    assert loop.outcome["fallback"]["observed_facts"] == []


async def test_r60_a_run_timeout_is_published_as_a_fault_only_with_facts() -> None:
    for facts in (True, False):
        loop = make_loop([call("c1", "found a" if facts else "error a"), CONCLUDED])
        loop.journal.after["project_observation"] = lambda batch, loop=loop: loop.clock.advance(301)
        await loop.run()
        assert loop.outcome["stop_reason"] is None
        assert loop.outcome["reason"] == "TIMED_OUT"
        if facts:
            assert "FAULT" in loop.outcome["fallback"]["limitations"]["notes"]
            assert loop.outcome["internal_state"] == "SUCCESS"
        else:
            assert loop.outcome["internal_state"] == "TIMED_OUT"
        assert len(loop.model.requests) == 1


async def test_r139_an_error_of_the_program_is_not_dressed_as_a_stop() -> None:
    loop = make_loop([FOUND, lambda request: (_ for _ in ()).throw(KeyError("a bug"))])
    with pytest.raises(KeyError):
        await loop.run()
    (run,) = await loop.runs.runs()
    assert run.stop_reason is None
    assert run.internal_state == "RUNNING", "a sweep or a resume ends it; nothing was published"
