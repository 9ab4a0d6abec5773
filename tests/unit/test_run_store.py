"""The run store's contract, held by the SQL and the in-memory one alike (R8, R9, R94, R98, R99)."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlmodel import SQLModel

from graph.contract import Intent, PublicStatus, RunState
from nodes.harness import lock_of_session, thread_lock
from nodes.ports import RunEnd, RunRecord, SessionBusy
from nodes.storable import storable_text
from release.contract import ReleaseOutcome
from service.store.clock import SystemClock
from service.store.ids import Uuid4Source
from service.store.memory import InMemoryRunStore
from service.store.runs import SqlRunStore
from service.store.serving import SqlServing
from service.store.status import TERMINAL, public_status
from tests.stores import KINDS, a_run, database

Store = SqlRunStore | InMemoryRunStore
ACTIVE = frozenset({RunState.CREATED, RunState.RUNNING})
CONCLUSION = RunEnd(
    ReleaseOutcome.CONCLUSION,
    ended_at=1_700_000_100.0,
    published_result={"conclusion": "磁盘满", "findings": []},
    total_token_count=1234,
    usage={"model_calls": 3},
)
FALLBACK = RunEnd(
    ReleaseOutcome.FALLBACK,
    ended_at=1_700_000_100.0,
    fallback={"type": "FALLBACK"},
    stop_reason="BUDGET_LIMIT_REACHED",
)


@pytest.fixture(params=["memory", *KINDS])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield InMemoryRunStore()
    else:
        async with database(request.param, tmp_path) as engine:
            yield SqlRunStore(engine)


async def test_r98_a_run_comes_back_as_it_was_created(store: Store) -> None:
    run = a_run(
        execution_id="e-1",
        lease_until=1_700_000_060.25,
        forked_from="run-0",
        usage={"a": [1, {"b": None}]},
        owner="alice",
        thread_id="t-1",
        session_lock='["alice", "session-1"]',
        context={"model": None, "budget": {"tool_calls": 3}},
    )
    assert await store.create(run)
    assert await store.get("run-1") == run
    assert await store.get("run-2") is None


async def test_create_is_refused_the_second_time(store: Store) -> None:
    assert await store.create(a_run())
    assert not await store.create(a_run(query="another"))
    held = await store.get("run-1")
    assert held is not None
    assert held.query == a_run().query


async def test_r8_transition_compares_and_sets(store: Store) -> None:
    await store.create(a_run())
    assert not await store.transition("run-1", frozenset({RunState.RUNNING}), RunState.CANCEL_REQUESTED)
    assert await store.transition("run-1", frozenset({RunState.CREATED}), RunState.RUNNING)
    assert not await store.transition("run-1", frozenset({RunState.CREATED}), RunState.RUNNING)
    assert not await store.transition("run-9", ACTIVE, RunState.RUNNING)
    assert not await store.transition("run-1", frozenset(), RunState.FAILED)


async def test_r8_r98_the_end_is_written_with_the_state(store: Store) -> None:
    await store.create(a_run(execution_id="e-1", lease_until=5.0))
    assert await store.transition("run-1", ACTIVE, RunState.SUCCESS, CONCLUSION)
    run = await store.get("run-1")
    assert run == RunRecord(
        run_id="run-1",
        query=a_run().query,
        session_id="session-1",
        internal_state=RunState.SUCCESS,
        created_at=a_run().created_at,
        execution_id="e-1",
        lease_until=5.0,
        release_outcome=ReleaseOutcome.CONCLUSION,
        published_result={"conclusion": "磁盘满", "findings": []},
        total_token_count=1234,
        usage={"model_calls": 3},
        ended_at=1_700_000_100.0,
    )


@pytest.mark.parametrize("terminal", sorted(TERMINAL))
async def test_r8_no_transition_leaves_a_terminal_state(store: Store, terminal: RunState) -> None:
    await store.create(a_run())
    assert await store.transition("run-1", ACTIVE, terminal, FALLBACK)
    before = await store.get("run-1")
    for to in RunState:
        end = CONCLUSION if to in TERMINAL else None
        assert not await store.transition("run-1", frozenset(RunState), to, end)
    assert await store.get("run-1") == before


async def test_an_end_without_a_terminal_state_is_a_fault_of_the_caller(store: Store) -> None:
    await store.create(a_run())
    with pytest.raises(ValueError, match="terminal"):
        await store.transition("run-1", ACTIVE, RunState.RUNNING, CONCLUSION)


async def test_r8_of_concurrent_ends_exactly_one_wins(store: Store) -> None:
    await store.create(a_run(internal_state=RunState.RUNNING))
    targets = [RunState.SUCCESS, RunState.CANCELLED, RunState.TIMED_OUT, RunState.FAILED] * 3
    won = await asyncio.gather(
        *(store.transition("run-1", frozenset({RunState.RUNNING}), target, FALLBACK) for target in targets)
    )
    assert sum(won) == 1
    run = await store.get("run-1")
    assert run is not None
    assert run.internal_state is targets[won.index(True)]


async def test_r94_an_acknowledged_cancel_wins_over_a_release(store: Store) -> None:
    await store.create(a_run(internal_state=RunState.RUNNING))
    assert await store.transition("run-1", ACTIVE, RunState.CANCEL_REQUESTED)
    assert not await store.transition("run-1", frozenset({RunState.RUNNING}), RunState.BUDGET_EXHAUSTED, FALLBACK)
    end = RunEnd(ReleaseOutcome.NONE, ended_at=1.0)
    assert await store.transition("run-1", frozenset({RunState.CANCEL_REQUESTED}), RunState.CANCELLED, end)
    run = await store.get("run-1")
    assert run is not None
    assert (run.release_outcome, run.fallback) == (ReleaseOutcome.NONE, None)


def test_r9_public_status_of_every_state_and_outcome() -> None:
    running = {RunState.CREATED, RunState.RUNNING, RunState.CANCEL_REQUESTED}
    for state in RunState:
        for outcome in ReleaseOutcome:
            status = public_status(state, outcome)
            if state in running:
                assert status is PublicStatus.RUNNING
            elif state is RunState.TIMED_OUT:
                assert status is PublicStatus.FAILED
            elif state is RunState.BUDGET_EXHAUSTED:
                published = outcome is ReleaseOutcome.FALLBACK
                assert status is (PublicStatus.SUCCESS if published else PublicStatus.FAILED)
            else:
                assert status.value == state.value


async def test_r9_the_database_keeps_both_the_internal_and_the_public_state(tmp_path: Path) -> None:
    async with database("sqlite", tmp_path) as engine:
        store = SqlRunStore(engine)
        await store.create(a_run())
        await store.transition("run-1", ACTIVE, RunState.BUDGET_EXHAUSTED, FALLBACK)
        async with engine.connect() as connection:
            row = (await connection.execute(text("SELECT internal_state, status FROM diagnosis_run"))).one()
    assert tuple(row) == ("BUDGET_EXHAUSTED", "SUCCESS")


async def test_r3_a_lease_is_taken_when_own_free_expired_or_forced(store: Store) -> None:
    await store.create(a_run())
    assert not await store.take_lease("run-9", "e-1", 100.0, 160.0, force=True)
    assert await store.take_lease("run-1", "e-1", 100.0, 160.0, force=False)
    assert await store.take_lease("run-1", "e-1", 110.0, 170.0, force=False)
    assert not await store.take_lease("run-1", "e-2", 169.9, 230.0, force=False)
    assert await store.take_lease("run-1", "e-2", 170.0, 230.0, force=False)
    assert not await store.take_lease("run-1", "e-1", 171.0, 231.0, force=False)
    assert await store.take_lease("run-1", "e-3", 171.0, 231.0, force=True)
    run = await store.get("run-1")
    assert run is not None
    assert (run.execution_id, run.lease_until) == ("e-3", 231.0)


async def test_r3_who_lost_a_run_to_another_execution_cannot_end_it(store: Store) -> None:
    await store.create(a_run(execution_id="e-1", lease_until=50.0))
    assert await store.take_lease("run-1", "e-2", 100.0, 160.0, force=False)
    end = RunEnd(ReleaseOutcome.NONE, ended_at=120.0, error_code="INTERNAL_ERROR")
    assert not await store.transition("run-1", ACTIVE, RunState.FAILED, end, holder="e-1")
    assert await store.transition("run-1", ACTIVE, RunState.FAILED, end, holder="e-2")
    await store.create(a_run("run-2"))
    assert await store.transition("run-2", ACTIVE, RunState.FAILED, end, holder="e-1"), "nobody had it"


async def test_r3_a_lease_given_back_is_free_at_once_and_only_its_holder_gives_it_back(store: Store) -> None:
    await store.create(a_run(execution_id="e-1", lease_until=200.0))
    await store.release_lease("run-1", "e-2")
    assert not await store.take_lease("run-1", "e-2", 100.0, 160.0, force=False)
    await store.release_lease("run-1", "e-1")
    assert await store.take_lease("run-1", "e-2", 100.0, 160.0, force=False)
    assert not await store.take_lease("run-1", "e-1", 100.0, 160.0, force=False)


@pytest.mark.parametrize("held", [True, False])
async def test_r108_a_run_that_ended_has_a_lease_until_its_end_is_told(store: Store, held: bool) -> None:
    await store.create(a_run(execution_id="e-1", lease_until=200.0 if held else None))
    end = RunEnd(ReleaseOutcome.NONE, ended_at=150.0)
    assert await store.transition("run-1", frozenset({RunState.CREATED}), RunState.CANCELLED, end)
    await store.release_lease("run-1", "e-1")
    run = await store.get("run-1")
    assert run is not None
    assert run.lease_until == (200.0 if held else 150.0)
    await store.release_lease("run-1", "e-2", told=True)
    await store.release_lease("run-1", "e-1", told=True)
    run = await store.get("run-1")
    assert run is not None
    assert run.lease_until is None


async def test_r3_of_concurrent_takers_exactly_one_gets_a_free_lease(store: Store) -> None:
    await store.create(a_run(execution_id="gone", lease_until=50.0))
    won = await asyncio.gather(
        *(store.take_lease("run-1", f"e-{index}", 100.0, 160.0, force=False) for index in range(8))
    )
    assert sum(won) == 1


async def test_r94_abandoned_runs_are_those_whose_lease_ended(store: Store) -> None:
    await store.create(a_run("run-1", execution_id="e", lease_until=100.0))
    await store.create(a_run("run-2", execution_id="e", lease_until=200.0))
    await store.create(a_run("run-3"))
    await store.create(a_run("run-4", execution_id="e", lease_until=100.0, internal_state=RunState.FAILED))
    assert [run.run_id for run in await store.abandoned(100.0)] == ["run-3", "run-1"]


async def test_r98_the_intent_is_recorded_until_the_run_ends(store: Store) -> None:
    await store.create(a_run())
    unrouted = await store.get("run-1")
    assert unrouted is not None
    assert unrouted.intent is None, "nobody has guessed"
    assert await store.set_intent("run-1", Intent.SYSTEM_CHAT)
    await store.transition("run-1", ACTIVE, RunState.SUCCESS, RunEnd(ReleaseOutcome.CHAT, ended_at=1.0))
    assert not await store.set_intent("run-1", Intent.DIAGNOSIS)
    assert not await store.set_intent("run-9", Intent.DIAGNOSIS)
    run = await store.get("run-1")
    assert run is not None
    assert run.intent is Intent.SYSTEM_CHAT


async def test_runs_are_listed_newest_first(store: Store) -> None:
    for index in range(5):
        await store.create(a_run(f"run-{index}", created_at=float(index // 2), session_id=f"session-{index % 2}"))
    assert [run.run_id for run in await store.runs(3)] == ["run-4", "run-3", "run-2"]
    assert [run.run_id for run in await store.runs(9, "session-1")] == ["run-3", "run-1"]
    assert await store.runs(9, "session-9") == ()


async def test_r134_the_active_run_of_a_session_is_the_one_that_has_not_ended(store: Store) -> None:
    await store.create(a_run("run-1", created_at=1.0))
    await store.create(a_run("run-2", created_at=2.0, internal_state=RunState.SUCCESS))
    await store.create(a_run("run-3", created_at=3.0, session_id="session-2"))
    active = await store.active("session-1")
    assert active is not None
    assert active.run_id == "run-1"
    await store.transition("run-1", ACTIVE, RunState.CANCELLED)
    assert await store.active("session-1") is None


async def test_r134_a_session_lock_lets_one_run_begin_until_it_ends(store: Store) -> None:
    assert await store.create(a_run("run-1", session_lock="alice's session"))
    with pytest.raises(SessionBusy, match="session_id"):
        await store.create(a_run("run-2", session_lock="alice's session"))
    assert not await store.create(a_run("run-1", session_lock="alice's session")), "the run itself exists already"
    assert await store.create(a_run("run-3", session_lock="bob's session"))
    assert await store.create(a_run("run-4"))
    assert await store.create(a_run("run-5")), "without a lock nothing is held"
    assert await store.transition("run-1", ACTIVE, RunState.CANCEL_REQUESTED)
    with pytest.raises(SessionBusy):
        await store.create(a_run("run-2", session_lock="alice's session"))
    assert await store.transition("run-1", frozenset({RunState.CANCEL_REQUESTED}), RunState.CANCELLED)
    ended = await store.get("run-1")
    assert ended is not None
    assert ended.session_lock is None
    assert await store.create(a_run("run-2", session_lock="alice's session"))


async def test_r134_of_runs_that_begin_at_once_in_a_session_one_does(store: Store) -> None:
    runs = [a_run(f"run-{index}", session_lock="s") for index in range(8)]
    results = await asyncio.gather(*(store.create(run) for run in runs), return_exceptions=True)
    assert sorted(map(str, results)) == ["True"] + 7 * ["session_id: the session has a run that has not ended"]


async def test_r98_r134_sessions_of_two_owners_are_two_sessions(store: Store) -> None:
    ended = {
        "intent": Intent.DIAGNOSIS,
        "internal_state": RunState.SUCCESS,
        "published_result": {"conclusion": "x"},
    }
    for index, owner in enumerate([None, "alice", "bob"]):
        await store.create(a_run(f"old-{owner}", owner=owner, created_at=1.0 + index, **ended))
        await store.create(a_run(f"new-{owner}", owner=owner, created_at=9.0 - index))
    for owner in (None, "alice", "bob"):
        previous, active = await store.previous_turn("session-1", owner), await store.active("session-1", owner)
        assert (previous and previous.run_id, active and active.run_id) == (f"old-{owner}", f"new-{owner}")
    assert await store.previous_turn("session-1", "carol") is await store.active("session-1", "carol") is None
    assert [run.run_id for run in await store.runs(9, owner="alice")] == ["new-alice", "old-alice"]
    for owner in ("alice", None):
        mine = [run for run in await store.runs(9, "session-1") if run.owner == owner]
        assert await store.of_session("session-1", owner, 2) == tuple(mine)[:2]
        assert mine
    assert len(await store.runs(9, "session-1")) == 6


async def test_r99_previous_turn_is_the_latest_successful_diagnosis_that_published(store: Store) -> None:
    assert await store.previous_turn("session-1") is None
    published = {"published_result": {"conclusion": "x"}, "release_outcome": ReleaseOutcome.CONCLUSION}
    ended = {"internal_state": RunState.SUCCESS, **published}
    diagnosis = {"intent": Intent.DIAGNOSIS, **ended}
    await store.create(a_run("run-1", created_at=1.0, **diagnosis))
    await store.create(a_run("run-2", created_at=2.0, **diagnosis))
    for index, other in enumerate(
        [
            {"session_id": "session-2"},
            {"session_id": None},
            {"intent": None},
            {"intent": Intent.KNOWLEDGE_QUERY},
            {"intent": Intent.SYSTEM_CHAT},
            {"published_result": None},
            {"published_result": {}},
            *({"internal_state": state} for state in RunState if state is not RunState.SUCCESS),
        ]
    ):
        await store.create(a_run(f"run-x{index:02}", **{"created_at": 10.0 + index, **diagnosis, **other}))
    turn = await store.previous_turn("session-1")
    assert turn is not None
    assert turn.run_id == "run-2"


@pytest.mark.parametrize("state", [RunState.SUCCESS, RunState.BUDGET_EXHAUSTED])
async def test_r99_a_published_fallback_qualifies(store: Store, state: RunState) -> None:
    await store.create(a_run(intent=Intent.DIAGNOSIS))
    assert await store.previous_turn("session-1") is None
    await store.transition("run-1", ACTIVE, state, FALLBACK)
    turn = await store.previous_turn("session-1")
    assert turn is not None
    assert turn.fallback == {"type": "FALLBACK"}


async def test_r99_an_exhausted_run_without_a_fallback_does_not_qualify(store: Store) -> None:
    await store.create(a_run())
    await store.transition("run-1", ACTIVE, RunState.BUDGET_EXHAUSTED, RunEnd(ReleaseOutcome.NONE, ended_at=1.0))
    assert await store.previous_turn("session-1") is None


async def test_text_that_databases_refuse_is_replaced(store: Store) -> None:
    await store.create(a_run(query="a\0b\ud800c 😀", published_result={"k": "\ud800"}))
    run = await store.get("run-1")
    assert run is not None
    assert run.query == "a\ufffdb\ufffdc 😀"
    assert run.published_result == {"k": "\ud800"}
    assert storable_text("订单 'x' %s") == "订单 'x' %s"


async def test_the_store_shares_no_object_with_its_callers(store: Store) -> None:
    result = {"findings": ["a"]}
    await store.create(a_run(published_result=result))
    result["findings"].append("b")
    run = await store.get("run-1")
    assert run is not None
    assert run.published_result == {"findings": ["a"]}


def test_r115_there_is_no_model_audit_table() -> None:
    assert set(SQLModel.metadata.tables) == {
        "diagnosis_run",
        "agent_step",
        "diagnosis_trace_event",
        "run_archive",
        "journal_cursor",
        "journal_batch",
    }


def test_r1_run_ids_are_random_uuids_of_version_four() -> None:
    ids = {Uuid4Source().new_id() for _ in range(100)}
    assert len(ids) == 100
    assert {uuid.UUID(item).version for item in ids} == {4}


def test_the_system_clock_reads_wall_time() -> None:
    before = time.time()
    assert before <= SystemClock().now() <= time.time()


@pytest.mark.parametrize("kind", KINDS)
async def test_r134_a_cleared_session_is_free_while_its_run_goes_on(kind: str, tmp_path: Path) -> None:
    lock, thread = lock_of_session("ann", "s"), thread_lock("t-1")
    async with database(kind, tmp_path) as engine:
        store = SqlRunStore(engine)
        await store.create(a_run("one", session_id="s", owner="ann", session_lock=lock))
        await store.create(a_run("hosted", session_id="s", owner="ann", session_lock=thread))
        assert await SqlServing(engine).clear_session("s", "ann") == 2
        assert await store.create(a_run("two", session_id="s", owner="ann", session_lock=lock))
        assert await store.transition("one", ACTIVE, RunState.SUCCESS, CONCLUSION)
        active, hosted = await store.holding(lock), await store.holding(thread)
        assert (active and active.run_id, hosted and hosted.run_id) == ("two", "hosted")
