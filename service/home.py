"""The home folder and the stores in it, without graph and models: what reading, indexing and checking commands open."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from service.canonical import open_canonical_over
from service.contract import StorageError
from service.settings import Settings
from service.store.clock import SystemClock
from service.store.engine import DatabaseUrlError, open_database
from service.store.journal import SqlJournal
from service.store.migrations.upgrade import DatabaseTooNew
from service.store.runs import SqlRunStore
from tools.canonical.store import CanonicalStore
from tools.database import Database

KNOWLEDGE_FOLDER = "knowledge"
CHECKPOINT_FILE = "checkpoints.db"


_REASONS = {
    "does not exist": "there is no such database or account",
    "authentication failed": "the account is refused",
    "no password supplied": "the account is refused",
    "permission denied": "the account may not use it",
    "connection refused": "nothing listens at its address",
    "resolve host": "its host name is not known",
    "name or service not known": "its host name is not known",
    "nodename nor servname": "its host name is not known",
    "timeout": "its server does not answer",
    "too many": "its server takes no more connections",
}


@asynccontextmanager
async def open_stores(settings: Settings) -> AsyncIterator[tuple[SqlRunStore, SqlJournal]]:
    """Open Runs and journal alone, for reading. Raises SettingsError, StorageError."""
    engine = await open_engine(settings)
    try:
        yield SqlRunStore(engine), SqlJournal(engine, SystemClock(), archive_days=settings.archive_days)
    finally:
        await engine.dispose()


@asynccontextmanager
async def open_canonical(settings: Settings) -> AsyncIterator[CanonicalStore]:
    """Open the configured canonical store alone. Raises SettingsError, StorageError."""
    engine = await open_engine(settings)
    try:
        async with open_canonical_over(engine, settings) as canonical:
            yield canonical
    finally:
        await engine.dispose()


async def open_engine(settings: Settings) -> Database:
    """Open the configured database. Raises StorageError."""
    await asyncio.to_thread(prepare_home, settings.home)
    try:
        return await open_database(settings.resolved_database_url())
    except (DatabaseTooNew, DatabaseUrlError) as error:
        raise StorageError(str(error)) from None
    except Exception as error:
        raise StorageError(f"SUPERBIZ_DATABASE_URL: the database cannot be opened ({_why(error)})") from None


def _why(error: Exception) -> str:
    """Name what keeps a database closed: a driver tells only by its text, which names addresses and accounts. Pure."""
    said = str(error).lower()
    return next((why for word, why in _REASONS.items() if word in said), type(error).__name__)


def prepare_home(home: Path) -> None:
    """Create home and its knowledge folder, readable by their owner alone. Raises StorageError."""
    try:
        for folder in (home, home / KNOWLEDGE_FOLDER):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "cannot be written"
        raise StorageError(f"SUPERBIZ_HOME: folder {home.name}: {reason}") from None
