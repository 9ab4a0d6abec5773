"""The database engine: an SQLite file by default, PostgreSQL by URL. Nothing here blocks the event loop."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from service.store.migrations.upgrade import upgrade_database
from tools.database import Database, FileDatabase

BUSY_TIMEOUT_SECONDS = 15.0
"""How long a connection waits for another writer of the same SQLite file."""

_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
_PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Of libpq, in seconds, the last one in milliseconds."""
_START_ATTEMPTS = 20
_START_PAUSE_SECONDS = 0.05


class DatabaseUrlError(Exception):
    """The database URL cannot be used; the message says what is allowed, never the URL."""


def sqlite_url(path: Path) -> str:
    """Return the URL of an SQLite file."""
    return URL.create("sqlite+aiosqlite", database=str(path)).render_as_string(hide_password=False)


def database_url(url: str) -> URL:
    """Parse a URL and give it the async driver. Raises DatabaseUrlError."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise DatabaseUrlError("SUPERBIZ_DATABASE_URL: not a database URL such as sqlite:///runs.db") from None
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None:
        raise DatabaseUrlError(f"SUPERBIZ_DATABASE_URL: allowed schemes are {', '.join(sorted(_DRIVERS))}")
    if driver.startswith("sqlite") and parsed.database in (None, "", ":memory:"):
        raise DatabaseUrlError("SUPERBIZ_DATABASE_URL: SQLite needs a file; Runs must outlive the process")
    return parsed.set(drivername=driver)


NEEDS_POSTGRES = "SUPERBIZ_DATABASE_URL: PostgreSQL needs the extra: superbizagent[postgres]"


async def open_database(url: str) -> Database:
    """Open the database, creating or upgrading what is missing or older. Safe when several processes start at once.

    The caller disposes of the engine, which belongs to the running event loop.
    Raises DatabaseUrlError, DatabaseTooNew, OSError (folder or file not writable), SQLAlchemyError.
    """
    engine = await asyncio.to_thread(create_engine, url)
    try:
        await prepare_database(engine)
    except BaseException:
        await engine.dispose()
        raise
    return engine


def create_engine(url: str) -> Database:
    """Build an engine that has not connected yet; blocks on the file system. Raises DatabaseUrlError, OSError.

    Parameters stay out of the engine's errors, so that no question or result reaches a log that way.
    """
    parsed = database_url(url)
    if not parsed.drivername.startswith("sqlite"):
        options: dict[str, Any] = {"hide_parameters": True, "connect_args": patience(parsed)}
        try:
            return Database(create_async_engine(parsed, pool_pre_ping=True, **options).sync_engine)
        except ImportError:
            raise DatabaseUrlError(NEEDS_POSTGRES) from None
    _prepare_file(Path(str(parsed.database)))
    options = {"hide_parameters": True, "connect_args": {"timeout": BUSY_TIMEOUT_SECONDS}}
    engine = create_async_engine(parsed, **options).sync_engine
    blocking = sqlalchemy.create_engine(parsed.set(drivername="sqlite"), **options)
    for each in (engine, blocking):
        event.listen(each, "connect", _set_pragmas)
    return FileDatabase(engine, blocking)


async def prepare_database(engine: Database) -> None:
    """Bring the tables to this code's version; another process may be busy with the same file.

    Raises DatabaseTooNew, SQLAlchemyError.
    """
    for attempt in range(1, _START_ATTEMPTS + 1):
        try:
            await upgrade_database(engine)
        except DBAPIError:
            if attempt == _START_ATTEMPTS:
                raise
            await asyncio.sleep(_START_PAUSE_SECONDS)
        else:
            return


def patience(url: URL) -> dict[str, int]:
    """Return what bounds the wait for a server that vanished without a word; what the URL says itself stays."""
    return {} if url.get_driver_name() == "asyncpg" else {n: v for n, v in _PATIENCE.items() if n not in url.query}


def _prepare_file(path: Path) -> None:
    """Create folder and file readable by their owner alone; SQLite gives its side files the same mode."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _set_pragmas(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
