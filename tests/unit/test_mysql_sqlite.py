"""The SQLite backend behind the gate (R123): same meaning or no answer, read-only, time limit."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.mysql_calls import EXPRESSIONS
from tests.unit.mysql_texts import LEGITIMATE
from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.mysql.backend import Query
from tools.mysql.backend_sqlite import SqliteBackend, open_read_only
from tools.mysql.gate import TableList, judge
from tools.mysql.sqlite_dialect import NotInSqlite, to_sqlite
from tools.mysql.values import JsonScalar

NOW = 1_772_305_500.0  # 2026-02-28 19:05:00 UTC, 2026-03-01 03:05:00 in Shanghai


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop ?#%.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE orders (id INTEGER, status TEXT, amount REAL, created_at TEXT, note TEXT, raw BLOB)"
        )
        rows = [
            (
                1,
                "PAID",
                10.5,
                "2026-03-01 03:00:00",
                '{"code": 500, "msg": "too slow", "in": {"a": true}}',
                b"\x01\x02",
            ),
            (2, "FAILED", 20.0, "2026-03-01 02:30:00", "订单", None),
            (3, "PAID", 7.0, "2026-02-28 03:05:00", None, None),
        ]
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", rows)
        connection.execute("CREATE TABLE n (i INTEGER)")
        connection.executemany("INSERT INTO n VALUES (?)", [(i,) for i in range(2_000)])
    connection.close()
    return path


async def _rows(path: Path, sql: str, *params: Any, offset: int = 8) -> list[tuple[JsonScalar, ...]]:
    assert judge(sql, TableList(frozenset({"orders", "n", "dual"}), case_sensitive=False)).rule is None
    query = Query(sql, params, NOW, timedelta(hours=offset), 2.0)
    return list((await SqliteBackend(path).query(query)).rows)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("NOW()", "2026-03-01 03:05:00"),
        ("CURRENT_TIMESTAMP", "2026-03-01 03:05:00"),
        ("UTC_TIMESTAMP()", "2026-02-28 19:05:00"),
        ("CURDATE()", "2026-03-01"),
        ("UNIX_TIMESTAMP()", 1_772_305_500),
        ("UNIX_TIMESTAMP('2026-03-01 03:05:00')", 1_772_305_500),
        ("FROM_UNIXTIME(1772305500)", "2026-03-01 03:05:00"),
        ("NOW() - INTERVAL 30 MINUTE", "2026-03-01 02:35:00"),
        ("INTERVAL 1 HOUR + NOW()", "2026-03-01 04:05:00"),
        ("DATE_SUB(NOW(), INTERVAL 1 HOUR)", "2026-03-01 02:05:00"),
        ("DATE_ADD('2026-01-31', INTERVAL 1 MONTH)", "2026-02-28"),
        ("DATE_ADD('2026-01-31', INTERVAL 1 HOUR)", "2026-01-31 01:00:00"),
        ("TIMESTAMPDIFF(MINUTE, '2026-03-01 03:00:00', NOW())", 5),
        ("TIMESTAMPDIFF(MONTH, '2026-03-31', '2026-01-01')", -2),
        ("TIMESTAMPADD(DAY, 1, '2026-03-01')", "2026-03-02"),
        ("DATE_FORMAT('2026-03-01 03:05:09', '%Y/%m/%d %H:%i:%s %e %%')", "2026/03/01 03:05:09 1 %"),
        ("DATEDIFF('2026-03-02 01:00:00', '2026-03-01 23:00:00')", 1),
        ("EXTRACT(HOUR FROM '2026-03-01 03:05:00')", 3),
        ("HOUR('2026-03-01 03:05:00')", 3),
        ("YEAR(NOW())", 2026),
        ("DAYOFWEEK('2026-03-01')", 1),
        ("DATE('2026-03-01 03:05:00')", "2026-03-01"),
        ("CAST('2026-03-01' AS DATETIME)", "2026-03-01 00:00:00"),
        ("IF(1 > 2, 'a', 'b')", "b"),
        ("IFNULL(NULL, 5)", 5),
        ("CONCAT('a', 1, 'b')", "a1b"),
        ("CONCAT('a', NULL)", None),
        ("CONCAT_WS('-', 'a', NULL, 'b')", "a-b"),
        ("LENGTH('订单')", 6),
        ("CHAR_LENGTH('订单')", 2),
        ("LEFT('abc', 2)", "ab"),
        ("RIGHT('abc', 2)", "bc"),
        ("SUBSTRING('abcd', 2, 2)", "bc"),
        ("SUBSTRING('abcd' FROM 2)", "bcd"),
        ("SUBSTRING_INDEX('a.b.c', '.', -2)", "b.c"),
        ("LOCATE('b', 'abc')", 2),
        ("POSITION('B' IN 'abc')", 2),
        ("REPLACE('aba', 'a', 'x')", "xbx"),
        ("'Timeout after 5s' REGEXP '^timeout.*[0-9]s$'", 1),
        ("GREATEST(1, 3, 2)", 3),
        ("LEAST(1, NULL)", None),
        ("ROUND(2.5)", 3),
        ("ROUND(1.005, 1)", 1.0),
        ("TRUNCATE(-1.99, 1)", -1.9),
        ("CEIL(1.2)", 2),
        ("FLOOR(-1.2)", -2),
        ("7 DIV 2", 3),
        ("7 / 2", 3.5),
        ("7 % 4", 3),
        ("5 ^ 3", 6),
        ("1 XOR 1", 0),
        ("NULL <=> NULL", 1),
        ("1 << 3", 8),
        ("CAST('12' AS SIGNED) + 1", 13),
        ("TRUE", 1),
        ("FIELD('b', 'a', 'b')", 2),
        ("FIND_IN_SET('b', 'a,b')", 2),
        ("MD5('a')", "0cc175b9c0f1b6a831c399e269772661"),
        ("CASE 2 WHEN 1 THEN 'x' ELSE 'y' END", "y"),
        ("(SELECT JSON_UNQUOTE(JSON_EXTRACT(note, '$.msg')) FROM orders WHERE id = 1)", "too slow"),
        ("(SELECT JSON_UNQUOTE(JSON_EXTRACT(note, '$.in.a')) FROM orders WHERE id = 1)", "true"),
        ("(SELECT GROUP_CONCAT(DISTINCT status ORDER BY status DESC SEPARATOR '; ') FROM orders)", "PAID; FAILED"),
        ("(SELECT GROUP_CONCAT(id) FROM orders)", "1,2,3"),
        ("(SELECT STDDEV(id) FROM orders WHERE id < 3)", 0.5),
        ("(SELECT raw FROM orders WHERE id = 1)", "hex:0102"),
    ],
)
async def test_r123_functions_mean_on_sqlite_what_they_mean_on_mysql(
    database: Path, expression: str, expected: JsonScalar
) -> None:
    assert await _rows(database, f"SELECT {expression} AS x") == [(expected,)]


async def test_windows_over_time_follow_the_runs_clock(database: Path) -> None:
    sql = "SELECT status, COUNT(*) AS n FROM orders WHERE created_at >= NOW() - INTERVAL 30 MINUTE GROUP BY status"
    assert await _rows(database, sql) == [("PAID", 1)]
    assert await _rows(database, sql.replace("30 MINUTE", "1 DAY")) == [("FAILED", 1), ("PAID", 2)]


async def test_r125_parameters_keep_their_order_and_type(database: Path) -> None:
    assert await _rows(database, "SELECT ?, ?, ?, ?, ? FROM dual", "a'?", 1, 2.5, True, None) == [
        ("a'?", 1, 2.5, 1, None)
    ]
    assert await _rows(database, "SELECT id FROM orders ORDER BY id LIMIT ?, ?", 1, 1) == [(2,)]
    assert await _rows(database, "SELECT POSITION(? IN ?), '?'", "b", "abc") == [(2, "?")]


async def test_columns_are_named_as_written(database: Path) -> None:
    result = await SqliteBackend(database).query(
        Query("SELECT COUNT(*), MAX(id) AS top, o.status, NOW() FROM orders o", (), NOW, timedelta(), 2.0)
    )
    assert result.columns[:3] == ("COUNT(*)", "top", "status")


async def test_tables_and_set_operations_and_windows(database: Path) -> None:
    paid = "WITH c AS (SELECT id FROM ORDERS WHERE status = 'PAID')"
    sql = f"{paid} SELECT id FROM c UNION ALL SELECT id FROM c ORDER BY id LIMIT 3"
    assert await _rows(database, sql) == [(1,), (1,), (3,)]
    ranked = "SELECT id, ROW_NUMBER() OVER (PARTITION BY status ORDER BY id) AS r FROM orders ORDER BY id"
    assert await _rows(database, ranked) == [(1, 1), (2, 1), (3, 2)]


async def test_results_are_bounded(database: Path) -> None:
    result = await SqliteBackend(database).query(Query("SELECT i FROM n", (), NOW, timedelta(), 2.0))
    assert (len(result.rows), result.truncated) == (50, True)


@pytest.mark.parametrize(
    "sql",
    ["SELECT CONVERT_TZ(created_at, '+00:00', '+08:00') FROM orders", "SELECT JSON_EXTRACT(note, '$.msg') FROM orders",
     "SELECT note COLLATE utf8mb4_bin FROM orders", "SELECT NOW() + INTERVAL '1:1' HOUR_MINUTE",
     "SELECT DATE_FORMAT(NOW(), '%Q')", "SELECT no_such_column FROM orders"],
)  # fmt: skip
async def test_r126_what_sqlite_cannot_say_alike_is_a_db_error(database: Path, sql: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        await _rows(database, sql)
    assert caught.value.code is ToolErrorCode.DB_ERROR


def test_r123_translation_is_total() -> None:
    for sql in (*LEGITIMATE, *(f"SELECT {call} FROM t" for call in EXPRESSIONS)):
        with contextlib.suppress(NotInSqlite):
            assert to_sqlite(sql).lstrip("(").startswith(("SELECT", "WITH"))


@pytest.mark.parametrize(
    "sql",
    ["DELETE FROM orders", "INSERT INTO orders (id) VALUES (9)", "UPDATE orders SET id = 1", "DROP TABLE orders",
     "SELECT name FROM sqlite_master", "SELECT * FROM pragma_table_info('orders')", "ATTACH DATABASE 'x' AS y",
     "PRAGMA query_only = 0", "SELECT LOAD_EXTENSION('x')", "BEGIN", "VACUUM"],
)  # fmt: skip
def test_r124_even_past_the_gate_nothing_but_reads_of_tables(database: Path, sql: str) -> None:
    connection = open_read_only(database)
    with pytest.raises(sqlite3.DatabaseError):
        connection.execute(sql)
    assert connection.execute("SELECT COUNT(*) FROM orders").fetchone() == (3,)
    connection.close()


HEAVY = "SELECT COUNT(*) FROM n a, n b, n c WHERE a.i * b.i + c.i = -1"


async def test_r126_a_query_over_its_time_ends_as_query_timeout(database: Path) -> None:
    started = time.monotonic()
    with pytest.raises(ToolFailure) as caught:
        await SqliteBackend(database).query(Query(HEAVY, (), NOW, timedelta(), 0.2))
    assert caught.value.code is ToolErrorCode.QUERY_TIMEOUT
    assert time.monotonic() - started < 1.5


async def test_r120_a_cancelled_query_stops_its_thread(database: Path) -> None:
    task = asyncio.create_task(SqliteBackend(database).query(Query(HEAVY, (), NOW, timedelta(), 60.0)))
    await asyncio.sleep(0.1)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The default executor waits for its threads: it ends at once only if the query was interrupted.
    await asyncio.get_running_loop().shutdown_default_executor()
    assert time.monotonic() - started < 2


async def test_r126_a_missing_file_is_unavailable_and_is_not_created(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    with pytest.raises(ToolFailure) as caught:
        await SqliteBackend(path).query(Query("SELECT 1", (), NOW, timedelta(), 2.0))
    assert caught.value.code is ToolErrorCode.BACKEND_UNAVAILABLE
    assert not path.exists()
