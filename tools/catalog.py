"""The catalogue (`superbiz.toml`): what topics, datasources and knowledge folders exist, and the only place that knows
addresses. The model sees names and descriptions. Loading validates; errors name the key and what is allowed.
"""

from __future__ import annotations

import re
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError, model_validator

from tools.catalog_topic import TopicEntry as TopicEntry
from tools.catalog_types import Description, Entry, EnvName, Name, ZoneName

MAX_CATALOG_BYTES = 1024 * 1024
Identifier = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_$]{0,63}(\.[A-Za-z_][A-Za-z0-9_$]{0,63})?$")
]


class CatalogError(Exception):
    """The catalogue cannot be used; the message names the key and what is allowed, in one bounded line."""


class DatasourceEntry(Entry):
    """One logical datasource: `path` of an SQLite file, or `dsn_env` naming the variable that holds the SQLAlchemy URL.

    `timezone` is the zone of the times in its tables: NOW() is shown in it. `allow_privileged` uses an account that has
    privileges of an administrator; without it such an account is refused (R124).
    """

    name: Name
    description: Description = ""
    path: str | None = None
    dsn_env: EnvName | None = None
    timezone: ZoneName = "UTC"
    allow_privileged: bool = False
    tables: dict[Identifier, list[Annotated[str, StringConstraints(max_length=64)]]] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_source(self) -> DatasourceEntry:
        if (self.path is None) == (self.dsn_env is None):
            raise ValueError("needs exactly one of path (SQLite file) and dsn_env (variable with a URL)")
        if self.allow_privileged and self.dsn_env is None:
            raise ValueError("allow_privileged goes with dsn_env; an SQLite file has no accounts")
        return self


class KnowledgeEntry(Entry):
    """One folder of Markdown or text (`path`), or a vector store (`store`, "module:function" or "file.py:function").

    Thresholds turn a score that means the same for every query into a level (R54): coverage for a folder; for a
    store what `score` says: the form of cosine it returns, or `coverage` where its own scores only rank (BM25, hybrid). A
    store's thresholds have no default.
    """

    name: Name
    path: str | None = None
    store: (
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./\-]+:[A-Za-z_][A-Za-z0-9_]*$", max_length=264)] | None
    ) = None
    score: Literal["cosine", "cosine_distance", "coverage"] | None = None
    description: Description = ""
    high: float = Field(default=0.40, ge=0, le=1)
    reference: float = Field(default=0.26, ge=0, le=1)

    @model_validator(mode="after")
    def _one_kind(self) -> KnowledgeEntry:
        if (self.path is None) == (self.store is None):
            raise ValueError("needs exactly one of path (folder of Markdown or text) and store (vector store)")
        given = {"high", "reference"} <= self.model_fields_set and self.score is not None
        if self.store is not None and not given:
            raise ValueError(
                "store needs score (cosine, cosine_distance, coverage), high and reference: see docs/knowledge.md"
            )
        if self.store is None and self.score is not None:
            raise ValueError("score goes with store; a folder is scored by coverage")
        return self


class _CatalogFile(Entry):
    now: str | datetime | None = None
    topic: list[TopicEntry] = Field(default_factory=list)
    datasource: list[DatasourceEntry] = Field(default_factory=list)
    knowledge: list[KnowledgeEntry] = Field(default_factory=list)


class Catalog(Entry):
    """A validated catalogue. `now` is None (the clock), "latest", or seconds since the epoch; `base` anchors paths."""

    base: Path
    now: Literal["latest"] | float | None = None
    topics: tuple[TopicEntry, ...] = ()
    datasources: tuple[DatasourceEntry, ...] = ()
    knowledge: tuple[KnowledgeEntry, ...] = ()

    @property
    def folders(self) -> tuple[KnowledgeEntry, ...]:
        """Knowledge that the embedded index holds."""
        return tuple(entry for entry in self.knowledge if entry.path is not None)

    @property
    def stores(self) -> tuple[KnowledgeEntry, ...]:
        """Knowledge that lies in vector stores."""
        return tuple(entry for entry in self.knowledge if entry.store is not None)


def parse_time(text: str) -> float:
    """Parse an RFC 3339 time with zone into seconds since the epoch. Raises ValueError saying what is allowed."""
    try:
        value = datetime.fromisoformat(text.strip())
    except ValueError:
        value = None
    if value is None or value.tzinfo is None:
        raise ValueError("must be an RFC 3339 time with a zone, e.g. 2026-03-01T03:05:00+08:00")
    return value.timestamp()


def load_catalog(path: Path) -> Catalog:
    """Read and validate a catalogue file. Raises CatalogError."""
    try:
        raw = path.read_bytes()[: MAX_CATALOG_BYTES + 1]
    except FileNotFoundError:
        raise CatalogError(
            f"catalogue {path.name}: file not found; set SUPERBIZ_CATALOG or create superbiz.toml"
        ) from None
    except OSError:
        raise CatalogError(f"catalogue {path.name}: file cannot be read") from None
    if len(raw) > MAX_CATALOG_BYTES:
        raise CatalogError(f"catalogue {path.name}: larger than 1 MiB")
    try:
        data = tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise CatalogError(f"catalogue {path.name}: not UTF-8 text") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        place = re.search(r"\(at [^)]{1,40}\)", str(error))
        raise CatalogError(
            f"catalogue {path.name}: not valid TOML {place.group(0) if place else ''}".rstrip()
        ) from None
    return build_catalog(data, path.resolve().parent, path.name)


def build_catalog(data: dict[str, Any], base: Path, label: str = "superbiz.toml") -> Catalog:
    """Validate parsed TOML data. Raises CatalogError naming the first bad key."""
    try:
        parsed = _CatalogFile.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])[:120] or "catalogue"
        raise CatalogError(f"catalogue {label}: {key}: {first['msg'][:200]}") from None
    for kind, entries in (("topic", parsed.topic), ("datasource", parsed.datasource), ("knowledge", parsed.knowledge)):
        names = [entry.name.lower() for entry in entries]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated:
            raise CatalogError(f"catalogue {label}: {kind}.name: {repeated} is defined twice")
    return Catalog(
        base=base,
        now=_now(parsed.now, label),
        topics=tuple(parsed.topic),
        datasources=tuple(parsed.datasource),
        knowledge=tuple(parsed.knowledge),
    )


def _now(value: str | datetime | None, label: str) -> Literal["latest"] | float | None:
    if value is None:
        return None
    if value == "latest":
        return "latest"
    try:
        return parse_time(value.isoformat() if isinstance(value, datetime) else value)
    except ValueError as error:
        raise CatalogError(
            f'catalogue {label}: now: must be "latest" or {str(error).removeprefix("must be ")}'
        ) from None
