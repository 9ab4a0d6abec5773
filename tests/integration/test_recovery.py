"""Runs whose process went away: taken up under a lease, or ended clearly; and what is kept too long (R3, R67, R94)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import uuid
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import service.recovery
from graph.context import DiagnosisContext
from graph.contract import RunState, TraceEventType
from nodes.events import event
from nodes.ports import ArchiveEntry, JournalBatch, RunEnd, RunRecord
from nodes.run_end import end_without_result
from release.contract import ReleaseOutcome
from service.app import App
from service.checkpoints import CHECKPOINT_FILE
from service.execution import Execution
from service.recovery import Fate, Limits, Takeover, fate, keep_recovering, recover, tidy
from service.store.clock import SystemClock
from service.store.engine import create_engine
from service.store.status import TERMINAL
from tests.durable import SCRIPT, MovedClock, begin, carry, opened, settings_of, url_of
from tests.hooks import Crash
from tests.stores import KINDS, a_run

NOW = 1_700_000_000.0
LIMITS = Limits(run_timeout=300.0, evidence=3600.0)
DAY = 86_400.0
CONTEXT = DiagnosisContext().model_dump(mode="json")
OURS: dict[str, Any] = {"context": CONTEXT, "thread_id": "t", "internal_state": RunState.RUNNING}


def ours(identity: str, **changes: Any) -> RunRecord:
    """A Run that a host of ours started just now and nobody holds."""
    return a_run(identity, **{**OURS, "created_at": SystemClock().now(), **changes})


def run_id() -> str:
    return str(uuid.uuid4())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({**OURS, "lease_until": NOW + 1}, Fate.LEAVE),
        ({**OURS, "lease_until": NOW}, Fate.TAKE_UP),
        ({**OURS, "lease_until": None}, Fate.TAKE_UP),
        ({**OURS, "created_at": NOW - 301}, Fate.TAKE_UP),
        ({**OURS, "created_at": NOW - 3600}, Fate.FAIL),
        ({**OURS, "context": None, "lease_until": NOW - 299}, Fate.LEAVE),
        ({**OURS, "context": None, "lease_until": NOW - 300}, Fate.FAIL),
        ({**OURS, "thread_id": None, "lease_until": NOW - 300}, Fate.FAIL),
        ({**OURS, "context": None, "lease_until": None, "created_at": NOW - 300}, Fate.FAIL),
        ({**OURS, "internal_state": RunState.CANCEL_REQUESTED, "lease_until": NOW}, Fate.CANCEL),
        ({**OURS, "internal_state": RunState.CANCEL_REQUESTED, "lease_until": NOW + 1}, Fate.LEAVE),
        ({**OURS, "internal_state": RunState.CANCEL_REQUESTED, "context": None, "lease_until": NOW}, Fate.CANCEL),
        ({**OURS, "internal_state": RunState.CREATED}, Fate.TAKE_UP),
        ({**OURS, "internal_state": RunState.CREATED, "thread_id": None, "created_at": NOW - 3599}, Fate.LEAVE),
        ({**OURS, "internal_state": RunState.CREATED, "thread_id": None, "created_at": NOW - 3600}, Fate.FAIL),
        *(({**OURS, "internal_state": state}, Fate.LEAVE) for state in sorted(TERMINAL)),
    ],
)
def test_r3_r94_what_becomes_of_a_run_that_nobody_carries(changes: dict[str, Any], expected: Fate) -> None:
    run = a_run(**{"created_at": NOW - 10, "lease_until": NOW - 1, **changes})
    assert fate(run, NOW, LIMITS) is expected


@pytest.fixture(params=KINDS)
async def url(request: pytest.FixtureRequest) -> str | None:
    """Where the database is."""
    return await url_of(request.param)


class DiesAt:
    """A journal whose process dies before or after it wrote a node's batch, once."""

    def __init__(self, journal: Any, node: str, moment: str = "after") -> None:
        self._journal = journal
        self._place: tuple[str, str] | None = (node, moment)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def write(self, batch: JournalBatch) -> None:
        node = batch.key.partition(":")[2]
        if self._place == (node, "before"):
            raise Crash
        await self._journal.write(batch)
        if self._place == (node, "after"):
            raise Crash


async def died(settings: Any, node: str, moment: str = "after", **begun: Any) -> str:
    """Run until the process dies at a node; return the Run's id."""
    identity = run_id()
    async with opened(settings) as whole, opened(settings, journal=DiesAt(whole.journal, node, moment)) as app:
        with pytest.raises(Crash):
            await begin(app, identity, **begun)
        record = await app.runs.get(identity)
        assert record is not None
        assert record.internal_state is RunState.RUNNING
    return identity


async def ended(app: App, identity: str) -> RunRecord:
    record = await app.runs.get(identity)
    assert record is not None
    events = [row.type.value for row in await app.journal.trace(identity)]
    assert events.count("RUN_ENDED") == 1
    return record


@pytest.mark.parametrize("node", ["start_run", "execute_tool", "release"])
async def test_r3_a_run_whose_process_died_is_taken_up_once_its_lease_has_ended(
    tmp_path: Path, url: str | None, node: str
) -> None:
    settings = settings_of(tmp_path, url)
    identity = await died(settings, node) if node != "release" else await died(settings, "guard_semantics")
    clock = MovedClock(SystemClock())
    async with opened(settings, clock=clock) as app:
        assert await recover(app, 5) == ()
        clock.seconds = settings.lease_seconds
        (takeover,) = await recover(app, 5)
        assert (takeover.record.run_id, takeover.from_start) == (identity, False)
        assert await recover(app, 5) == (), "the lease is held"
        state = await carry(app, takeover)
        record = await ended(app, identity)
        assert record.internal_state is RunState.SUCCESS
        assert state["outcome"]["published_result"] == record.published_result
        assert len(await app.runs.runs()) == 1
        assert record.usage["model_calls"] == len(SCRIPT) + 1


async def test_r3_of_processes_that_look_at_once_one_gets_a_run(tmp_path: Path, url: str | None) -> None:
    settings = settings_of(tmp_path, url)
    async with opened(settings) as first, opened(settings) as second:
        for index in range(6):
            await first.runs.create(ours(f"run-{index}"))
        found = await asyncio.gather(*(recover(app, 6) for app in (first, second, first, second)))
    taken = [takeover.record.run_id for each in found for takeover in each]
    assert sorted(taken) == [f"run-{index}" for index in range(6)]


async def test_r3_no_more_runs_are_taken_up_than_there_is_room_for(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path, None)) as app:
        for index in range(3):
            await app.runs.create(ours(f"run-{index}"))
        await app.runs.create(ours("run-9", internal_state=RunState.CANCEL_REQUESTED))
        assert len(await recover(app, 2)) == 2
        assert len(await recover(app, 0)) == 0
        assert (await ended(app, "run-9")).internal_state is RunState.CANCELLED
        assert len(await recover(app, 2)) == 1


async def test_r3_a_run_that_died_before_its_first_checkpoint_starts_again(tmp_path: Path, url: str | None) -> None:
    settings, identity = settings_of(tmp_path, url), run_id()
    record = ours(identity, query="why?")
    async with opened(settings) as app:
        await app.runs.create(record)
        (takeover,) = await recover(app, 1)
        assert takeover.from_start
        await carry(app, takeover)
        after = await ended(app, identity)
        assert (after.internal_state, after.query, after.created_at) == (RunState.SUCCESS, "why?", record.created_at)
        assert after.execution_id == takeover.execution_id


async def test_r94_a_run_that_was_cancelled_before_its_process_died_ends_cancelled(
    tmp_path: Path, url: str | None
) -> None:
    settings = settings_of(tmp_path, url)
    identity = await died(settings, "project_observation")
    async with opened(settings, clock=MovedClock(SystemClock(), settings.lease_seconds)) as app:
        running = frozenset({RunState.RUNNING})
        assert await app.runs.transition(identity, running, RunState.CANCEL_REQUESTED)
        assert await recover(app, 5) == ()
        record = await ended(app, identity)
    assert (record.internal_state, record.error_code) == (RunState.CANCELLED, "CANCELLED")
    assert (record.published_result, record.fallback, record.session_lock) == (None, None, None)
    assert record.total_token_count == 110, "what was spent is told (R116)"


async def test_r60_a_run_that_is_taken_up_past_its_timeout_publishes_what_it_had_verified(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, None)
    unproven = await died(settings, "dedup_scope", session=None)
    proven = await died(settings, "guard_evidence", session="s-2")
    asked = 4
    async with opened(settings, clock=MovedClock(SystemClock(), settings.run_timeout_seconds)) as app:
        for takeover in await recover(app, 5):
            await carry(app, takeover)
        nothing, something = await ended(app, unproven), await ended(app, proven)
        assert (nothing.internal_state, nothing.fallback) == (RunState.TIMED_OUT, None)
        assert something.release_outcome == "FALLBACK"
        assert something.fallback is not None
        assert something.fallback["observed_facts"]
        assert nothing.usage["model_calls"] + something.usage["model_calls"] == asked, "no model was asked any more"


@pytest.mark.parametrize(
    "changes",
    [
        {"created_at": SystemClock().now() - 3600},
        {"context": {**CONTEXT, "no_gain_threshold": 0}},
        {"context": {"unknown": 1}},
    ],
    ids=["evidence gone", "illegal settings", "unknown settings"],
)
async def test_r94_a_run_that_cannot_go_on_fails_clearly(tmp_path: Path, changes: dict[str, Any]) -> None:
    async with opened(settings_of(tmp_path, None)) as app:
        await app.runs.create(ours("run-1", **changes))
        assert await recover(app, 5) == ()
        record = await ended(app, "run-1")
    assert (record.internal_state, record.error_code) == (RunState.FAILED, "INTERRUPTED")


async def test_r3_a_run_of_another_model_is_left_to_who_has_it_while_its_evidence_lives(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, None)
    clock = MovedClock(SystemClock())
    async with opened(settings, clock=clock) as app:
        await app.runs.create(ours("run-1", context={**CONTEXT, "model": "openai:gone"}))
        assert await recover(app, 5) == ()
        left = await app.runs.get("run-1")
        assert left is not None
        assert (left.internal_state, left.execution_id) == (RunState.RUNNING, None)
        clock.seconds = settings.canonical_ttl_seconds + 1
        assert await recover(app, 5) == ()
        record = await ended(app, "run-1")
    assert (record.internal_state, record.error_code) == (RunState.FAILED, "INTERRUPTED")


@pytest.mark.parametrize(
    ("state", "held"),
    [(RunState.FAILED, True), (RunState.TIMED_OUT, True), (RunState.CANCELLED, True), (RunState.CANCELLED, False)],
)
async def test_r108_an_end_that_its_process_did_not_tell_is_told_once(
    tmp_path: Path, url: str | None, state: RunState, held: bool
) -> None:
    clock = MovedClock(SystemClock())
    async with opened(settings_of(tmp_path, url), clock=clock) as app:
        run, now = run_id(), clock.now()
        await app.runs.create(ours(run, execution_id="dead", lease_until=now + 1 if held else None))
        await app.runs.transition(run, frozenset({RunState.RUNNING}), state, RunEnd(ReleaseOutcome.NONE, now))
        clock.seconds = 2
        assert await recover(app, 5) == ()
        again = event(TraceEventType.RUN_ENDED, internal_state=state.value)
        await app.journal.write(JournalBatch(run, "end:late", now, [again]))
        record = await ended(app, run)
        assert (record.internal_state, record.lease_until) == (state, None)


async def test_r3_a_run_whose_checkpoint_cannot_be_read_keeps_no_other_from_being_taken_up(
    tmp_path: Path, url: str | None
) -> None:
    settings = settings_of(tmp_path, url)
    broken = await died(settings, "execute_tool", session="s-1")
    others = {await died(settings, "execute_tool", session=f"s-{each}") for each in (2, 3)}
    async with opened(settings, clock=MovedClock(SystemClock(), settings.lease_seconds)) as app:
        await break_checkpoint(settings, f"thread-{broken}")
        taken = await recover(app, 5)
        assert {takeover.record.run_id for takeover in taken} == others
        left = await app.runs.get(broken)
        assert left is not None
        assert (left.internal_state, left.lease_until) == (RunState.RUNNING, None)
        await app.runs.transition(broken, frozenset({RunState.RUNNING}), RunState.CANCEL_REQUESTED)
        assert await recover(app, 5) == ()
        assert (await ended(app, broken)).internal_state is RunState.CANCELLED


async def break_checkpoint(settings: Any, thread: str) -> None:
    """Make the checkpoints of a thread unreadable, where the settings keep them."""
    if settings.database_url is None:
        with sqlite3.connect(settings.home / CHECKPOINT_FILE) as connection:
            changed = connection.execute("UPDATE checkpoints SET checkpoint = X'C1' WHERE thread_id = ?", (thread,))
            assert changed.rowcount
        connection.close()
        return
    engine = create_engine(settings.resolved_database_url())
    async with engine.begin() as changing:
        broken = text(
            "UPDATE checkpoint_blobs SET blob = '\\xC1'::bytea WHERE thread_id = :thread AND type = 'msgpack'"
        )
        assert (await changing.execute(broken, {"thread": thread})).rowcount
    await engine.dispose()


async def test_r3_a_service_that_stops_while_it_takes_runs_up_gives_them_back(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path, None)) as app:
        assert app.checkpointer is not None
        for index in range(3):
            await app.runs.create(ours(f"run-{index}"))
        look, entered = app.checkpointer.aget_tuple, asyncio.Event()
        looks = iter([look])

        async def once(config: Any) -> Any:
            for each in looks:
                return await each(config)
            entered.set()
            return await asyncio.Event().wait()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(app.checkpointer, "aget_tuple", once)
            looking = asyncio.create_task(recover(app, 5))
            await entered.wait()
            assert len([run for run in await app.runs.runs() if run.lease_until is not None]) == 2
            looking.cancel()
            await asyncio.wait([looking])
        assert len(await recover(app, 5)) == 3


async def test_r3_a_run_that_ended_between_look_and_lease_is_given_back(tmp_path: Path) -> None:
    async with opened(settings_of(tmp_path, None)) as app:
        await app.runs.create(ours("run-1"))
        take_lease = app.runs.take_lease

        async def late(*asked: Any, **options: Any) -> bool:
            end = RunEnd(ReleaseOutcome.NONE, app.resources.clock.now())
            await app.runs.transition("run-1", frozenset({RunState.RUNNING}), RunState.CANCELLED, end)
            return await take_lease(*asked, **options)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(app.runs, "take_lease", late)
            assert await recover(app, 5) == ()
        record = await ended(app, "run-1")
        assert (record.internal_state, record.lease_until) == (RunState.CANCELLED, None)


@pytest.mark.parametrize("fault", [OSError, asyncio.CancelledError, TimeoutError])
async def test_r3_whoever_lost_a_run_to_another_execution_does_not_end_it(
    tmp_path: Path, fault: type[BaseException]
) -> None:
    async def late(_: Any) -> None:
        raise fault

    async with opened(settings_of(tmp_path, None)) as app:
        identity, mine, theirs = run_id(), run_id(), run_id()
        now = SystemClock().now()
        record = ours(identity, execution_id=mine, lease_until=now - 1)
        await app.runs.create(record)
        assert await app.runs.take_lease(identity, theirs, now, now + 60, force=False)
        execution = Execution(app, DiagnosisContext(), record=record, execution_id=mine)
        execution._stream = late  # type: ignore[method-assign]
        with contextlib.suppress(asyncio.CancelledError):
            await execution.run(None, 1.0)
        held = await app.runs.get(identity)
        assert held is not None
        assert (held.internal_state, held.execution_id, held.lease_until) == (RunState.RUNNING, theirs, now + 60)
        assert await app.journal.trace(identity) == ()


async def test_r120_a_timeout_leaves_an_acknowledged_cancel_its_end(tmp_path: Path, url: str | None) -> None:
    async with opened(settings_of(tmp_path, url)) as app:
        run = run_id()
        await app.runs.create(ours(run, internal_state=RunState.CANCEL_REQUESTED))
        await end_without_result(app.runs, app.journal, run, RunState.TIMED_OUT, "RUN_TIMED_OUT", NOW)
        record = await ended(app, run)
        assert (record.internal_state, record.error_code) == (RunState.CANCELLED, "CANCELLED")


async def test_r94_a_command_ends_what_nobody_carries_on_and_takes_nothing_up(tmp_path: Path) -> None:
    clock = MovedClock(SystemClock())
    async with opened(settings_of(tmp_path, None), clock=clock) as app:
        until = clock.now() + 60
        others = {"internal_state": RunState.RUNNING, "execution_id": "e", "lease_until": until, "created_at": until}
        await app.runs.create(a_run("other", **others))
        await app.runs.create(a_run("ours", **{**OURS, **others}))
        await app.runs.create(a_run("cancelled", **{**others, "internal_state": RunState.CANCEL_REQUESTED}))
        await app.runs.create(a_run("live", **{**others, "lease_until": until + 10_000}))
        for seconds, changed in ((0, {}), (61, {"cancelled": "CANCELLED"}), (361, {"other": "FAILED"})):
            clock.seconds = seconds
            await tidy(app)
            states = {run.run_id: run.internal_state.value for run in await app.runs.runs()}
            ends = {name: state for name, state in states.items() if state not in ("RUNNING", "CANCEL_REQUESTED")}
            assert ends == {**({"cancelled": "CANCELLED"} if seconds > 61 else {}), **changed}
        assert (await ended(app, "other")).error_code == "INTERRUPTED"


async def test_r3_a_service_looks_again_and_gives_back_what_it_cannot_carry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.recovery, "SWEEP_SECONDS", 0.01)
    async with opened(settings_of(tmp_path, None)) as app:
        await app.runs.create(ours("run-1"))
        tries: list[Takeover] = []
        taken = asyncio.Event()

        async def carry_on(takeover: Takeover) -> None:
            tries.append(takeover)
            if len(tries) < 3:
                raise RuntimeError("MARKER-EXCEPTION-TEXT")
            taken.set()

        task = asyncio.create_task(keep_recovering(app, lambda: 1, carry_on))
        await asyncio.wait_for(taken.wait(), 20)
        task.cancel()
        held = await app.runs.get("run-1")
        assert held is not None
        assert held.execution_id == tries[-1].execution_id
        assert len({takeover.execution_id for takeover in tries}) == 3


async def test_r67_archives_and_checkpoints_live_equally_long(tmp_path: Path, url: str | None) -> None:
    settings = settings_of(tmp_path, url)
    clock = MovedClock(SystemClock())
    identity = run_id()
    async with opened(settings, clock=clock) as app:
        app.journal._clock = clock
        await begin(app, identity)
        config: Any = {"configurable": {"thread_id": f"thread-{identity}"}}
        clock.seconds = 29 * DAY
        await tidy(app)
        assert await app.journal.archived(identity, "question")
        assert (await app.graph.aget_state(config)).values
        clock.seconds = 31 * DAY
        running = {"internal_state": RunState.RUNNING, "lease_until": clock.now() + 60}
        await app.runs.create(a_run("fork", thread_id=f"thread-{identity}", **running))
        await tidy(app)
        assert not await app.journal.archived(identity, "question")
        assert (await app.graph.aget_state(config)).values, "a Run on the same thread has not ended"
        assert await app.runs.transition("fork", frozenset({RunState.RUNNING}), RunState.FAILED)
        await tidy(app)
        assert (await app.graph.aget_state(config)).values, "nor does one without a known end count"
        async with app.journal._engine.begin() as connection:
            await connection.exec_driver_sql("DELETE FROM diagnosis_run WHERE run_id = 'fork'")
        await tidy(app)
        assert not (await app.graph.aget_state(config)).values
        assert (await ended(app, identity)).thread_id is None


async def test_r67_an_expired_archive_leaves_the_database(tmp_path: Path) -> None:
    clock = MovedClock(SystemClock())
    async with opened(settings_of(tmp_path, None), clock=clock) as app:
        entry = ArchiveEntry("question", "question", {"query": "MARKER"})
        await app.journal.write(JournalBatch("a", "0001:start_run", clock.now(), archive=[entry]))
        for seconds, left in ((29 * DAY, 1), (31 * DAY, 0)):
            clock.seconds = seconds
            await tidy(app)
            async with app.journal._engine.connect() as connection:
                assert (await connection.exec_driver_sql("select count(*) from run_archive")).scalar() == left
