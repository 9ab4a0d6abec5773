"""Every column type of a real server as JSON, system views, and what is left after a timeout or a cancel (R120, R124)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiomysql
import pytest
import pytest_asyncio

from tests.mysql_server import PASSWORD, ROOT_URL, account_url, as_root, create_account, fresh_name, require_server
from tools.catalog import build_catalog
from tools.contract import EvidenceStatus, ToolErrorCode
from tools.evidence_tool import CallContext, ToolFailure
from tools.mysql.backend import Query
from tools.mysql.backend_sqlalchemy import SqlAlchemyBackend
from tools.mysql.request import MysqlQueryRequest
from tools.mysql.tool import MysqlTool, build_mysql_tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEAVY = "SELECT COUNT(*) FROM numbers x, numbers y, numbers z WHERE x.n * y.n + z.n = -1"

TYPES: tuple[tuple[str, str, Any], ...] = (
    ("DECIMAL(65,30)", "-12345678901234567890123456789012345.000000000000000000000000000001",
     "-12345678901234567890123456789012345.000000000000000000000000000001"),
    ("DECIMAL(10,2)", "0.10", "0.10"),
    ("DOUBLE", "1e300", 1e300),
    ("FLOAT", "0.5", 0.5),
    ("BIGINT", "-9223372036854775808", -(2**63)),
    ("BIGINT UNSIGNED", "18446744073709551615", 2**64 - 1),
    ("TINYINT(1)", "1", 1),
    ("DATE", "'2026-02-28'", "2026-02-28"),
    ("DATE", "'0000-00-00'", "0000-00-00"),
    ("DATE", "'2026-00-00'", "2026-00-00"),
    ("DATETIME", "'0000-00-00 00:00:00'", "0000-00-00 00:00:00"),
    ("DATETIME", "'9999-12-31 23:59:59'", "9999-12-31 23:59:59"),
    ("DATETIME(3)", "'2026-03-01 03:05:00.120'", "2026-03-01 03:05:00.120"),
    ("DATETIME(6)", "'2026-03-01 03:05:00.000001'", "2026-03-01 03:05:00.000001"),
    ("TIMESTAMP NULL", "'2026-03-01 03:05:00'", "2026-03-01 11:05:00"),
    ("TIME", "'838:59:59'", "838:59:59"),
    ("TIME", "'-838:59:59'", "-838:59:59"),
    ("TIME(3)", "'-00:00:01.500'", "-00:00:01.500"),
    ("YEAR", "2026", 2026),
    ("BIT(1)", "b'1'", 1),
    ("BIT(64)", "b'1000000000000000000000000000000000000000000000000000000000000001'", 2**63 + 1),
    ("CHAR(5)", "'ab'", "ab"),
    ("VARCHAR(20)", "'中文 🙂 é'", "中文 🙂 é"),
    ("TEXT CHARACTER SET latin1", "'é'", "é"),
    ("LONGTEXT", "'a\\nb\\tc'", "a\nb\tc"),
    ("BINARY(3)", "X'00FF'", "hex:00ff00"),
    ("VARBINARY(8)", "X''", "hex:"),
    ("BLOB", "X'89504E47'", "hex:89504e47"),
    ("ENUM('a','b')", "'b'", "b"),
    ("SET('x','y','z')", "'z,x'", "x,z"),
    ("JSON", "'{\"a\": [1, null, \"中\"]}'", '{"a": [1, null, "中"]}'),
    ("POINT", "ST_GeomFromText('POINT(1.5 -2)')", "POINT(1.5 -2)"),
    ("GEOMETRY", "ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))', 4326)", "SRID=4326;POLYGON((0 0,1 0,1 1,0 0))"),
    ("LINESTRING", "ST_GeomFromText('LINESTRING(0 0,1 1)')", "LINESTRING(0 0,1 1)"),
)  # fmt: skip
ON_MARIADB: tuple[tuple[str, str, Any], ...] = (
    ("UUID", "'123e4567-e89b-12d3-a456-426655440000'", "123e4567-e89b-12d3-a456-426655440000"),
    ("INET6", "'::ffff:192.0.2.128'", "::ffff:192.0.2.128"),
)
VIEWS = {"information_schema.processlist": ["id", "user", "state", "info"], "information_schema.innodb_trx": ["trx_id"],
         "information_schema.tables": ["table_name"], "performance_schema.threads": ["name"]}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[tuple[str, str]]:
    """A database and the name of a reading account that may also see every session."""
    await require_server()
    database, user = fresh_name("superbiz"), fresh_name("u")
    columns = [*TYPES, *(ON_MARIADB if "MariaDB" in (await as_root("SELECT VERSION()"))[0][0] else ())]
    made = ", ".join(
        f"c{number} {kind} {'' if 'NULL' in kind else 'NULL'}" for number, (kind, _, _) in enumerate(columns)
    )
    try:
        await as_root(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        await as_root(
            "SET SESSION sql_mode = '', SESSION time_zone = '+00:00'", f"CREATE TABLE types (id INT, {made})",
            f"INSERT INTO types VALUES (1, {', '.join(value for _, value, _ in columns)})",
            f"INSERT INTO types VALUES (2, {', '.join('NULL' for _ in columns)})",
            "CREATE TABLE numbers (n INT)", ("INSERT INTO numbers VALUES (%s)", [(n,) for n in range(1_500)]),
            "CREATE TABLE locked (id INT PRIMARY KEY, v INT) ENGINE=InnoDB", "INSERT INTO locked VALUES (1, 1)",
            database=database,
        )  # fmt: skip
        await create_account(user, f"SELECT ON {database}.*", "PROCESS ON *.*", "SELECT ON performance_schema.threads")
        yield database, user
    finally:
        await as_root(f"DROP DATABASE IF EXISTS {database}", f"DROP USER IF EXISTS '{user}'@'%'")


def _tool(folder: Path, database: str, user: str, tables: dict[str, list[str]]) -> MysqlTool:
    source = {"name": "shop", "dsn_env": "SHOP_DSN", "timezone": "Asia/Shanghai", "tables": tables}
    dsn = account_url(user, database).render_as_string(hide_password=False)
    tool = build_mysql_tool(build_catalog({"datasource": [source]}, folder), {"SHOP_DSN": dsn})
    assert tool is not None
    return tool


async def _ask(tool: MysqlTool, sql: str) -> Any:
    request = MysqlQueryRequest(datasource="shop", sql=sql)
    assert tool.check(request) is None
    return await tool.run(request, CallContext(now=1_772_305_500.0, at_given=False, deadline_seconds=3.0))


async def test_r124_every_column_type_comes_out_without_loss(shop: tuple[str, str], tmp_path: Path) -> None:
    tool = _tool(tmp_path, *shop, {"types": [], "information_schema.processlist": []})
    for number, (kind, _, expected) in enumerate([*TYPES, *ON_MARIADB]):
        if (kind, expected) in [(one, value) for one, _, value in ON_MARIADB] and not await _has_column(
            shop[0], number
        ):
            continue
        outcome = await _ask(tool, f"SELECT c{number} AS v FROM types ORDER BY id")
        rows = outcome.agent_result["rows"]
        assert rows == [[expected], [None]], kind
        assert type(rows[0][0]) is type(expected), kind
        assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    await tool.close()


async def _has_column(database: str, number: int) -> bool:
    return bool(await as_root(f"SHOW COLUMNS FROM types LIKE 'c{number}'", database=database))


async def test_r124_what_comes_out_can_go_in_again(shop: tuple[str, str], tmp_path: Path) -> None:
    tool = _tool(tmp_path, *shop, {"types": [], "information_schema.processlist": []})
    times = [
        number
        for number, (kind, _, _) in enumerate(TYPES)
        if kind.split("(")[0] in ("DATE", "DATETIME", "TIME", "TIMESTAMP")
    ]
    for number in times:
        value = (await _ask(tool, f"SELECT c{number} FROM types WHERE id = 1")).agent_result["rows"][0][0]
        if "-00" not in value and not value.startswith("0000"):  # the pinned mode takes no zero dates
            assert (await _ask(tool, f"SELECT id FROM types WHERE c{number} = '{value}'")).agent_result["rows"] == [
                [1]
            ], value
    await tool.close()


async def test_r121_system_views_answer_only_where_the_catalogue_lists_them(
    shop: tuple[str, str], tmp_path: Path
) -> None:
    closed = _tool(tmp_path, *shop, {"numbers": ["n"]})
    for view in VIEWS:
        refusal = closed.check(MysqlQueryRequest(datasource="shop", sql=f"SELECT 1 FROM {view}"))
        assert refusal is not None
        assert refusal.rule == "table_not_allowed"
    with pytest.raises(ToolFailure) as caught:
        await _ask(closed, "SELECT 1 FROM numbers LIMIT 1")
    assert caught.value.code is ToolErrorCode.BACKEND_UNAVAILABLE  # PROCESS without a listed view
    await closed.close()
    opened = _tool(tmp_path, *shop, VIEWS)
    sessions = await _ask(
        opened, "SELECT user, COUNT(*) AS n FROM information_schema.processlist GROUP BY user ORDER BY n DESC"
    )
    assert shop[1] in [row[0] for row in sessions.agent_result["rows"]]
    tables = "SELECT table_name, table_rows, engine FROM information_schema.tables WHERE table_schema = '{}' ORDER BY 1"
    found = await _ask(opened, tables.format(shop[0]))
    assert [row[0] for row in found.agent_result["rows"]] == ["locked", "numbers", "types"]
    threads = await _ask(opened, "SELECT name, type FROM performance_schema.threads LIMIT 5")
    assert threads.evidence_status in (EvidenceStatus.EVIDENCE_FOUND, EvidenceStatus.NO_EVIDENCE)
    report = await opened.account("shop")
    assert report is not None
    assert not report.privileged
    await opened.close()


async def test_r121_a_transaction_that_holds_a_lock_is_found_through_system_views(
    shop: tuple[str, str], tmp_path: Path
) -> None:
    tool = _tool(tmp_path, *shop, VIEWS)
    holder = await aiomysql.connect(
        host=ROOT_URL.host or "127.0.0.1", port=ROOT_URL.port or 3306, user=ROOT_URL.username or "root",
        password=ROOT_URL.password or "", db=shop[0],
    )  # fmt: skip
    try:
        await holder.query("UPDATE locked SET v = 2 WHERE id = 1")
        outcome = await _ask(
            tool,
            "SELECT p.id, p.command, t.trx_state, t.trx_rows_modified FROM information_schema.innodb_trx t "
            f"JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id WHERE p.db = '{shop[0]}' "
            "AND t.trx_rows_modified > 0",
        )
        assert outcome.agent_result["rows"] == [[holder.thread_id(), "Sleep", "RUNNING", 1]]
    finally:
        await holder.rollback()
        holder.close()
        await tool.close()


async def _sessions(user: str) -> list[tuple[Any, ...]]:
    return await as_root(f"SELECT id, command, info FROM information_schema.processlist WHERE user = '{user}'")


async def _gone_after(user: str) -> float:
    """Seconds until the account has no session at all."""
    started = time.monotonic()
    while await _sessions(user):
        assert time.monotonic() - started < 5, await _sessions(user)
        await asyncio.sleep(0.01)
    return time.monotonic() - started


@pytest_asyncio.fixture(loop_scope="module")
async def backend(shop: tuple[str, str]) -> AsyncIterator[tuple[SqlAlchemyBackend, str]]:
    """A backend over an account of its own, so that its sessions can be counted."""
    user = fresh_name("u")
    await create_account(user, f"SELECT ON {shop[0]}.numbers")
    opened = SqlAlchemyBackend(account_url(user, shop[0]))
    yield opened, user
    await opened.close()
    await as_root(f"DROP USER '{user}'@'%'")


def _query(sql: str, seconds: float = 2.8) -> Query:
    return Query(sql, (), None, timedelta(), seconds)


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_r120_the_query_is_gone_within_a_second_and_its_connection_is_not_used_again(
    backend: tuple[SqlAlchemyBackend, str], how: str
) -> None:
    opened, user = backend
    seen = {(await opened.query(_query("SELECT CONNECTION_ID()"))).rows[0][0]}
    task = asyncio.create_task(opened.query(_query(HEAVY, 0.5 if how == "timeout" else 2.8)))
    while not (busy := [row[0] for row in await _sessions(user) if row[1] == "Query" and "numbers" in str(row[2])]):
        assert not task.done()
        await asyncio.sleep(0.02)
    if how == "cancel":
        task.cancel()
    with pytest.raises((ToolFailure, asyncio.CancelledError)):
        await task
    assert await _gone_after(user) < 1
    after = [(await opened.query(_query("SELECT CONNECTION_ID()"))).rows[0][0] for _ in range(2)]
    assert len({*seen, *busy, *after}) == 4
    assert await _gone_after(user) < 1


async def test_r120_many_cancelled_queries_leave_nothing(backend: tuple[SqlAlchemyBackend, str]) -> None:
    opened, user = backend
    tasks = [asyncio.create_task(opened.query(_query(HEAVY))) for _ in range(5)]
    for number, task in enumerate(tasks):
        await asyncio.sleep(0.02 * number)  # at every stage: connecting, pinning, running
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in done)
    assert await _gone_after(user) < 1


async def test_r126_a_query_that_waits_for_a_lock_on_the_table_times_out_too(
    backend: tuple[SqlAlchemyBackend, str], shop: tuple[str, str]
) -> None:
    opened, user = backend
    holder = await aiomysql.connect(
        host=ROOT_URL.host or "127.0.0.1", port=ROOT_URL.port or 3306, user=ROOT_URL.username or "root",
        password=ROOT_URL.password or "", db=shop[0],
    )  # fmt: skip
    try:
        await holder.query("LOCK TABLES numbers WRITE")
        with pytest.raises(ToolFailure) as caught:
            await opened.query(_query("SELECT COUNT(*) FROM numbers", 0.4))
        assert caught.value.code is ToolErrorCode.QUERY_TIMEOUT
        assert await _gone_after(user) < 1
    finally:
        holder.close()
    assert PASSWORD not in str(caught.value)
