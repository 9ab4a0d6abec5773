"""Brings a database to the version of this code; safe when several processes start at once.

Alembic is loaded only where there is something to do.
"""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from tools.database import Database, FileDatabase

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

HEAD = "0003"
"""The version this code works with."""
VERSION_TABLE = "alembic_version"
TOO_NEW = (
    "SUPERBIZ_DATABASE_URL: the database was upgraded by a newer version of this program: "
    "use that version, or a copy of the database from before the upgrade"
)
_VERSION = text(f"SELECT version_num FROM {VERSION_TABLE}")
_LOCK = 0x53_42_41_4D
"""Key of PostgreSQL's advisory lock: one process upgrades at a time."""


class DatabaseTooNew(Exception):
    """The database was upgraded by a later version of the program; the message says what to do."""


async def upgrade_database(database: Database) -> None:
    """Upgrade to HEAD in one transaction; what is there stays. Raises DatabaseTooNew, SQLAlchemyError."""
    if isinstance(database, FileDatabase):
        await database.by_hand(_upgrade_file)
    elif await _version(database) != HEAD:
        scripts = await asyncio.to_thread(_scripts)
        async with database.begin() as connection:
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            await connection.run_sync(_upgrade, scripts)


async def _version(database: Database) -> str | None:
    try:
        async with database.connect() as connection:
            return (await connection.execute(_VERSION)).scalar()
    except DBAPIError:
        return None  # no such table; anything worse shows in the upgrade


def _upgrade_file(connection: Connection) -> None:
    # Write-ahead logging stays with the file.
    if connection.execute(text("PRAGMA journal_mode")).scalar_one() != "wal":
        connection.execute(text("PRAGMA journal_mode=WAL"))
    try:
        if connection.execute(_VERSION).scalar() == HEAD:
            return
    except DBAPIError:
        pass  # no such table; anything worse shows in the upgrade
    scripts = _scripts()
    # The driver opens no transaction for DDL: it is opened by hand, and takes the file's write lock at once.
    connection.execute(text("BEGIN IMMEDIATE"))
    try:
        _upgrade(connection, scripts)
    except BaseException:
        connection.execute(text("ROLLBACK"))
        raise
    connection.execute(text("COMMIT"))


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
