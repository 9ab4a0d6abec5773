"""The catalogue's datasources as the tool uses them; what is wrong with one shows without connecting (R126, R127)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from tools.catalog import Catalog, DatasourceEntry
from tools.mysql.gate import TableList
from tools.mysql.grants import AccountRule

_DRIVERS = frozenset({"mysql", "mariadb"})


@dataclass(frozen=True, slots=True)
class Datasource:
    """One logical datasource. `path` (SQLite) or `url` says where it is; `problem` says why neither can be used."""

    entry: DatasourceEntry
    tables: TableList
    path: Path | None = None
    url: URL | None = None
    problem: str | None = None

    @property
    def account_rule(self) -> AccountRule:
        """What the account of `url` is for (R124)."""
        database = (self.url.database if self.url is not None else None) or ""
        return AccountRule(database, self.tables.names, self.entry.allow_privileged)


def read_datasources(catalog: Catalog, env: Mapping[str, str]) -> dict[str, Datasource]:
    """Return the datasources by lower-cased name, in catalogue order. Never raises; never names a DSN's content."""
    return {entry.name.lower(): _datasource(entry, catalog.base, env) for entry in catalog.datasources}


def _datasource(entry: DatasourceEntry, base: Path, env: Mapping[str, str]) -> Datasource:
    names = frozenset(entry.tables)
    if entry.path is not None:
        path = base / entry.path
        problem = None if path.is_file() else "path: the SQLite file does not exist"
        return Datasource(entry, TableList(names, case_sensitive=False), path=path, problem=problem)
    tables = TableList(names)
    dsn = env.get(entry.dsn_env or "", "").strip()
    if not dsn:
        return Datasource(entry, tables, problem=f"dsn_env: {entry.dsn_env} is not set")
    url = parse_dsn(dsn)
    if url is None:
        wanted = "mysql+aiomysql://user:password@host:3306/database"
        return Datasource(entry, tables, problem=f"dsn_env: {entry.dsn_env} is not a URL like {wanted}")
    if find_spec("aiomysql") is None:
        missing = "the MySQL driver is not installed; install the extra [mysql]"
        return Datasource(entry, tables, problem=f"dsn_env: {missing}")
    return Datasource(entry, tables, url=url)


def parse_dsn(dsn: str) -> URL | None:
    """Return the URL with the async driver, or None when it is no MySQL or MariaDB URL with a host part."""
    try:
        url = make_url(dsn)
    except (ArgumentError, ValueError):
        return None
    name = url.drivername.split("+", 1)[0]
    if name not in _DRIVERS:
        return None
    return url.set(drivername=f"{name}+aiomysql")


def problems(catalog: Catalog, env: Mapping[str, str]) -> tuple[str, ...]:
    """Say what keeps datasources from answering, one bounded line each; connects to nothing."""
    found = read_datasources(catalog, env).values()
    return tuple(f"datasource {source.entry.name}: {source.problem}" for source in found if source.problem)
