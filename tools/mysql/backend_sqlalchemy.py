"""MySQL and MariaDB behind the gate, through SQLAlchemy's async engine (R124, R126): one pinned session per query."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pymysql
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.mysql.backend import Query
from tools.mysql.grants import AccountRule, GrantReport
from tools.mysql.mysql_session import TIMEOUT_ERRORS, UNAVAILABLE_ERRORS, open_connection
from tools.mysql.server_session import ServerSession
from tools.mysql.values import QueryResult

_log = logging.getLogger(__name__)


class SqlAlchemyBackend:
    """One MySQL or MariaDB account. No connection outlives its query, so no session state can leak into the next."""

    def __init__(self, url: URL, rule: AccountRule | None = None) -> None:
        self._engine: AsyncEngine = create_async_engine(
            url, poolclass=NullPool, connect_args={"async_creator_fn": open_connection}, hide_parameters=True
        )
        self._rule = rule or AccountRule(database=url.database or "")
        self._admitted = self._rule.allow_privileged

    async def query(self, query: Query) -> QueryResult:
        """Run one accepted query (see `SqlBackend`).

        The account's grants are read before the first query; a privileged account is BACKEND_UNAVAILABLE until its
        grants are fewer or the catalogue says `allow_privileged = true`.
        """
        async with self._session(query.now, query.offset, query.seconds) as session:
            if not self._admitted:
                self._admit(await session.account(self._rule))
            return await session.read(query)

    async def account(self, seconds: float) -> GrantReport:
        """Return what the account may do beyond the listed tables. Raises ToolFailure as a query does."""
        async with self._session(None, timedelta(), seconds) as session:
            return await session.account(self._rule)

    async def close(self) -> None:
        """Dispose of the engine."""
        await self._engine.dispose()

    def _admit(self, report: GrantReport) -> None:
        if report.privileged:
            _log.warning("mysql: the account is a privileged one; `superbiz doctor` says why it is not used")
            raise ToolFailure(ToolErrorCode.BACKEND_UNAVAILABLE)
        self._admitted = True

    @asynccontextmanager
    async def _session(self, now: float | None, offset: timedelta, seconds: float) -> AsyncIterator[ServerSession]:
        """Give a pinned session, turn what goes wrong into codes, and leave nothing running (R120, R126)."""
        session = ServerSession(self._engine)
        finished = False
        try:
            async with asyncio.timeout(seconds):
                await session.open(now, offset)
                yield session
            finished = not session.rows_left
        except TimeoutError:
            code = ToolErrorCode.QUERY_TIMEOUT if session.thread_id else ToolErrorCode.BACKEND_UNAVAILABLE
            raise ToolFailure(code) from None
        except ToolFailure:
            finished = True  # the account was refused: nothing runs
            raise
        except (SQLAlchemyError, pymysql.MySQLError, OSError, ValueError) as error:
            raise ToolFailure(_code(error)) from None
        finally:
            await session.end(graceful=finished)


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
