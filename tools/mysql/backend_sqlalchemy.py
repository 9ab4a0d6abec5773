"""MySQL and MariaDB behind the gate, through SQLAlchemy's async engine (R124, R126): one pinned session per query."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import aiomysql
import pymysql
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.mysql.backend import Query
from tools.mysql.driver_text import to_driver_text
from tools.mysql.mysql_session import TIMEOUT_ERRORS, UNAVAILABLE_ERRORS, open_connection, session_statements
from tools.mysql.values import QueryResult, ResultBuilder

_log = logging.getLogger(__name__)
_KILL_SECONDS = 1.0
_background: set[asyncio.Task[None]] = set()


class SqlAlchemyBackend:
    """One MySQL or MariaDB account. No connection outlives its query, so no session state can leak into the next."""

    def __init__(self, url: URL) -> None:
        self._engine: AsyncEngine = create_async_engine(
            url, poolclass=NullPool, connect_args={"async_creator_fn": open_connection}, hide_parameters=True
        )

    async def query(self, query: Query) -> QueryResult:
        """Run one accepted query (see `SqlBackend`)."""
        session = _Session(self._engine)
        finished = False
        try:
            async with asyncio.timeout(query.seconds):
                result = await session.run(query)
            finished = not session.rows_left
            return result
        except TimeoutError:
            code = ToolErrorCode.QUERY_TIMEOUT if session.thread_id else ToolErrorCode.BACKEND_UNAVAILABLE
            raise ToolFailure(code) from None
        except (SQLAlchemyError, pymysql.MySQLError, OSError, UnicodeError) as error:
            raise ToolFailure(_code(error)) from None
        finally:
            await session.end(graceful=finished)

    async def close(self) -> None:
        """Dispose of the engine."""
        await self._engine.dispose()


class _Session:
    """One connection and its transaction. `thread_id` is the server's, None before the session was pinned."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._connection: AsyncConnection | None = None
        self._driver: aiomysql.Connection | None = None
        self.thread_id: int | None = None
        self.rows_left = False

    async def run(self, query: Query) -> QueryResult:
        """Pin the session, read the bounded result, roll back."""
        self._connection = await self._engine.connect()
        raw = await self._connection.get_raw_connection()
        self._driver = raw.driver_connection
        assert self._driver is not None
        is_mariadb = bool(getattr(self._engine.dialect, "is_mariadb", False))
        for statement in session_statements(is_mariadb, query.now, query.offset):
            await self._execute(statement)
        self.thread_id = self._driver.thread_id()
        result = await self._read(query)
        if not self.rows_left:
            await self._execute("ROLLBACK")
        return result

    async def _execute(self, statement: str) -> None:
        assert self._driver is not None
        await self._driver.query(statement)

    async def _read(self, query: Query) -> QueryResult:
        assert self._driver is not None
        # Unbuffered: a result of a million rows is left at the server after the last row that is wanted.
        cursor = await self._driver.cursor(aiomysql.SSCursor)
        if query.params:
            await cursor.execute(to_driver_text(query.sql), tuple(query.params))
        else:
            await cursor.execute(query.sql)
        builder = ResultBuilder([column[0] for column in cursor.description or ()])
        while (row := await cursor.fetchone()) is not None:
            if not builder.add(row):
                self.rows_left = True
                return builder.build()
        await cursor.close()
        return builder.build()

    async def end(self, *, graceful: bool) -> None:
        """Close the connection; without a graceful end also stop what it still runs (R120)."""
        task = asyncio.create_task(self._end(graceful))
        _background.add(task)
        task.add_done_callback(_background.discard)
        await asyncio.shield(task)

    async def _end(self, graceful: bool) -> None:
        try:
            async with asyncio.timeout(_KILL_SECONDS):
                if not graceful:
                    if self._driver is not None:
                        self._driver.close()
                    if self.thread_id is not None:
                        await self._kill(self.thread_id)
                if self._connection is not None:
                    if not graceful:
                        await self._connection.invalidate()
                    await self._connection.close()
        except Exception as error:  # the query's own outcome is already decided
            _log.warning("mysql: session did not end cleanly: %s", type(error).__name__)

    async def _kill(self, thread_id: int) -> None:
        async with self._engine.connect() as other:
            raw = await other.get_raw_connection()
            driver: Any = raw.driver_connection
            try:
                await driver.query(f"KILL QUERY {int(thread_id)}")
            except pymysql.MySQLError:
                return  # it ended by itself meanwhile


def _code(error: BaseException) -> ToolErrorCode:
    origin = error.orig if isinstance(error, SQLAlchemyError) and hasattr(error, "orig") else error
    arguments: Sequence[Any] = getattr(origin, "args", ())
    number = arguments[0] if arguments and isinstance(arguments[0], int) else 0
    _log.warning("mysql: query failed: %s %d", type(origin).__name__, number)
    if number in TIMEOUT_ERRORS:
        return ToolErrorCode.QUERY_TIMEOUT
    if number in UNAVAILABLE_ERRORS or isinstance(origin, OSError):
        return ToolErrorCode.BACKEND_UNAVAILABLE
    return ToolErrorCode.DB_ERROR
