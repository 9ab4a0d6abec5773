"""Databases for store tests: SQLite files, and PostgreSQL found by SUPERBIZ_TEST_POSTGRES, default a loopback server.

There a database of this test process' own is made, so that workers do not disturb each other.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from graph.contract import RunState
from nodes.ports import RunRecord
from service.store.engine import open_database, sqlite_url
from tools.database import Database

KINDS = ["sqlite", "postgres"]
SERVER = make_url(os.environ.get("SUPERBIZ_TEST_POSTGRES", "postgresql+psycopg://postgres@127.0.0.1:5432/postgres"))
CHECKOUT = f"{zlib.crc32(str(Path(__file__).parent).encode()):08x}"
OWN = f"superbiz_test_{CHECKOUT}_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
"""Checkouts that are tested side by side may be at different versions of the tables."""
CONNECT_SECONDS = 3


@asynccontextmanager
async def database(kind: str, folder: Path) -> AsyncIterator[Database]:
    """Open an empty database of a kind."""
    async with reopened(kind, folder) as engine:
        if kind == "postgres":
            await _empty(engine)
        yield engine


@asynccontextmanager
async def reopened(kind: str, folder: Path) -> AsyncIterator[Database]:
    """Open the database of a kind as it is, for another process' part."""
    engine = await open_database(sqlite_url(folder / "runs.db") if kind == "sqlite" else await own_database())
    try:
        yield engine
    finally:
        await engine.dispose()


async def _empty(engine: Database) -> None:
    async with engine.begin() as connection:
        for table in (
            "diagnosis_run",
            "journal_cursor",
            "journal_batch",
            "diagnosis_trace_event",
            "agent_step",
            "run_archive",
            "canonical_record",
        ):
            await connection.execute(text(f"TRUNCATE TABLE {table}"))


async def own_database(name: str = OWN) -> str:
    """Make a database on the server where it is missing; return its URL."""
    server = create_async_engine(
        SERVER, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": CONNECT_SECONDS}, poolclass=NullPool
    )
    try:
        async with server.connect() as connection:
            made = text("SELECT 1 FROM pg_database WHERE datname = :name")
            if (await connection.execute(made, {"name": name})).first() is None:
                await connection.execute(text(f"CREATE DATABASE {name}"))
    except OperationalError:
        pytest.skip("no PostgreSQL server: set SUPERBIZ_TEST_POSTGRES")
    finally:
        await server.dispose()
    return SERVER.set(database=name).render_as_string(hide_password=False)


def a_run(run_id: str = "run-1", **changes: object) -> RunRecord:
    """Return a freshly created Run."""
    values: dict[str, object] = {
        "run_id": run_id,
        "query": "订单服务 5xx 突增, 为什么?",
        "session_id": "session-1",
        "internal_state": RunState.CREATED,
        "created_at": 1_700_000_000.0,
    }
    return RunRecord(**(values | changes))  # type: ignore[arg-type]
