"""How a session with MySQL or MariaDB is opened, pinned and stopped (R124). The model's text never appears here."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import aiomysql
from pymysql.constants import CLIENT

from tools.mysql.driver_values import driver_conversions
from tools.mysql.values import MAX_ROWS

SQL_MODE = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
"""Pinned: no ANSI_QUOTES, NO_BACKSLASH_ESCAPES or PIPES_AS_CONCAT, on which the meaning of a text would depend."""

MAX_STATEMENT_SECONDS = 3
GROUP_CONCAT_MAX_LEN = 4_096

TIMEOUT_ERRORS = frozenset({1317, 1969, 3024})
"""Interrupted (KILL QUERY), MariaDB's max_statement_time, MySQL's max_execution_time."""

UNAVAILABLE_ERRORS = frozenset({1040, 1044, 1045, 1049, 1129, 1130, 1203, 1226, 2002, 2003, 2005, 2006, 2013, 2014})
"""Not connected, not admitted, or the connection broke."""


async def open_connection(*arguments: Any, **options: Any) -> aiomysql.Connection:
    """Open a driver connection that cannot send several statements or local files, whatever the URL says."""
    options |= {"local_infile": False, "autocommit": True, "charset": "utf8mb4"}
    options.pop("client_flag", None)
    options["conv"] = driver_conversions()
    options.setdefault("connect_timeout", MAX_STATEMENT_SECONDS)
    connection = aiomysql.Connection(*arguments, **options)
    # The driver switches multi-statements on by itself.
    connection.client_flag &= ~(CLIENT.MULTI_STATEMENTS | CLIENT.LOCAL_FILES)
    try:
        await connection._connect()
    except BaseException:
        connection.close()
        raise
    return connection


def is_mariadb(version: str) -> bool:
    """Say whether the version that a server greets with is MariaDB's, which begins with `5.5.5-` or names itself."""
    return "mariadb" in version.lower() or version.startswith("5.5.5-")


def session_statements(mariadb: bool, now: float | None, offset: timedelta) -> tuple[str, ...]:
    """Statements that pin a fresh session; the last one starts the read-only transaction."""
    limit = (
        f"max_statement_time={MAX_STATEMENT_SECONDS}"
        if mariadb
        else f"max_execution_time={MAX_STATEMENT_SECONDS * 1000}"
    )
    settings = [
        f"sql_mode='{SQL_MODE}'",
        "sql_quote_show_create=1",
        f"time_zone='{_zone(offset)}'",
        limit,
        f"sql_select_limit={MAX_ROWS + 1}",
        f"group_concat_max_len={GROUP_CONCAT_MAX_LEN}",
        f"lock_wait_timeout={MAX_STATEMENT_SECONDS}",
    ]
    if now is not None:
        settings.append(f"timestamp={now:.6f}")
    return (
        f"SET SESSION {', SESSION '.join(settings)}",
        # Without it MariaDB commits before a DDL statement and then runs it outside the read-only transaction.
        "SET SESSION TRANSACTION READ ONLY",
        "START TRANSACTION READ ONLY",
    )


def _zone(offset: timedelta) -> str:
    minutes = round(offset.total_seconds() / 60)
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
