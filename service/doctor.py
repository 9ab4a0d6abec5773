"""What is configured, what answers, what is missing: the findings of `superbiz doctor`. Shows no address and no secret.

What only some configurations have is imported where it is looked at: a check of a small one starts at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from nodes.contract import LANGUAGES
from service.canonical import check_canonical
from service.contract import StorageError
from service.home import CHECKPOINT_FILE, KNOWLEDGE_FOLDER, open_canonical
from service.registry import BUILDERS, Site
from service.settings import OFFLINE, Settings, SettingsError, missing_secrets
from tools.canonical.store import CanonicalStoreUnavailable
from tools.catalog import Catalog, CatalogError, DatasourceEntry, KnowledgeEntry, TopicEntry, load_catalog
from tools.envelope_protocol import check_input
from tools.evidence_tool import CallContext, EvidenceTool, ToolFailure
from tools.logs.endpoint import problem
from tools.logs.files import TopicUnavailableError, topic_files
from tools.rag import schema
from tools.rag.folder import KnowledgeError, knowledge_folder, list_folder

CONNECT_SECONDS = 3.0
MAX_TABLES = 10
AHEAD_SECONDS = 600.0
"""A topic's newest event may be so much ahead of this machine's clock."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `needed` says whether a diagnosis is worse off without it."""

    subject: str
    ok: bool
    text: str
    needed: bool = True

    @property
    def broken(self) -> bool:
        """True when something that is needed does not work."""
        return self.needed and not self.ok

    def as_json(self) -> dict[str, Any]:
        """JSON data."""
        return {"subject": self.subject, "ok": self.ok, "needed": self.needed, "text": self.text}


async def examine(settings: Settings, env: Mapping[str, str] = os.environ) -> list[Finding]:
    """Look at everything that is configured; one thing that fails does not hide the others."""
    findings = [_languages(settings)]
    try:
        catalog = await asyncio.to_thread(load_catalog, settings.catalog)
    except CatalogError as error:
        findings.append(Finding("catalogue", False, str(error)))
        catalog = Catalog(base=settings.catalog.parent)
    else:
        findings.append(_catalogue(catalog))
    findings.append(_secrets(settings, catalog, env))
    findings.append(await _model(settings, env))
    findings.append(await _database(settings))
    findings += await asyncio.to_thread(_checkpoints, settings)
    findings += await _redis(settings)
    site = Site(catalog, settings.home / KNOWLEDGE_FOLDER, env)
    for look in (_topics, _datasources, _knowledge):
        findings += await look(site)
    return findings


def _languages(settings: Settings) -> Finding:
    return Finding("languages", True, f"{settings.language} is configured; available: {', '.join(LANGUAGES)}")


def _catalogue(catalog: Catalog) -> Finding:
    counts = (
        f"{len(catalog.topics)} log topics, {len(catalog.datasources)} datasources, "
        f"{len(catalog.knowledge)} knowledge folders"
    )
    if not (catalog.topics or catalog.datasources or catalog.knowledge):
        return Finding("catalogue", False, f"{counts}: there is nothing to look into")
    return Finding("catalogue", True, counts)


def _secrets(settings: Settings, catalog: Catalog, env: Mapping[str, str]) -> Finding:
    missing = missing_secrets(settings, catalog, env)
    if missing:
        return Finding("secrets", False, f"not set: {', '.join(missing)}")
    return Finding("secrets", True, "all that this configuration needs are set")


async def _model(settings: Settings, env: Mapping[str, str]) -> Finding:
    if settings.model == OFFLINE:
        return Finding("model", True, f"{OFFLINE}: no key and no network needed")
    from service.models.choice import ConfiguredModels, model_settings
    from service.offline.client import OfflineClient

    try:
        client = await asyncio.to_thread(ConfiguredModels(settings, env, OfflineClient()).client, None)
    except ValueError as error:
        return Finding("model", False, str(error))
    if not settings.is_live:
        how = "no key and no network needed" if client.semantic_guard_is_lexical else "recorded answers"
        return Finding("model", True, f"{client.name}: {how}")
    base_url = model_settings(settings, env).base_url
    if base_url is None:
        return Finding("model", True, f"{client.name}: key is set; the provider's own endpoint was not tried")
    answers = await _answers(base_url)
    return Finding(
        "model", answers, f"{client.name}: key is set; endpoint {'answers' if answers else 'does not answer'}"
    )


async def _answers(url: str) -> bool:
    """Say whether something accepts connections there; nothing is asked of it."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _database(settings: Settings) -> Finding:
    where = "database of SUPERBIZ_DATABASE_URL" if settings.database_url else "SQLite file in the home folder"
    try:
        async with open_canonical(settings.model_copy(update={"redis_url": None})) as store:
            await check_canonical(store)
    except (SettingsError, StorageError, CanonicalStoreUnavailable) as error:
        return Finding("database", False, f"{where}: {error}")
    return Finding("database", True, f"{where}: can be written")


def _checkpoints(settings: Settings) -> list[Finding]:
    """Say whether the file of checkpoints is one; nothing where there is none yet."""
    path = settings.home / CHECKPOINT_FILE
    if not path.is_file():
        return []
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError:
        return [Finding("checkpoints", False, f"{CHECKPOINT_FILE} in the home folder cannot be read")]
    except sqlite3.DatabaseError:
        advice = "move it away: finished runs stay, only unfinished ones cannot go on"
        return [Finding("checkpoints", False, f"{CHECKPOINT_FILE} in the home folder is damaged; {advice}")]
    return [Finding("checkpoints", True, f"{CHECKPOINT_FILE} in the home folder: can be read")]


async def _redis(settings: Settings) -> list[Finding]:
    if settings.redis_url is None:
        return []
    where = "Redis of SUPERBIZ_REDIS_URL"
    try:
        async with open_canonical(settings) as store:
            await check_canonical(store)
    except StorageError:
        return [Finding("canonical store", False, f"{where}: not asked; the database comes first")]
    except (SettingsError, CanonicalStoreUnavailable) as error:
        return [Finding("canonical store", False, f"{where}: {error}")]
    return [Finding("canonical store", True, f"{where}: can be written")]


async def _topics(site: Site) -> list[Finding]:
    latest = Site(site.catalog.model_copy(update={"now": "latest"}), site.index_dir, site.env)
    try:
        tool = BUILDERS["logs"](latest)
    except CatalogError as error:
        return [Finding("topics", False, str(error))]
    if tool is None:
        return []
    asked = (_topic(site, tool, topic) for topic in site.catalog.topics)
    return [await finding for finding in asked]


async def _topic(site: Site, tool: EvidenceTool, topic: TopicEntry) -> Finding:
    if topic.backend == "files":
        return await _files_topic(site.catalog, tool, topic)
    subject, fault = f"topic {topic.name}", problem(topic, site.env)
    if fault is not None:
        return Finding(subject, False, fault)
    try:
        result = await _ask(tool, {"topic": topic.name, "query": "", "lookback_minutes": 1, "limit": 1})
    except ToolFailure as failure:
        return Finding(subject, False, f"{topic.backend} cannot be searched ({failure.code.value})")
    if not result["total"]:
        return Finding(subject, True, f"{topic.backend} answers, no event in the last days")
    text = f"{topic.backend} answers, newest event {result['to']}"
    if _is_future(result["to"]):
        return Finding(subject, False, f"{text}, which is in the future: is its clock right?", needed=False)
    return Finding(subject, True, text)


def _is_future(time_text: str | None) -> bool:
    return time_text is not None and datetime.fromisoformat(time_text).timestamp() > time.time() + AHEAD_SECONDS


async def _files_topic(catalog: Catalog, tool: EvidenceTool, topic: TopicEntry) -> Finding:
    subject = f"topic {topic.name}"
    try:
        files, more = await asyncio.to_thread(topic_files, catalog.base, topic.path or "")
    except TopicUnavailableError:
        return Finding(subject, False, "path: no such file or folder, no log file in it, or it may not be read")
    many = f"{len(files)}{'+' if more else ''} file{'s' * (len(files) != 1)}"
    try:
        result = await _ask(tool, {"topic": topic.name, "query": "", "lookback_minutes": 1, "limit": 1})
    except ToolFailure as failure:
        return Finding(subject, False, f"{many}, but it cannot be searched ({failure.code.value})")
    text = f"{many}, newest event {result['to'] or 'without a time'}"
    notes = list(result["notes"])
    if _is_future(result["to"]) and not any("timezone" in note for note in notes):
        notes.append(f'times in the future: is timezone = "{topic.timezone}" theirs?')
    return Finding(subject, False, "; ".join([text, *notes]), needed=False) if notes else Finding(subject, True, text)


async def _datasources(site: Site) -> list[Finding]:
    if not site.catalog.datasources:
        return []
    from tools.mysql.tool import problems

    known = {line.split(":", 1)[0]: line.split(": ", 1)[1] for line in problems(site.catalog, site.env)}
    tool = BUILDERS["mysql"](site)
    findings = []
    for source in site.catalog.datasources:
        subject = f"datasource {source.name}"
        if subject in known or tool is None:
            findings.append(Finding(subject, False, known.get(subject, "cannot be used")))
        else:
            account = await _account(tool, subject, source)
            if account is None or not account.broken:
                findings.append(await _datasource(tool, subject, source.name, list(source.tables)))
            findings += [account] if account is not None else []
    close = getattr(tool, "close", None)
    if close is not None:
        await close()
    return findings


async def _account(tool: EvidenceTool, subject: str, source: DatasourceEntry) -> Finding | None:
    """Say what the account may do beyond reading the listed tables (R124); None where nothing is to be said."""
    from tools.mysql.tool import MysqlTool

    try:
        report = await tool.account(source.name) if isinstance(tool, MysqlTool) else None
    except ToolFailure:
        return None  # the tables cannot be read either, which the next look says
    warnings = report.warnings() if report is not None else ()
    if report is None or not warnings:
        return None
    text = f"the account {'; '.join(warnings)}"
    if report.privileged and not source.allow_privileged:
        advice = "use one that may only SELECT (docs/mysql.md), or set allow_privileged = true in the catalogue"
        return Finding(f"{subject} account", False, f"not used: {text}; {advice}")
    return Finding(f"{subject} account", False, text, needed=False)


async def _datasource(tool: EvidenceTool, subject: str, name: str, tables: Sequence[str]) -> Finding:
    failed = []
    for table in tables[:MAX_TABLES]:
        quoted = ".".join(f"`{part}`" for part in table.split("."))
        try:
            await _ask(tool, {"datasource": name, "sql": f"SELECT 1 FROM {quoted} LIMIT 1", "params": []})
        except ToolFailure as failure:
            failed.append(f"{table} ({failure.code.value})")
            if failure.code.value != "DB_ERROR":
                break
    if failed:
        return Finding(subject, False, f"tables that cannot be read: {', '.join(failed)}")
    return Finding(subject, True, f"{len(tables)} tables, readable")


async def _knowledge(site: Site) -> list[Finding]:
    folders = [await asyncio.to_thread(_folder, site, entry) for entry in site.catalog.folders]
    return folders + [await _store(site, entry) for entry in site.catalog.stores]


async def _store(site: Site, entry: KnowledgeEntry) -> Finding:
    from service.vector_store import open_vector_store
    from tools.rag.backend_vector import store_hits

    subject = f"knowledge {entry.name}"
    try:
        hits = await store_hits(entry, open_vector_store(site.catalog, entry), entry.name, CONNECT_SECONDS)
    except CatalogError as error:
        return Finding(subject, False, str(error).removeprefix(f"{subject}: "))
    except ToolFailure as failure:
        return Finding(subject, False, f"the vector store does not answer: {failure.code.value}")
    return Finding(subject, bool(hits), "vector store, answers" if hits else "the vector store answers with nothing")


def _folder(site: Site, entry: KnowledgeEntry) -> Finding:
    subject, folder = f"knowledge {entry.name}", knowledge_folder(site.catalog, entry)
    try:
        listing = list_folder(entry.name, folder)
    except KnowledgeError as error:
        return Finding(subject, False, str(error).removeprefix(f"{subject}: "))
    text = f"{len(listing.files)} files, {_index_state(schema.index_file(site.index_dir, entry.name, folder))}"
    if listing.skipped:
        text += f", {len(listing.skipped)} files skipped (`superbiz index` says why)"
    return Finding(subject, bool(listing.files), text if listing.files else "no Markdown or text file in the folder")


def _index_state(path: Any) -> str:
    try:
        connection = schema.open_reader(path)
        if connection is None:
            return "not indexed yet: the first search does it, or `superbiz index`"
        try:
            return f"{connection.execute('SELECT count(*) FROM chunks').fetchone()[0]} passages indexed"
        finally:
            schema.close(connection)
    except sqlite3.Error:
        return "its index cannot be read: `superbiz index` builds it anew"


async def _ask(tool: EvidenceTool, business: dict[str, Any]) -> dict[str, Any]:
    """Make one call outside of any Run. Raises ToolFailure."""
    request = check_input(business, tool.envelope)
    context = CallContext(now=time.time(), at_given=False, deadline_seconds=tool.timeout_seconds)
    return (await tool.run(request, context)).agent_result
