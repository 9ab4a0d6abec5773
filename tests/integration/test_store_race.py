"""Several threads and processes on one SQLite file: exactly one wins, numbers have no gaps (R8, R67, R108)."""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import sqlite3
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from graph.contract import RunState, TraceEvent, TraceEventType
from nodes.ports import JournalBatch, RunEnd
from release.contract import ReleaseOutcome
from service.store.clock import FixedClock
from service.store.engine import DatabaseUrlError, database_url, open_database, sqlite_url
from service.store.journal import SqlJournal
from service.store.runs import SqlRunStore
from tests.stores import a_run
from tools.canonical.sql import SqlCanonicalStore
from tools.contract import CanonicalRecord, EvidenceStatus, InvocationStatus
from tools.scope import make_scope

RUNS = 12
ENDS = [RunState.SUCCESS, RunState.CANCELLED, RunState.TIMED_OUT, RunState.FAILED]


async def _contend(path: str, writer: int) -> dict[str, list[bool]]:
    """Open the file and race for every end, lease and canonical record; write a batch per Run."""
    engine = await open_database(sqlite_url(Path(path)))
    runs, journal = SqlRunStore(engine), SqlJournal(engine, FixedClock())
    canonical = SqlCanonicalStore(engine, FixedClock().now)
    won: dict[str, list[bool]] = {"created": [], "leased": [], "ended": [], "finished": []}
    event = TraceEvent(type=TraceEventType.PARALLEL_CALLS_DROPPED, fields={"count": writer})
    for index in range(RUNS):
        run_id = f"run-{index}"
        won["created"].append(await runs.create(a_run(run_id)))
        won["leased"].append(await runs.take_lease(run_id, f"e-{writer}", 100.0, 160.0, force=False))
        record = CanonicalRecord(
            run_id=run_id,
            tool_call_id="call_1",
            tool_name="query_logs",
            status=InvocationStatus.PROJECTING,
            scope=make_scope("query_logs", {}, ""),
            request={},
            created_at=1.0,
        )
        await canonical.begin(record)
        update = {"status": InvocationStatus.READY, "evidence_status": EvidenceStatus.NO_EVIDENCE}
        won["finished"].append(await canonical.finish(record.model_copy(update=update)))
        await journal.write(JournalBatch(run_id, f"{writer:04}:n", 1.0, events=[event, event]))
        await journal.write(JournalBatch(run_id, "shared:n", 1.0, events=[event]))
        end = RunEnd(ReleaseOutcome.NONE, ended_at=float(writer), error_code=f"W{writer}")
        won["ended"].append(await runs.transition(run_id, frozenset({RunState.CREATED}), ENDS[writer % len(ENDS)], end))
    await engine.dispose()
    return won


def contend(path: str, writer: int) -> dict[str, list[bool]]:
    """Entry point of a racing thread or process, with an event loop of its own."""
    return asyncio.run(_contend(path, writer))


def _race_in_threads(path: str) -> list[dict[str, list[bool]]]:
    barrier = threading.Barrier(4)

    def enter(writer: int) -> dict[str, list[bool]]:
        barrier.wait()
        return contend(path, writer)

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(enter, range(4)))


def _race_in_processes(path: str) -> list[dict[str, list[bool]]]:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(contend, [path] * 2, range(2)))


@pytest.mark.parametrize("race", [_race_in_threads, _race_in_processes], ids=["threads", "processes"])
def test_r8_exactly_one_writer_wins_each_transition(tmp_path: Path, race: Callable[[str], Any]) -> None:
    path = tmp_path / "home" / "runs.db"
    results = race(str(path))
    for what in ("created", "leased", "ended", "finished"):
        for index in range(RUNS):
            assert sum(result[what][index] for result in results) == 1, (what, index)
    asyncio.run(_check(path, results))


async def _check(path: Path, results: list[dict[str, list[bool]]]) -> None:
    engine = await open_database(sqlite_url(path))
    runs, journal = SqlRunStore(engine), SqlJournal(engine, FixedClock())
    for index in range(RUNS):
        run = await runs.get(f"run-{index}")
        assert run is not None
        winner = next(writer for writer, result in enumerate(results) if result["ended"][index])
        assert (run.internal_state, run.error_code) == (ENDS[winner % len(ENDS)], f"W{winner}")
        rows = await journal.trace(f"run-{index}")
        assert [row.seq for row in rows] == list(range(1, 2 * len(results) + 2))
    await engine.dispose()


def test_files_are_for_their_owner_alone_and_use_wal(tmp_path: Path) -> None:
    path = tmp_path / "home" / "deep" / "runs.db"

    async def use() -> list[int]:
        engine = await open_database(sqlite_url(path))
        await SqlRunStore(engine).create(a_run())
        modes = [stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()]
        await engine.dispose()
        return modes

    modes = asyncio.run(use())
    assert len(modes) == 3
    assert set(modes) == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


async def test_opening_again_keeps_what_is_there(tmp_path: Path) -> None:
    for expected in (True, False):
        engine = await open_database(sqlite_url(tmp_path / "a b%20#?.db"))
        assert await SqlRunStore(engine).create(a_run()) is expected
        await engine.dispose()
    assert (tmp_path / "a b%20#?.db").exists()


async def test_a_cancelled_write_leaves_the_database_usable(tmp_path: Path) -> None:
    engine = await open_database(sqlite_url(tmp_path / "runs.db"))
    journal = SqlJournal(engine, FixedClock())
    event = TraceEvent(type=TraceEventType.PARALLEL_CALLS_DROPPED, fields={"count": 1})
    for index in range(30):
        task = asyncio.create_task(journal.write(JournalBatch("run-1", f"{index}", 1.0, events=[event, event])))
        await asyncio.sleep(0.0002 * (index % 10))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await journal.write(JournalBatch("run-1", "last", 1.0, events=[event]))
    rows = await journal.trace("run-1")
    assert len(rows) % 2 == 1
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    await engine.dispose()


async def test_no_call_blocks_the_event_loop(tmp_path: Path) -> None:
    """The server refuses blocking calls with the same instrument."""
    blockbuster = pytest.importorskip("blockbuster")
    guard = blockbuster.BlockBuster()
    guard.activate()
    try:
        engine = await open_database(sqlite_url(tmp_path / "home" / "runs.db"))
        runs, journal = SqlRunStore(engine), SqlJournal(engine, FixedClock())
        canonical = SqlCanonicalStore(engine, FixedClock().now)
        assert await runs.create(a_run())
        assert await runs.transition("run-1", frozenset({RunState.CREATED}), RunState.RUNNING)
        event = TraceEvent(type=TraceEventType.RUN_CANCEL_REQUESTED)
        await journal.write(JournalBatch("run-1", "1:n", 1.0, events=[event]))
        assert len(await journal.trace("run-1")) == 1
        assert await canonical.get("run-1", "call_1") is None
        await engine.dispose()
        with pytest.raises(blockbuster.BlockingError):
            (tmp_path / "home").stat()
    finally:
        guard.deactivate()


async def test_errors_of_the_database_show_no_parameters(tmp_path: Path) -> None:
    engine = await open_database(sqlite_url(tmp_path / "runs.db"))
    store = SqlRunStore(engine)
    connection = sqlite3.connect(tmp_path / "runs.db")
    connection.execute("DROP TABLE diagnosis_run")
    connection.close()
    with pytest.raises(OperationalError) as caught:
        await store.create(a_run(query="my secret question"))
    # Nor what the driver says, in which servers and accounts may be named.
    assert not {"secret", "diagnosis_run"} & set(re.split(r"\W", str(caught.value)))
    await engine.dispose()


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:///runs.db", "sqlite+aiosqlite"),
        ("postgresql://u:p@h/d", "postgresql+psycopg"),
        ("postgres://u:p@h/d", "postgresql+psycopg"),
        ("postgresql+asyncpg://u:p@h/d", "postgresql+asyncpg"),
    ],
)
def test_urls_get_an_async_driver(url: str, driver: str) -> None:
    assert database_url(url).drivername == driver


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "mysql://u:hunter2@h/d", "nonsense", "", "hunter2://["]
)
def test_other_urls_are_refused_without_being_shown(url: str) -> None:
    with pytest.raises(DatabaseUrlError, match="SUPERBIZ_DATABASE_URL") as caught:
        database_url(url)
    assert "hunter2" not in str(caught.value)
