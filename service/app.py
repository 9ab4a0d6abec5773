"""Assembly: from settings to a graph that can run. Everything embedded lives in `settings.home`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from graph.chat import ChatGraph, build_chat_graph
from graph.diagnosis import DiagnosisGraph, build_diagnosis_graph
from nodes.ports import ArchiveEntry, Resources
from nodes.prompts import COMPONENTS, LANGUAGES, prompt
from service.canonical import open_canonical_over
from service.checkpoints import open_checkpoints
from service.contract import StorageError
from service.models.choice import ConfiguredModels
from service.offline.client import OfflineClient
from service.recovery import tidy
from service.registry import Site, build_tools
from service.settings import Settings, SettingsError, require_secrets
from service.store.clock import SystemClock
from service.store.engine import open_database
from service.store.ids import Uuid4Source
from service.store.journal import SqlJournal
from service.store.migrations.upgrade import DatabaseTooNew
from service.store.runs import SqlRunStore
from service.store.serving import SqlServing
from service.system_view import SystemView, catalog_view
from service.tracing import start_tracing
from tools.canonical.store import CanonicalStore
from tools.catalog import Catalog, load_catalog
from tools.database import Database
from tools.evidence_tool import EvidenceTool

KNOWLEDGE_FOLDER = "knowledge"


@dataclass(frozen=True, slots=True)
class Parts:
    """What settings and catalogue make before any database is opened; shared by all Runs of an event loop."""

    settings: Settings
    catalog: Catalog
    tools: Mapping[str, EvidenceTool]
    models: ConfiguredModels
    start_archive: tuple[ArchiveEntry, ...]

    async def close(self) -> None:
        """Close what the tools opened."""
        for tool in self.tools.values():
            close = getattr(tool, "close", None)
            if close is not None:
                await close()


@dataclass(frozen=True, slots=True)
class App:
    """An assembled system. `runs` and `journal` are the resources' own, with their reading methods."""

    parts: Parts
    resources: Resources
    runs: SqlRunStore
    journal: SqlJournal
    serving: SqlServing
    graph: DiagnosisGraph
    chat: ChatGraph
    checkpointer: BaseCheckpointSaver[Any] | None

    @property
    def settings(self) -> Settings:
        """The settings it was opened with."""
        return self.parts.settings

    @property
    def catalog(self) -> Catalog:
        """The catalogue it was opened with."""
        return self.parts.catalog


def build_parts(settings: Settings, *, catalog: Catalog | None = None, env: Mapping[str, str] = os.environ) -> Parts:
    """Read the catalogue and build tools and models. Blocking. Raises CatalogError, SettingsError.

    Refuses to start without the secrets that the configuration needs (R127).
    """
    start_tracing(settings.trace_fields)
    catalog = catalog or load_catalog(settings.catalog)
    require_secrets(settings, catalog, env)
    models = ConfiguredModels(settings, env, OfflineClient())
    try:
        models.client(None)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    tools = build_tools(Site(catalog, settings.home / KNOWLEDGE_FOLDER, env))
    return Parts(settings, catalog, tools, models, start_archive(catalog, tools))


@asynccontextmanager
async def open_app(
    settings: Settings,
    *,
    catalog: Catalog | None = None,
    env: Mapping[str, str] = os.environ,
) -> AsyncIterator[App]:
    """Open everything a command needs, checkpoints included. Raises CatalogError, SettingsError, StorageError."""
    parts = await asyncio.to_thread(build_parts, settings, catalog=catalog, env=env)
    try:
        async with open_over(parts) as app:
            await tidy(app)
            yield app
    finally:
        await parts.close()


@asynccontextmanager
async def open_over(parts: Parts) -> AsyncIterator[App]:
    """Open databases and checkpoints over ready parts. Raises StorageError."""
    async with _stores(parts.settings) as stores, open_checkpoints(parts.settings) as saver:
        yield assemble(parts, *stores, checkpointer=saver)


@asynccontextmanager
async def open_runs(parts: Parts, *, hosted: bool = False) -> AsyncIterator[App]:
    """Open the database over ready parts; the graph has no checkpointer of its own (a `hosted` one gets the host's)."""
    async with _stores(parts.settings) as stores:
        yield assemble(parts, *stores, hosted=hosted)


@asynccontextmanager
async def _stores(settings: Settings) -> AsyncIterator[tuple[Database, CanonicalStore]]:
    engine = await _open_engine(settings)
    try:
        async with open_canonical_over(engine, settings) as canonical:
            yield engine, canonical
    finally:
        await engine.dispose()


def assemble(
    parts: Parts,
    engine: Database,
    canonical: CanonicalStore,
    *,
    hosted: bool = False,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
) -> App:
    """Tie parts, database and canonical store together. Touches nothing yet."""
    settings, clock = parts.settings, SystemClock()
    runs = SqlRunStore(engine)
    journal = SqlJournal(engine, clock, archive_days=settings.archive_days)
    resources = Resources(
        models=parts.models,
        tools=parts.tools,
        canonical=canonical,
        runs=runs,
        journal=journal,
        clock=clock,
        ids=Uuid4Source(),
        language=settings.language,
        lease_seconds=settings.lease_seconds,
        run_timeout_seconds=settings.run_timeout_seconds,
        model_timeout_seconds=settings.model_timeout_seconds,
        on_host=hosted,
        host_serialises_threads=hosted,
        one_run_per_thread=hosted and settings.host_url is not None,
        default_context=settings.context(),
        start_archive=parts.start_archive,
        describe_system=SystemView(parts.catalog, settings.home / KNOWLEDGE_FOLDER),
    )
    graph, chat = build_diagnosis_graph(resources, checkpointer), build_chat_graph(resources, checkpointer)
    return App(parts, resources, runs, journal, SqlServing(engine), graph, chat, checkpointer)


def start_archive(catalog: Catalog, tools: Mapping[str, EvidenceTool]) -> tuple[ArchiveEntry, ...]:
    """What every Run archives of its surroundings (R67): what the model sees of catalogue and tools, prompts as hashes.

    Blocking: reads the prompt files, which are kept in memory from then on.
    """
    seen = {
        name: {"description": tool.description, "schema": tool.envelope.model_json_schema()}
        for name, tool in tools.items()
    }
    hashes = {
        f"{component}.{language}": sha256(prompt(component, language).encode()).hexdigest()
        for component in COMPONENTS
        for language in LANGUAGES
    }
    return (
        ArchiveEntry("settings", "catalog", catalog_view(catalog)),
        ArchiveEntry("settings", "tools", seen),
        ArchiveEntry("settings", "prompts", hashes),
    )


@asynccontextmanager
async def open_stores(settings: Settings) -> AsyncIterator[tuple[SqlRunStore, SqlJournal]]:
    """Open Runs and journal alone, for reading. Raises SettingsError, StorageError."""
    engine = await _open_engine(settings)
    try:
        yield SqlRunStore(engine), SqlJournal(engine, SystemClock(), archive_days=settings.archive_days)
    finally:
        await engine.dispose()


@asynccontextmanager
async def open_canonical(settings: Settings) -> AsyncIterator[CanonicalStore]:
    """Open the configured canonical store alone. Raises SettingsError, StorageError."""
    async with _stores(settings) as (_, canonical):
        yield canonical


async def _open_engine(settings: Settings) -> Database:
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
