"""Checkpoints of the graph: a file in the home folder, or PostgreSQL where the database is one (R3).

State is plain data and messages: nothing else may be revived from a checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import StateSnapshot
from sqlalchemy.engine import URL

from service.contract import StorageError
from service.file_saver import FileSaver
from service.home import CHECKPOINT_FILE
from service.settings import Settings
from service.store.engine import BUSY_TIMEOUT_SECONDS, NEEDS_POSTGRES, database_url, patience

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

CONNECTIONS = 4
"""Connections to PostgreSQL for checkpoints."""
CONNECT_SECONDS = 10.0
_LOCK = 0x53_42_43_50
_LOCK_PAUSE_SECONDS = 0.05


def open_checkpoints(settings: Settings) -> AbstractAsyncContextManager[BaseCheckpointSaver[Any]]:
    """Open the saver that the settings name. Raises StorageError."""
    url = database_url(settings.resolved_database_url())
    return _in_file(settings.home) if url.drivername.startswith("sqlite") else _in_postgres(url)


async def latest_state(graph: Any, config: Any) -> StateSnapshot:
    """Return a thread's last checkpoint; where a graph within the graph is at work, that one's."""
    snapshot: StateSnapshot = await graph.aget_state(config, subgraphs=True)
    inner = (task.state for task in snapshot.tasks if isinstance(task.state, StateSnapshot))
    return next((each for each in inner if each.values), snapshot)


async def latest_values(graph: Any, config: Any) -> Mapping[str, Any]:
    """Return the values of a thread's last checkpoint."""
    return (await latest_state(graph, config)).values


def _plain_data() -> JsonPlusSerializer:
    return JsonPlusSerializer(allowed_msgpack_modules=None)


@asynccontextmanager
async def _in_file(home: Path) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    try:
        saver = await asyncio.to_thread(_file_saver, home / CHECKPOINT_FILE)
    except (OSError, sqlite3.Error):
        raise StorageError(f"SUPERBIZ_HOME: {CHECKPOINT_FILE} cannot be opened") from None
    try:
        yield saver
    finally:
        await asyncio.to_thread(saver.close)


def _file_saver(path: Path) -> FileSaver:
    _private_file(path)
    return FileSaver(path, BUSY_TIMEOUT_SECONDS, _plain_data())


def _private_file(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


@asynccontextmanager
async def _in_postgres(url: URL) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    try:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg import Error
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool, PoolTimeout
    except ImportError:
        raise StorageError(NEEDS_POSTGRES) from None

    address = url.set(drivername="postgresql").render_as_string(hide_password=False)
    options: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row, **patience(url)}
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        address,
        min_size=1,
        max_size=CONNECTIONS,
        kwargs=options,
        open=False,
        check=AsyncConnectionPool.check_connection,
        timeout=CONNECT_SECONDS,
    )
    # Its warnings tell the server's address; whoever gets no connection of it says so.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    try:
        await pool.open(wait=True, timeout=CONNECT_SECONDS)
        saver = AsyncPostgresSaver(pool, serde=_plain_data())
        # The library lets one caller at a time in, as over a single connection; of a pool each takes one of its own.
        saver.lock = cast("asyncio.Lock", asyncio.Semaphore(CONNECTIONS))
        await _make_tables(saver, pool)
    except (Error, PoolTimeout) as error:
        await pool.close()
        name = type(error).__name__
        raise StorageError(f"SUPERBIZ_DATABASE_URL: checkpoints cannot be opened ({name})") from None
    try:
        yield saver
    finally:
        await pool.close()


async def _make_tables(saver: Any, pool: AsyncConnectionPool[Any]) -> None:
    """Create or upgrade the saver's own tables, one process at a time.

    Whoever waits does not wait inside the database: the saver builds indexes concurrently, which would wait for it.
    """
    async with pool.connection() as connection:
        if await _made(connection, len(saver.MIGRATIONS)):
            return
        while not await _value(connection, f"SELECT pg_try_advisory_lock({_LOCK}) AS value"):  # noqa: ASYNC110
            await asyncio.sleep(_LOCK_PAUSE_SECONDS)
        try:
            await saver.setup()
        finally:
            await _value(connection, f"SELECT pg_advisory_unlock({_LOCK}) AS value")


async def _made(connection: AsyncConnection[Any], versions: int) -> bool:
    if await _value(connection, "SELECT to_regclass('checkpoint_migrations') AS value") is None:
        return False
    last = await _value(connection, "SELECT max(v) AS value FROM checkpoint_migrations")
    return last is not None and int(last) >= versions - 1


async def _value(connection: AsyncConnection[Any], query: Any) -> Any:
    row = await (await connection.execute(query)).fetchone()
    return row["value"] if row else None
