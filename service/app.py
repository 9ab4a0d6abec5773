"""Assembly: from settings to a graph that can run. Everything embedded lives in `settings.home`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from graph.chat import ChatGraph, build_chat_graph
from graph.diagnosis import DiagnosisGraph, build_diagnosis_graph
from nodes.ports import ArchiveEntry, Resources
from service.canonical import open_canonical_over
from service.checkpoints import open_checkpoints
from service.home import KNOWLEDGE_FOLDER, open_engine
from service.models.choice import ConfiguredModels
from service.offline.client import OfflineClient
from service.recovery import tidy
from service.registry import Site, build_tools
from service.settings import Settings, SettingsError, require_secrets
from service.start_archive import start_archive
from service.store.clock import SystemClock
from service.store.ids import Uuid4Source
from service.store.journal import SqlJournal
from service.store.runs import SqlRunStore
from service.store.serving import SqlServing
from service.system_view import SystemView
from service.tracing import start_tracing
from tools.canonical.store import CanonicalStore
from tools.catalog import Catalog, load_catalog
from tools.database import Database
from tools.evidence_tool import EvidenceTool


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


@dataclass(frozen=True)
class App:
    """An assembled system. `runs` and `journal` are the resources' own, with their reading methods.

    Each of its graphs is compiled where it is first asked for: most commands need one of them.
    """

    parts: Parts
    resources: Resources
    runs: SqlRunStore
    journal: SqlJournal
    serving: SqlServing
    checkpointer: BaseCheckpointSaver[Any] | None

    @cached_property
    def graph(self) -> DiagnosisGraph:
        """The diagnosis."""
        return build_diagnosis_graph(self.resources, self.checkpointer)

    @cached_property
    def chat(self) -> ChatGraph:
        """The chat, with a diagnosis of its own inside."""
        return build_chat_graph(self.resources, self.checkpointer)

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
        async with open_runs(parts) as app, open_checkpoints(settings) as saver:
            app = replace(app, checkpointer=saver)
            await tidy(app)
            yield app
    finally:
        await parts.close()


@asynccontextmanager
async def open_runs(parts: Parts, *, hosted: bool = False) -> AsyncIterator[App]:
    """Open the database over ready parts; the graph has no checkpointer of its own (a `hosted` one gets the host's)."""
    engine = await open_engine(parts.settings)
    try:
        async with open_canonical_over(engine, parts.settings) as canonical:
            yield assemble(parts, engine, canonical, hosted=hosted)
    finally:
        await engine.dispose()


def assemble(parts: Parts, engine: Database, canonical: CanonicalStore, *, hosted: bool = False) -> App:
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
    return App(parts, resources, runs, journal, SqlServing(engine), None)
