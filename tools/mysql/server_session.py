"""One connection to MySQL or MariaDB: pinned, asked, read, and stopped whatever happens (R120, R124)."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import aiomysql
import pymysql
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from tools.mysql.account import read_account
from tools.mysql.backend import Query
from tools.mysql.driver_text import to_driver_text
from tools.mysql.grants import AccountRule, GrantReport
from tools.mysql.mysql_session import is_mariadb, session_statements
from tools.mysql.values import QueryResult, ResultBuilder

_log = logging.getLogger(__name__)
_KILL_SECONDS = 1.0
_background: set[asyncio.Task[None]] = set()


class ServerSession:
    """One connection and its transaction. `thread_id` is the server's, None before the session was pinned.

    `rows_left` is True when the server holds more rows of the last result than were wanted.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._connection: AsyncConnection | None = None
        self._driver: aiomysql.Connection | None = None
        self.thread_id: int | None = None
        self.rows_left = False

    async def open(self, now: float | None, offset: timedelta) -> None:
        """Connect and pin the session."""
        self._connection = await self._engine.connect()
        raw = await self._connection.get_raw_connection()
        self._driver = raw.driver_connection
        for statement in session_statements(self._is_mariadb(), now, offset):
            await self._execute(statement)
        assert self._driver is not None
        self.thread_id = self._driver.thread_id()

    async def account(self, rule: AccountRule) -> GrantReport:
        """Ask what the account may do."""
        return await read_account(self._ask, is_mariadb=self._is_mariadb(), rule=rule)

    async def read(self, query: Query) -> QueryResult:
        """Read the bounded result, then roll back."""
        result = await self._read(query)
        if not self.rows_left:
            await self._execute("ROLLBACK")
        return result

    def _is_mariadb(self) -> bool:
        assert self._driver is not None
        return is_mariadb(str(self._driver.get_server_info()))

    async def _execute(self, statement: str) -> None:
        assert self._driver is not None
        await self._driver.query(statement)

    async def _ask(self, statement: str) -> list[str]:
        assert self._driver is not None
        cursor = await self._driver.cursor()
        await cursor.execute(statement)
        rows = await cursor.fetchall()
        await cursor.close()
        return [str(row[0]) for row in rows]

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
