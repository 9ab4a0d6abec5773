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
from service.store.engine import open_database
from service.store.journal import SqlJournal
from service.store.migrations.upgrade import DatabaseTooNew
from service.store.runs import SqlRunStore
from tools.canonical.store import CanonicalStore
from tools.database import Database

KNOWLEDGE_FOLDER = "knowledge"
CHECKPOINT_FILE = "checkpoints.db"


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
    except DatabaseTooNew as error:
        raise StorageError(str(error)) from None
    except Exception as error:
        raise StorageError(f"SUPERBIZ_DATABASE_URL: the database cannot be opened ({type(error).__name__})") from None


def prepare_home(home: Path) -> None:
    """Create home and its knowledge folder, readable by their owner alone. Raises StorageError."""
    try:
        for folder in (home, home / KNOWLEDGE_FOLDER):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "cannot be written"
        raise StorageError(f"SUPERBIZ_HOME: folder {home.name}: {reason}") from None
