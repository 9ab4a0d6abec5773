"""The MySQL tool on a real server (R124, R126, R120). Found by SUPERBIZ_TEST_MYSQL_URL, default a loopback server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy.engine import URL

from tests.mysql_backends import COLUMNS
from tests.mysql_server import account_url, as_root, create_account, fresh_name, require_server
from tools.catalog import build_catalog
from tools.contract import EvidenceStatus, ToolErrorCode
from tools.evidence_tool import CallContext, ToolFailure
from tools.mysql.backend import Query
from tools.mysql.backend_sqlalchemy import SqlAlchemyBackend
from tools.mysql.grants import AccountRule
from tools.mysql.request import MysqlQueryRequest
from tools.mysql.tool import MysqlTool, build_mysql_tool


@dataclass(frozen=True)
class Server:
    """A database of this test's own and two accounts: one may only read, one may write."""

    database: str
    reader: URL
    writer: URL


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Server]:
    await require_server()
    name = fresh_name("superbiz")
    reader, writer = f"r_{name[-12:]}", f"w_{name[-12:]}"
    try:
        await as_root(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        await as_root(
            f"CREATE TABLE orders ({COLUMNS})",
            "INSERT INTO orders (id, status, amount) VALUES (1, 'PAID', 10.50), (2, 'FAILED', 0.10), (3, 'PAID', 7)",
            "CREATE TABLE numbers (n INT)",
            "INSERT INTO numbers SELECT seq FROM seq_1_to_3000",
            "CREATE TABLE secret (id INT)",
            database=name,
        )
        await create_account(reader, f"SELECT ON {name}.*")
        await create_account(writer, f"ALL PRIVILEGES ON {name}.*")
        yield Server(name, account_url(reader, name), account_url(writer, name))
    finally:
        await as_root(f"DROP DATABASE IF EXISTS {name}", f"DROP USER IF EXISTS '{reader}'@'%', '{writer}'@'%'")


pytestmark = pytest.mark.asyncio(loop_scope="module")


def _query(sql: str, *params: Any, now: float | None = None, seconds: float = 2.8) -> Query:
    return Query(sql, params, now, timedelta(), seconds)


async def _running(server: Server) -> list[tuple[Any, ...]]:
    return await as_root(
        f"SELECT id, info FROM information_schema.processlist WHERE db = '{server.database}' AND command = 'Query'"
    )


async def _settles(server: Server) -> bool:
    for _ in range(30):
        if not await _running(server):
            return True
        await asyncio.sleep(0.05)
    return False


HEAVY = "SELECT COUNT(*) FROM numbers x, numbers y, numbers z WHERE x.n * y.n + z.n = -1"


async def test_r126_a_query_over_its_time_ends_as_query_timeout_and_leaves_nothing_running(server: Server) -> None:
    backend = SqlAlchemyBackend(server.reader)
    started = time.monotonic()
    with pytest.raises(ToolFailure) as caught:
        await backend.query(_query(HEAVY, seconds=0.5))
    assert caught.value.code is ToolErrorCode.QUERY_TIMEOUT
    assert time.monotonic() - started < 2
    assert await _settles(server)
    await backend.close()


async def test_r124_the_server_itself_stops_a_query_after_three_seconds(server: Server) -> None:
    backend = SqlAlchemyBackend(server.reader)
    started = time.monotonic()
    with pytest.raises(ToolFailure) as caught:
        await backend.query(_query(HEAVY, seconds=30))
    assert caught.value.code is ToolErrorCode.QUERY_TIMEOUT
    assert 2.5 < time.monotonic() - started < 6
    assert await _settles(server)
    await backend.close()


async def test_r120_a_cancelled_query_is_killed_on_a_second_connection(server: Server) -> None:
    backend = SqlAlchemyBackend(server.reader)
    task = asyncio.create_task(backend.query(_query(HEAVY)))
    for _ in range(100):
        if any("numbers x" in str(row[1]) for row in await _running(server)):
            break
        await asyncio.sleep(0.02)
    else:
        pytest.fail("the query never started")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await _settles(server)
    await backend.close()


async def test_r124_a_writing_account_cannot_write_either(server: Server) -> None:
    backend = SqlAlchemyBackend(server.writer, AccountRule(allow_privileged=True))
    for text in (
        "INSERT INTO orders (id) VALUES (9)",
        "UPDATE orders SET id = 9",
        "DELETE FROM orders",
        "TRUNCATE orders",
        "DROP TABLE orders",
        "CREATE TABLE fresh (id INT)",
        "TRUNCATE numbers",
    ):
        before = await as_root("SELECT COUNT(*), SUM(id) FROM orders", database=server.database)
        with pytest.raises(ToolFailure) as caught:
            await backend.query(_query(text))  # past the gate, on purpose
        assert caught.value.code is ToolErrorCode.DB_ERROR
        assert await as_root("SELECT COUNT(*), SUM(id) FROM orders", database=server.database) == before
    await backend.close()


async def test_r124_several_statements_and_local_files_are_off(server: Server) -> None:
    url = server.writer.update_query_dict({"local_infile": "1", "client_flag": "65536"})
    backend = SqlAlchemyBackend(url, AccountRule(allow_privileged=True))
    for text in ("SELECT 1; SELECT 2", "SELECT 1; COMMIT", "LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE orders"):
        with pytest.raises(ToolFailure) as caught:
            await backend.query(_query(text))
        assert caught.value.code is ToolErrorCode.DB_ERROR
    await backend.close()


async def test_r124_the_session_is_pinned(server: Server) -> None:
    backend = SqlAlchemyBackend(server.reader)
    result = await backend.query(_query(
        "SELECT @@sql_mode, @@time_zone, @@sql_select_limit, @@tx_read_only, @@local_infile, @@autocommit, @@in_transaction, "
        "CAST(NOW() AS CHAR), @@max_statement_time, @@character_set_client", now=1_772_305_500.0,
    ))  # fmt: skip
    mode, zone, limit, _, _, _, in_transaction, now, seconds, charset = result.rows[0]
    assert "ONLY_FULL_GROUP_BY" in str(mode)
    assert not {"ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "PIPES_AS_CONCAT"} & set(str(mode).split(","))
    assert (zone, limit, in_transaction, charset) == ("+00:00", 51, 1, "utf8mb4")
    assert now == "2026-02-28 19:05:00"
    assert float(str(seconds)) == 3
    await backend.close()


async def test_r124_rows_are_bounded_and_nothing_is_left_running(server: Server) -> None:
    backend = SqlAlchemyBackend(server.reader)
    for text in ("SELECT n FROM numbers ORDER BY n", "SELECT n FROM numbers ORDER BY n LIMIT 1000000",
                 "SELECT x.n FROM numbers x, numbers y LIMIT 1000000"):  # fmt: skip
        result = await backend.query(_query(text))
        assert (len(result.rows), result.truncated) == (50, True)
    exact = await backend.query(_query("SELECT n FROM numbers ORDER BY n LIMIT 50"))
    assert (len(exact.rows), exact.truncated) == (50, False)
    assert await _settles(server)
    await backend.close()


async def test_r124_cells_and_result_are_bounded(server: Server) -> None:
    backend = SqlAlchemyBackend(server.reader)
    wide = await backend.query(_query("SELECT GROUP_CONCAT(n), 1 FROM numbers"))
    assert len(str(wide.rows[0][0])) == 2_048
    assert wide.truncated
    big = ", ".join(["(SELECT GROUP_CONCAT(n) FROM numbers)"] * 20)
    many = await backend.query(_query(f"SELECT {big} FROM numbers LIMIT 40"))
    assert 1 <= len(many.rows) < 40
    assert sum(len(str(cell)) for row in many.rows for cell in row) <= 64 * 1024
    await backend.close()


async def test_values_keep_their_meaning(server: Server) -> None:
    backend = SqlAlchemyBackend(server.reader)
    result = await backend.query(_query(
        "SELECT CAST(12345678901234567890.123456789 AS DECIMAL(40,9)), CAST('2026-03-01 03:05:00.25' AS DATETIME(2)), "
        "CAST('2026-03-01' AS DATE), SEC_TO_TIME(360000), TIMEDIFF('00:00:01', '30:00:00'), UNHEX('00FF10'), NULL, TRUE, "
        "18446744073709551615, 1.5e0, '中文 🙂', CAST(-1 AS UNSIGNED), YEAR('2026-01-01')"
    ))  # fmt: skip
    assert result.rows[0] == (
        "12345678901234567890.123456789", "2026-03-01 03:05:00.25", "2026-03-01", "100:00:00", "-29:59:59", "hex:00ff10",
        None, 1, 18446744073709551615, 1.5, "中文 🙂", 18446744073709551615, 2026,
    )  # fmt: skip
    await backend.close()


async def test_zero_dates_and_bits_keep_their_meaning(server: Server) -> None:
    await as_root(
        "SET SESSION sql_mode = ''", "CREATE TABLE odd (d DATE, t DATETIME, b BIT(9), s SET('x','y'), j JSON)",
        "INSERT INTO odd VALUES ('0000-00-00', '2026-00-00 00:00:00', b'100000001', 'x,y', '{\"a\": 1}')",
        database=server.database,
    )  # fmt: skip
    backend = SqlAlchemyBackend(server.reader)
    result = await backend.query(_query("SELECT d, t, b, s, j FROM odd"))
    assert result.rows == (("0000-00-00", "2026-00-00 00:00:00", 257, "x,y", '{"a": 1}'),)
    await backend.close()


async def test_r125_parameters_reach_the_server_as_they_are(server: Server) -> None:
    backend = SqlAlchemyBackend(server.reader)
    values = ["it's \\ \" ? %s % 100%% ; -- 中", 2**63, -(2**63), 1.25, True, None, "", "\\' OR 1=1 -- "]
    columns = ", ".join("?" for _ in values)
    result = await backend.query(_query(f"SELECT {columns}, '100%', '?', 7 % 4, '%s' FROM orders LIMIT 1", *values))
    assert list(result.rows[0]) == [*values[:4], 1, *values[5:], "100%", "?", 3, "%s"]
    plain = await backend.query(
        _query("SELECT '100%', '?', '%s', 7 % 4, `status` FROM orders WHERE status LIKE 'PA%' LIMIT 1")
    )
    assert plain.rows == (("100%", "?", "%s", 3, "PAID"),)
    await backend.close()


async def test_r126_faults_have_codes_and_no_driver_text(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    cases = [
        (server.reader, "SELECT nope_column FROM orders", ToolErrorCode.DB_ERROR),
        (server.reader, "SELECT * FROM no_such_table", ToolErrorCode.DB_ERROR),
        (server.reader.set(password="wrong-secret"), "SELECT 1", ToolErrorCode.BACKEND_UNAVAILABLE),
        (server.reader.set(database="no_such_db"), "SELECT 1", ToolErrorCode.BACKEND_UNAVAILABLE),
        (server.reader.set(port=1), "SELECT 1", ToolErrorCode.BACKEND_UNAVAILABLE),
    ]
    for url, text, code in cases:
        backend = SqlAlchemyBackend(url)
        with pytest.raises(ToolFailure) as caught:
            await backend.query(_query(text))
        assert caught.value.code is code
        assert str(caught.value) == code.value
        assert caught.value.__cause__ is None
        await backend.close()
    assert not any(word in caplog.text for word in ("nope_column", "wrong-secret", "pw-%-x", "no_such"))


async def test_two_queries_at_once_do_not_share_a_session(server: Server) -> None:
    backend = SqlAlchemyBackend(server.reader)
    results = await asyncio.gather(
        *(backend.query(_query("SELECT ?, NOW()", index, now=1_700_000_000.0 + index)) for index in range(8))
    )
    assert [result.rows[0][0] for result in results] == list(range(8))
    assert len({result.rows[0][1] for result in results}) == 8
    await backend.close()


def _tool(server: Server, tmp_path: Path, **tables: list[str]) -> MysqlTool:
    data = {"datasource": [{"name": "Shop", "dsn_env": "SHOP_DSN", "timezone": "Asia/Shanghai", "tables": tables}]}
    url = replace_driver(server.reader).render_as_string(hide_password=False)
    tool = build_mysql_tool(build_catalog(data, tmp_path), {"SHOP_DSN": url})
    assert tool is not None
    return tool


def replace_driver(url: URL) -> URL:
    """Give the URL as an operator writes it, without the driver."""
    return url.set(drivername="mysql")


async def test_the_tool_answers_from_the_real_server(server: Server, tmp_path: Path) -> None:
    tool = _tool(server, tmp_path, orders=["id", "status", "amount"])
    request = MysqlQueryRequest(
        datasource="shop", params=["PAID"],
        sql="SELECT status, SUM(amount) AS total, NOW() AS at FROM orders WHERE status = ? GROUP BY status",
    )  # fmt: skip
    assert tool.check(request) is None
    outcome = await tool.run(request, CallContext(now=1_772_305_500.0, at_given=True, deadline_seconds=3.0))
    assert outcome.evidence_status is EvidenceStatus.EVIDENCE_FOUND
    assert outcome.agent_result["rows"] == [["PAID", "17.50", "2026-03-01 03:05:00"]]
    none = await tool.run(replace_params(request, ["NONE"]), CallContext(now=0.0, at_given=False, deadline_seconds=3.0))
    assert (none.evidence_status, none.returned_count) == (EvidenceStatus.NO_EVIDENCE, 0)
    await tool.close()


def replace_params(request: MysqlQueryRequest, params: list[str | int | float | bool | None]) -> MysqlQueryRequest:
    """Give the request with other values."""
    return request.model_copy(update={"params": params})


async def test_r126_the_tool_stops_its_query_before_the_boundary_does(server: Server, tmp_path: Path) -> None:
    tool = _tool(server, tmp_path, numbers=["n"])
    started = time.monotonic()
    with pytest.raises(ToolFailure) as caught:
        async with asyncio.timeout(3.0):
            await tool.run(
                MysqlQueryRequest(datasource="shop", sql=HEAVY),
                CallContext(now=0.0, at_given=False, deadline_seconds=3.0),
            )
    assert caught.value.code is ToolErrorCode.QUERY_TIMEOUT
    assert time.monotonic() - started <= 3.0
    assert await _settles(server)
    await tool.close()
