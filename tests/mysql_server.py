"""The MySQL or MariaDB server of the tests: SUPERBIZ_TEST_MYSQL_URL, default a loopback server with an open root."""

from __future__ import annotations

import os
import uuid
import warnings
from typing import Any

import aiomysql
import pymysql
import pytest
from sqlalchemy.engine import URL, make_url

ROOT_URL = make_url(os.environ.get("SUPERBIZ_TEST_MYSQL_URL", "mysql+aiomysql://root@127.0.0.1:3306/test"))
PASSWORD = "pw-%-x"


Statement = str | tuple[str, list[tuple[Any, ...]]]
"""A statement, or one with the rows of values to run it with."""


async def as_root(*statements: Statement, database: str | None = None) -> list[tuple[Any, ...]]:
    """Run statements as the administrator; return the rows of the last one."""
    connection = await aiomysql.connect(
        host=ROOT_URL.host or "127.0.0.1", port=ROOT_URL.port or 3306, user=ROOT_URL.username or "root",
        password=ROOT_URL.password or "", db=database, connect_timeout=3, autocommit=True, charset="utf8mb4",
    )  # fmt: skip
    try:
        cursor = await connection.cursor()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pymysql.Warning)  # what IF EXISTS did not find
            for statement in statements:
                if isinstance(statement, str):
                    await cursor.execute(statement)
                else:
                    await cursor.executemany(*statement)
        return list(await cursor.fetchall())
    finally:
        connection.close()


async def require_server() -> None:
    """Skip the calling test where no server answers."""
    try:
        await as_root("SELECT 1")
    except (OSError, pymysql.MySQLError):
        pytest.skip("no MySQL or MariaDB server: set SUPERBIZ_TEST_MYSQL_URL")


def fresh_name(prefix: str) -> str:
    """Return a name for a database, an account or a role that no other test has."""
    return f"{prefix}_{uuid.uuid4().hex[:12]}"


def account_url(user: str, database: str) -> URL:
    """Return the URL of an account that `create_account` made."""
    return URL.create("mysql+aiomysql", user, PASSWORD, ROOT_URL.host, ROOT_URL.port, database)


async def create_account(user: str, *grants: str) -> None:
    """Create an account; each of `grants` is what stands between GRANT and TO."""
    await as_root(
        f"CREATE USER '{user}'@'%' IDENTIFIED BY '{PASSWORD}'", *(f"GRANT {grant} TO '{user}'@'%'" for grant in grants)
    )
