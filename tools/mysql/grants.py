"""What an account may do beyond reading the listed tables (R124): the lines of SHOW GRANTS judged. Pure.

Fail-closed: a privilege that is neither known to read nor known to change tables counts as administrative, so that one
which a later server invents is refused until somebody looked at it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tools.mysql.grant_lines import GrantLines, Privilege, read_grant_lines

SYSTEM_SCHEMAS = frozenset({"information_schema", "performance_schema", "sys"})
"""Schemas of a server about itself; a catalogue that lists one of their views opts into PROCESS."""

_READING = frozenset({"USAGE", "SELECT"})
_CHANGING = frozenset(
    {"INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "INDEX", "REFERENCES", "TRIGGER", "EVENT", "LOCK TABLES"}
    | {"CREATE TEMPORARY TABLES", "CREATE VIEW", "CREATE ROUTINE", "ALTER ROUTINE", "DELETE HISTORY"}
    | {"DELETE VERSIONING ROWS"}
)
_TELLING = frozenset(
    {"SHOW VIEW", "SHOW DATABASES", "SHOW_ROUTINE", "SHOW CREATE ROUTINE", "REPLICATION CLIENT"}
    | {"BINLOG MONITOR", "SLAVE MONITOR", "REPLICA MONITOR"}
)
_ALL = "ALL PRIVILEGES"
MAX_NAMED = 12
_MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class AccountRule:
    """What the catalogue says about an account: the tables it reads and whether it may be a privileged one.

    `database` is the one of the URL, to which a table without a schema belongs.
    """

    database: str = ""
    tables: frozenset[str] = frozenset()
    allow_privileged: bool = False

    @property
    def reads_system_views(self) -> bool:
        """True when a view of the server about itself is listed."""
        return any(name.split(".")[0].lower() in SYSTEM_SCHEMAS for name in self.tables if "." in name)

    @property
    def places(self) -> frozenset[tuple[str, str]]:
        """The listed tables as (database, table)."""
        pairs = (name.split(".", 1) if "." in name else (self.database, name) for name in self.tables)
        return frozenset((database, table) for database, table in pairs)


@dataclass(frozen=True, slots=True)
class GrantReport:
    """What an account may do beyond reading the listed tables, as short phrases for an operator.

    `dangerous`: administrative privileges. `extra`: changing tables, looking at definitions. `beyond`: what else can be
    read. `idle_roles`: roles that are granted but not active. `not_understood`: lines that could not be read.
    """

    dangerous: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    idle_roles: tuple[str, ...] = ()
    not_understood: int = 0

    @property
    def privileged(self) -> bool:
        """True when the account is used only if the catalogue says `allow_privileged = true`."""
        return bool(self.dangerous or self.not_understood)

    def warnings(self) -> tuple[str, ...]:
        """One bounded plain sentence per kind of finding; empty when the account only reads listed tables."""
        sentences = (
            ("has privileges of an administrator", self.dangerous),
            ("can do more than read", self.extra),
            ("can read more than the listed tables", self.beyond),
            ("could switch on more roles", self.idle_roles),
        )
        found = [f"{sentence}: {_named(phrases)}" for sentence, phrases in sentences if phrases]
        if self.not_understood:
            found.append(f"has {self.not_understood} grants in a form that is not known")
        return tuple(found)


def judge_grants(lines: Sequence[str], rule: AccountRule, active_roles: Sequence[str] = ()) -> GrantReport:
    """Judge the lines of SHOW GRANTS. Never raises.

    `active_roles` are those whose privileges the lines include without naming the role (MySQL).
    """
    read = read_grant_lines(lines)
    dangerous: dict[str, None] = {}
    extra: dict[str, None] = {}
    beyond: dict[str, None] = {}
    for privilege in read.privileges:
        if privilege.name in (_ALL, "SELECT") and not privilege.routine:
            beyond |= dict.fromkeys(_beyond(privilege, rule))
        if _is_administrative(privilege, rule):
            dangerous[_phrase(privilege)] = None
        elif privilege.name not in _READING and privilege.name != "PROCESS":
            extra[_phrase(privilege)] = None
    return GrantReport(tuple(dangerous), tuple(extra), tuple(beyond), _idle(read, active_roles), read.not_understood)


def _is_administrative(privilege: Privilege, rule: AccountRule) -> bool:
    if privilege.name == _ALL:
        return privilege.table is None  # on one table it is reading and changing; wider it includes EXECUTE
    if privilege.name == "PROCESS":
        return not rule.reads_system_views
    return privilege.name not in _READING | _CHANGING | _TELLING


def _beyond(privilege: Privilege, rule: AccountRule) -> Iterator[str]:
    if privilege.database is None:
        yield "every table of every database"
    elif privilege.table is None:
        yield f"every table of {_database(privilege.database)}"
    elif (privilege.database, privilege.table) not in rule.places:
        yield f"{privilege.database}.{privilege.table}"


def _database(pattern: str) -> str:
    literal = re.sub(r"\\([_%\\])", r"\1", pattern)
    if re.search(r"(?<!\\)(?:\\\\)*%", pattern):
        return f"every database like {pattern}"
    # An underscore without a backslash is a wildcard too, but hardly ever meant as one.
    return literal


def _phrase(privilege: Privilege) -> str:
    if privilege.database is None:
        return privilege.name
    place = _database(privilege.database) if privilege.table is None else f"{privilege.database}.{privilege.table}"
    columns = f" ({len(privilege.columns)} columns)" if privilege.columns else ""
    return f"{privilege.name}{columns} on {place}"


def _idle(read: GrantLines, active: Sequence[str]) -> tuple[str, ...]:
    return tuple(role for role in read.roles if role not in read.grantees and role not in active)


def _named(phrases: Sequence[str]) -> str:
    shown = [
        phrase if len(phrase) <= _MAX_NAME_CHARS * 3 else phrase[: _MAX_NAME_CHARS * 3] + "…" for phrase in phrases
    ]
    more = f" and {len(shown) - MAX_NAMED} more" if len(shown) > MAX_NAMED else ""
    return ", ".join(shown[:MAX_NAMED]) + more
