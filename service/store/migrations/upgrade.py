"""Brings a database to the version of this code; safe when several processes start at once.

Alembic is loaded only where there is something to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

HEAD = "0003"
"""The version this code works with."""
VERSION_TABLE = "alembic_version"
TOO_NEW = (
    "SUPERBIZ_DATABASE_URL: the database was upgraded by a newer version of this program: "
    "use that version, or a copy of the database from before the upgrade"
)
_LOCK = 0x53_42_41_4D
"""Key of PostgreSQL's advisory lock: one process upgrades at a time."""


class DatabaseTooNew(Exception):
    """The database was upgraded by a later version of the program; the message says what to do."""


async def upgrade_database(engine: AsyncEngine) -> None:
    """Upgrade to HEAD in one transaction; what is there stays. Raises DatabaseTooNew, SQLAlchemyError."""
    if await _version(engine) == HEAD:
        return
    scripts = await asyncio.to_thread(_scripts)
    async with _alone(engine) as connection:
        await connection.run_sync(_upgrade, scripts)


async def _version(engine: AsyncEngine) -> str | None:
    try:
        async with engine.connect() as connection:
            return (await connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}"))).scalar()
    except DBAPIError:
        return None  # no such table; anything worse shows in the upgrade


@asynccontextmanager
async def _alone(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open a transaction that no other upgrade runs beside."""
    if engine.dialect.name != "sqlite":
        async with engine.begin() as connection:
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            yield connection
        return
    # The driver opens no transaction for DDL: it is opened by hand, and takes the file's write lock at once.
    async with engine.connect() as plain:
        connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text("BEGIN IMMEDIATE"))
        try:
            yield connection
        except BaseException:
            await connection.execute(text("ROLLBACK"))
            raise
        await connection.execute(text("COMMIT"))


@cache
def _scripts() -> ScriptDirectory:
    """Read the versions. Blocking."""
    from alembic.script import ScriptDirectory

    folder = Path(__file__).parent
    scripts = ScriptDirectory(str(folder), version_locations=[str(folder / "versions")])
    scripts.get_heads()
    return scripts


def _upgrade(connection: Connection, scripts: ScriptDirectory) -> None:
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.util import CommandError

    def steps(revision: Any, _context: Any) -> Any:
        return scripts._upgrade_revs("head", revision)

    with EnvironmentContext(Config(), scripts, fn=steps) as environment:
        environment.configure(connection=connection, version_table=VERSION_TABLE)
        try:
            for held in environment.get_context().get_current_heads():
                scripts.get_revision(held)
        except CommandError:
            raise DatabaseTooNew(TOO_NEW) from None
        environment.run_migrations()
