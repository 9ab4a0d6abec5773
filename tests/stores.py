"""Databases for store tests: SQLite files always, PostgreSQL where SUPERBIZ_TEST_POSTGRES names one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from graph.contract import RunState
from nodes.ports import RunRecord
from service.store.engine import open_database, sqlite_url

KINDS = ["sqlite", *(["postgres"] if os.environ.get("SUPERBIZ_TEST_POSTGRES") else [])]


@asynccontextmanager
async def database(kind: str, folder: Path) -> AsyncIterator[AsyncEngine]:
    """Open an empty database of a kind."""
    if kind == "sqlite":
        engine = await open_database(sqlite_url(folder / "runs.db"))
    else:
        engine = await open_database(os.environ["SUPERBIZ_TEST_POSTGRES"])
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
    try:
        yield engine
    finally:
        await engine.dispose()


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
