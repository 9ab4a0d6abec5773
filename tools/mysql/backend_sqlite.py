"""SQLite behind the gate, for the example and for tests (R123): read-only file, authorizer, time limit."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.mysql.backend import Query
from tools.mysql.sqlite_dialect import NotInSqlite, to_sqlite
from tools.mysql.sqlite_functions import install
from tools.mysql.values import QueryResult, ResultBuilder

_log = logging.getLogger(__name__)
_INSTRUCTIONS_PER_CHECK = 2_000
_MAX_VALUE_BYTES = 1_000_000
_ALLOWED_ACTIONS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION})


class SqliteBackend:
    """One SQLite file. Every query opens its own read-only connection in a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def query(self, query: Query) -> QueryResult:
        """Run one accepted query (see `SqlBackend`)."""
        cancelled = threading.Event()
        deadline = time.monotonic() + query.seconds
        try:
            return await asyncio.to_thread(
                self._query, query, lambda: cancelled.is_set() or time.monotonic() > deadline
            )
        finally:
            cancelled.set()

    async def account(self, seconds: float) -> None:
        """Return None: a file has no accounts."""

    async def close(self) -> None:
        """Nothing stays open between queries."""

    def _query(self, query: Query, expired: Callable[[], bool]) -> QueryResult:
        try:
            text = to_sqlite(query.sql)
        except NotInSqlite:
            _log.warning("sqlite: the text uses what SQLite does not have")
            raise ToolFailure(ToolErrorCode.DB_ERROR) from None
        connection = open_read_only(self._path)
        try:
            connection.set_progress_handler(lambda: int(expired()), _INSTRUCTIONS_PER_CHECK)
            install(connection, time.time() if query.now is None else query.now, query.offset)
            cursor = connection.execute(text, {f"p{index}": value for index, value in enumerate(query.params)})
            builder = ResultBuilder([column[0] for column in cursor.description or ()])
            for row in cursor:
                if not builder.add(row):
                    break
            return builder.build()
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            _log.warning("sqlite: query failed: %s", type(error).__name__)
            raise ToolFailure(ToolErrorCode.QUERY_TIMEOUT if expired() else ToolErrorCode.DB_ERROR) from None
        finally:
            connection.close()


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open an existing file read-only, with an authorizer that allows reads of tables. Raises ToolFailure."""
    try:
        connection = sqlite3.connect(path.resolve().as_uri() + "?mode=ro", uri=True, check_same_thread=False)
    except sqlite3.Error:
        _log.warning("sqlite: the file cannot be opened")
        raise ToolFailure(ToolErrorCode.BACKEND_UNAVAILABLE) from None
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.set_authorizer(_authorize)
    return connection


def _authorize(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    if action not in _ALLOWED_ACTIONS:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_READ and (first or "").lower().startswith(("sqlite_", "pragma_", "dbstat")):
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in ("load_extension", "readfile", "writefile"):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
