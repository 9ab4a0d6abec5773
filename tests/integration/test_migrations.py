"""The versions of the tables on SQLite and PostgreSQL: what is made is what the code expects, what was there stays."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from setuptools import find_packages
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlmodel import SQLModel

from graph.contract import Intent, RunState, TraceEventType
from nodes.events import event
from nodes.ports import JournalBatch, RunEnd
from release.contract import ReleaseOutcome
from service.contract import StorageError
from service.home import open_stores
from service.settings import load_settings
from service.store.clock import FixedClock
from service.store.engine import create_engine, open_database, sqlite_url
from service.store.journal import SqlJournal
from service.store.migrations.upgrade import HEAD, DatabaseTooNew, _scripts
from service.store.runs import SqlRunStore
from tests.data import ROOT
from tests.first_tables import NAMES, make_first_tables
from tests.stores import KINDS, OWN, a_run, own_database
from tools.canonical.sql import canonical_metadata


@pytest.fixture(params=KINDS)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield sqlite_url(tmp_path / "runs.db")
        return
    url = await own_database(f"{OWN}_migrations")
    await on(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    yield url


async def on(url: str, *statements: str) -> list[Any]:
    """Execute statements past all versions; return the rows of the last one."""
    engine = create_engine(url)
    try:
        async with engine.begin() as connection:
            for statement in statements:
                result = await connection.execute(text(statement))
            return list(result.all()) if result.returns_rows else []
    finally:
        await engine.dispose()


async def first(url: str) -> None:
    engine = create_engine(url)
    await make_first_tables(engine)
    await engine.dispose()


async def everything(url: str) -> dict[str, list[Any]]:
    columns = {
        "diagnosis_run": "run_id, query, session_id, internal_state, status, created_at, published_result, usage"
    }
    return {name: sorted(await on(url, f"SELECT {columns.get(name, '*')} FROM {name}"), key=str) for name in NAMES}


def differences(connection: Connection) -> list[Any]:
    def ours(name: str | None, kind: str, *_: Any) -> bool:
        return kind != "table" or name != "alembic_version"

    options = {"compare_type": True, "compare_server_default": True, "include_name": ours}
    context = MigrationContext.configure(connection, opts=options)
    return list(compare_metadata(context, [SQLModel.metadata, canonical_metadata]))


@pytest.mark.parametrize("populated", [False, True], ids=["empty", "first version"])
async def test_the_tables_of_a_database_are_those_of_the_code(url: str, populated: bool) -> None:
    if populated:
        await first(url)
    engine = await open_database(url)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []
    await engine.dispose()
    assert await on(url, "SELECT version_num FROM alembic_version") == [(HEAD,)]


async def test_the_comparison_sees_a_difference(url: str) -> None:
    await (await open_database(url)).dispose()
    await on(url, "DROP INDEX ux_diagnosis_run_session_lock")
    engine = create_engine(url)
    async with engine.connect() as connection:
        (found,) = await connection.run_sync(differences)
    await engine.dispose()
    assert found[0] == "add_index"


async def test_a_database_without_versions_loses_nothing(url: str) -> None:
    await first(url)
    before = await everything(url)
    assert all(before[name] for name in NAMES)
    engine = await open_database(url)
    assert await everything(url) == before
    runs, journal = SqlRunStore(engine), SqlJournal(engine, FixedClock(1_700_000_300.0))
    old = await runs.get("run-1")
    assert old is not None
    assert (old.internal_state, old.intent, old.release_outcome) == ("SUCCESS", Intent.DIAGNOSIS, "CONCLUSION")
    assert (old.query, old.published_result, old.ended_at) == ("为什么 5xx?", {"conclusion": "磁盘满"}, 1700000100.25)
    assert (old.owner, old.thread_id, old.session_lock, old.context) == (None, None, None, None)
    assert await runs.previous_turn("s-1") == old
    assert (await journal.archived("run-1", "question"))["question"] == {"query": "为什么 5xx?"}
    assert [run.run_id for run in await runs.abandoned(1_700_000_261.0)] == ["run-2"]
    end = RunEnd(ReleaseOutcome.NONE, ended_at=1.0)
    assert await runs.transition("run-2", frozenset({RunState.RUNNING}), RunState.FAILED, end)
    assert await runs.create(a_run("run-3", owner="alice", thread_id="t", context={"model": None}))
    await engine.dispose()


async def test_r97_r98_a_run_that_was_never_routed_is_no_diagnosis_any_more(url: str) -> None:
    """Before version 3 every Run had an intent from its start: a diagnosis, until the router said otherwise."""
    ours = {"intent": Intent.DIAGNOSIS, "context": {"model": None}}
    ended = {**ours, "internal_state": RunState.FAILED, "ended_at": 1.0}
    engine = await open_database(url)
    runs, journal = SqlRunStore(engine), SqlJournal(engine, FixedClock())
    await runs.create(a_run("unroutable", **{**ended, "context": None, "error_code": "INTENT_ROUTING_FAILED"}))
    await runs.create(a_run("cancelled before", **ended))
    await runs.create(a_run("waiting", **ours))
    await runs.create(a_run("failed later", **ended))
    await runs.create(a_run("of a command", **{**ended, "context": None}))
    routed = event(TraceEventType.INTENT_ROUTED, intent="DIAGNOSIS", attempt=1)
    await journal.write(JournalBatch("failed later", "0002:route_intent", 1.0, [routed]))
    await engine.dispose()
    await on(url, "UPDATE alembic_version SET version_num = '0002'")
    engine = await open_database(url)
    intents = {run.run_id: run.intent for run in await SqlRunStore(engine).runs()}
    await engine.dispose()
    assert intents == {
        "unroutable": None,
        "cancelled before": None,
        "waiting": None,
        "failed later": Intent.DIAGNOSIS,
        "of a command": Intent.DIAGNOSIS,
    }


async def test_half_of_the_first_tables_become_whole(url: str) -> None:
    await first(url)
    await on(url, "DROP TABLE canonical_record", "DROP INDEX ix_run_archive_at")
    engine = await open_database(url)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []
    await engine.dispose()


async def test_a_database_of_a_newer_program_is_refused_and_left_alone(url: str) -> None:
    await (await open_database(url)).dispose()
    await on(url, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(DatabaseTooNew, match="newer version"):
        await open_database(url)
    assert await on(url, "SELECT version_num FROM alembic_version") == [("9999",)]
    with pytest.raises(StorageError, match=r"^SUPERBIZ_DATABASE_URL: .{1,200}$") as refused:
        async with open_stores(load_settings(database_url=url)):
            pass
    assert "9999" not in str(refused.value)


async def test_an_upgrade_that_fails_changes_nothing(url: str) -> None:
    await first(url)
    await on(url, "ALTER TABLE diagnosis_run ADD COLUMN context JSON")  # the last column the upgrade adds
    with pytest.raises(DBAPIError):
        await open_database(url)
    engine = create_engine(url)
    async with engine.connect() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        columns = await connection.run_sync(
            lambda sync: {c["name"] for c in inspect(sync).get_columns("diagnosis_run")}
        )
    await engine.dispose()
    assert "alembic_version" not in names
    assert not columns & {"owner", "thread_id", "session_lock"}


async def test_processes_that_start_at_once_upgrade_once(url: str) -> None:
    await first(url)
    opening = (
        "import asyncio, sys; from service.store.engine import open_database; "
        "asyncio.run(open_database(sys.argv[1])); print('opened')"
    )
    started = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", opening, url, cwd=ROOT, stdout=PIPE)
        for _ in range(2)
    ]
    assert [(await each.communicate())[0] for each in started] == [b"opened\n"] * 2
    assert len(await on(url, "SELECT run_id FROM diagnosis_run")) == 2
    assert await on(url, "SELECT version_num FROM alembic_version") == [(HEAD,)]


async def test_openings_at_once_in_one_process_upgrade_once(url: str) -> None:
    for engine in await asyncio.gather(*(open_database(url) for _ in range(4))):
        await engine.dispose()
    assert await on(url, "SELECT version_num FROM alembic_version") == [(HEAD,)]


def test_the_code_works_with_the_last_version() -> None:
    scripts = _scripts()
    assert scripts.get_heads() == [HEAD]
    assert [script.revision for script in scripts.walk_revisions()] == [f"{n:04}" for n in range(int(HEAD), 0, -1)]


def test_the_versions_are_shipped() -> None:
    packages = find_packages(str(ROOT), include=["service*"])
    assert "service.store.migrations.versions" in packages
    names = sorted(os.listdir(ROOT / "service/store/migrations/versions"))
    assert [name[:5] for name in names if name.startswith("v")] == [f"v{n:04}" for n in range(1, int(HEAD) + 1)]
