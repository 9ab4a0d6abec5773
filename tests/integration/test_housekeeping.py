"""What opening the system does to Runs that nobody carries on and to archives that expired (R67, R94)."""

from __future__ import annotations

from pathlib import Path

from graph.contract import RunState
from nodes.ports import ArchiveEntry, JournalBatch, RunRecord
from service.housekeeping import tidy
from service.store.clock import FixedClock
from service.store.engine import open_database, sqlite_url
from service.store.journal import SqlJournal
from service.store.runs import SqlRunStore

DAY = 86_400.0


async def test_r94_an_abandoned_run_ends_once_its_own_timeout_is_over(tmp_path: Path) -> None:
    engine = await open_database(sqlite_url(tmp_path / "x.db"))
    try:
        clock = FixedClock(1_700_000_000.0)
        runs, journal = SqlRunStore(engine), SqlJournal(engine, clock, strict=True)
        start = clock.now()
        for run_id, state in (("a", RunState.RUNNING), ("b", RunState.CANCEL_REQUESTED), ("c", RunState.RUNNING)):
            lease = start + 60 if run_id != "c" else start + 10_000
            await runs.create(RunRecord(run_id, "why?", None, RunState.RUNNING, start, "e", lease))
            if state is not RunState.RUNNING:
                await runs.transition(run_id, frozenset({RunState.RUNNING}), state)
        clock.advance(61)
        await tidy(runs, journal, clock, 300)
        assert {r.internal_state for r in await runs.runs()} == {RunState.RUNNING, RunState.CANCEL_REQUESTED}
        clock.advance(300)
        await tidy(runs, journal, clock, 300)
        ended = {r.run_id: (r.internal_state, r.error_code) for r in await runs.runs()}
        assert ended["a"] == (RunState.FAILED, "INTERRUPTED")
        assert ended["b"] == (RunState.CANCELLED, "CANCELLED")
        assert ended["c"] == (RunState.RUNNING, None)
        assert [row.type.value for row in await journal.trace("a")] == ["RUN_ENDED"]
    finally:
        await engine.dispose()


async def test_r67_an_archive_is_deleted_after_its_days(tmp_path: Path) -> None:
    engine = await open_database(sqlite_url(tmp_path / "x.db"))
    try:
        clock = FixedClock(1_700_000_000.0)
        runs, journal = SqlRunStore(engine), SqlJournal(engine, clock, archive_days=30, strict=True)
        entry = ArchiveEntry("question", "question", {"query": "MARKER"})
        await journal.write(JournalBatch("a", "0001:start_run", clock.now(), archive=[entry]))
        clock.advance(29 * DAY)
        await tidy(runs, journal, clock, 300)
        assert await journal.archived("a", "question")
        clock.advance(2 * DAY)
        await tidy(runs, journal, clock, 300)
        async with engine.connect() as connection:
            left = await connection.exec_driver_sql("select count(*) from run_archive")
            assert left.scalar() == 0
    finally:
        await engine.dispose()
