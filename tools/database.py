"""A database whose transactions are functions: each takes one hop to a thread where its driver blocks, not one a statement."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")

Work = Callable[[Connection], T]
"""What a transaction does; it runs outside the event loop and must touch nothing but its connection."""


def is_out_of_reach(error: BaseException) -> bool:
    """Say whether an error of rows or checkpoints means that the database's server cannot be reached just now.

    A file is always within reach: what it refuses now, it will refuse again. Drivers name their errors as PEP 249 does.
    """
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or (error.orig is not None and is_out_of_reach(error.orig))
    if isinstance(error, ConnectionError | PoolTimeout):
        return True
    kinds = [kind for kind in type(error).__mro__ if kind.__name__ in ("OperationalError", "InterfaceError")]
    return any(not kind.__module__.startswith("sqlite3") for kind in kinds)


@contextmanager
def _without_text() -> Iterator[None]:
    """Let errors out without the driver's text: it names servers and users, and a host shows the text of what a Run died of."""
    try:
        yield
    except DBAPIError as error:
        told = Exception(type(error.orig).__name__)
        raise type(error)(None, None, told, connection_invalidated=is_out_of_reach(error)) from None


class Database(AsyncEngine):
    """An engine with an async driver (PostgreSQL)."""

    async def read(self, work: Work[T]) -> T:
        """Run `work` and keep nothing that it changed. Raises SQLAlchemyError."""
        with _without_text():
            async with self.connect() as connection:
                return await connection.run_sync(work)

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction and commit it. Raises SQLAlchemyError."""
        with _without_text():
            async with self.begin() as connection:
                return await connection.run_sync(work)


class FileDatabase(Database):
    """An SQLite file: one thread reads and one writes, so that a read never waits for another process's write.

    A transaction that has begun when its caller is cancelled is carried to its end. Once disposed of it stays closed.
    """

    def __init__(self, sync_engine: Engine, blocking: Engine) -> None:
        """`blocking` is an engine over the same file whose driver blocks."""
        super().__init__(sync_engine)
        self._blocking = blocking
        self._reader = ThreadPoolExecutor(1, "database-reader")
        self._writer = ThreadPoolExecutor(1, "database-writer")

    async def read(self, work: Work[T]) -> T:
        """See Database."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._read, work)

    async def write(self, work: Work[T]) -> T:
        """See Database."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._write, work)

    async def by_hand(self, work: Work[T]) -> T:
        """Run `work`, which opens and ends its transactions itself. Raises SQLAlchemyError."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._by_hand, work)

    async def dispose(self, close: bool = True) -> None:
        """Close every connection once what has begun is done."""
        await super().dispose(close)
        await asyncio.to_thread(self._close)

    def _read(self, work: Work[T]) -> T:
        with _without_text(), self._blocking.connect() as connection:
            return work(connection)

    def _write(self, work: Work[T]) -> T:
        with _without_text(), self._blocking.begin() as connection:
            return work(connection)

    def _by_hand(self, work: Work[T]) -> T:
        with _without_text(), self._blocking.connect() as connection:
            return work(connection.execution_options(isolation_level="AUTOCOMMIT"))

    def _close(self) -> None:
        self._reader.shutdown()
        self._writer.shutdown()
        self._blocking.dispose()
