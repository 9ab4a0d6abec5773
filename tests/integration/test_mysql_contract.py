"""One contract for every database behind the gate (R121-R126): see `tests/mysql_backends.py` for the list."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from tests.data import spec_dir
from tests.mysql_backends import BACKENDS, NUMBERS, ROWS
from tests.unit.mysql_calls import EXPRESSIONS
from tests.unit.mysql_texts import LEGITIMATE, TABLES
from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.mysql.backend import Query, SqlBackend
from tools.mysql.gate import TableList, judge
from tools.mysql.values import MAX_CELL_BYTES, MAX_RESULT_BYTES, QueryResult

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOW = 1_772_305_500.0  # 2026-02-28 19:05:00 UTC, 2026-03-01 03:05:00 in Shanghai
LISTED = TableList(TABLES | {"numbers"})
HEAVY = "SELECT COUNT(*) FROM numbers x, numbers y, numbers z WHERE x.n * y.n + z.n = -1"
CLOCK = re.compile(r"\b(?:NOW|CUR\w+|LOCALTIME\w*|UTC_\w+|UNIX_TIMESTAMP|SYSDATE)\b", re.IGNORECASE)
ONLY_ON_MYSQL = re.compile(r"ANY_VALUE|REGEXP_LIKE|WINDOW w")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=BACKENDS)
async def backend(request: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SqlBackend]:
    async with BACKENDS[request.param](tmp_path_factory.mktemp("one")) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backends(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mapping[str, SqlBackend]]:
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(make(tmp_path_factory.mktemp(name)))
            for name, make in BACKENDS.items()
        }


def _query(sql: str, *params: Any, seconds: float = 2.8, hours: int = 8) -> Query:
    return Query(sql, params, NOW, timedelta(hours=hours), seconds)


async def _rows(backend: SqlBackend, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    assert judge(sql, LISTED).rule is None
    return [tuple(_plain(cell) for cell in row) for row in (await backend.query(_query(sql, *params))).rows]


def _plain(cell: Any) -> Any:
    """Let numbers be equal that differ in type or in digits behind the fourth: DECIMAL is text, averages are cut."""
    if isinstance(cell, str) and re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", cell):
        cell = float(cell)
    return round(float(cell), 3) if isinstance(cell, int | float) else cell


def _corpus() -> list[str]:
    lines = (spec_dir() / "sql_corpus.jsonl").read_text("utf-8").splitlines()
    return [row["sql"] for row in map(json.loads, lines) if row["verdict"] == "allow"]


async def _answer(backend: SqlBackend, sql: str) -> QueryResult | ToolErrorCode:
    try:
        return await backend.query(_query(sql, *[1] * judge(sql, LISTED).placeholders))
    except ToolFailure as failure:
        return failure.code


def _comparable(sql: str, result: QueryResult) -> Any:
    rows = [tuple(_plain(cell) for cell in row) for row in result.rows]
    ordered = re.search(r"\bORDER BY\b(?![^()]*\))", sql, re.IGNORECASE) is not None
    return rows if ordered else sorted(rows, key=repr)


async def test_r121_every_allowed_text_of_the_corpus_runs(backend: SqlBackend) -> None:
    answers = {sql: await _answer(backend, sql) for sql in _corpus()}
    assert {sql: answer for sql, answer in answers.items() if not isinstance(answer, QueryResult)} == {}


async def test_r121_corpus_results_are_equal_on_every_backend(backends: Mapping[str, SqlBackend]) -> None:
    compared = 0
    for sql in _corpus():
        if CLOCK.search(sql):
            continue
        results = {name: await _answer(backend, sql) for name, backend in backends.items()}
        seen = {
            name: (one.columns, _comparable(sql, one)) for name, one in results.items() if isinstance(one, QueryResult)
        }
        assert len(seen) == len(backends)
        first, *others = seen.values()
        assert all(other == first for other in others), (sql, seen)
        compared += 1
    assert compared >= 20


async def test_r121_wherever_backends_answer_they_answer_alike(backends: Mapping[str, SqlBackend]) -> None:
    """An answer of SQLite is the server's; what SQLite cannot say alike it does not say. The server says it all."""
    different, refused, alike = {}, set(), 0
    for sql in (*LEGITIMATE, *(f"SELECT {call} FROM t" for call in EXPRESSIONS)):
        results = {name: await _answer(backend, sql) for name, backend in backends.items()}
        if not isinstance(results["server"], QueryResult):
            refused.add(sql)
            continue
        if "LIMIT" in sql and "ORDER BY" not in sql:
            continue  # which rows come is the server's choice
        seen = {name: _comparable(sql, one) for name, one in results.items() if isinstance(one, QueryResult)}
        if any(rows != seen["server"] for rows in seen.values()):
            different[sql] = seen
        alike += len(seen) == len(backends)
    assert different == {}
    assert {sql for sql in refused if not ONLY_ON_MYSQL.search(sql)} == set()
    assert alike > 150


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT id FROM orders WHERE status = 'PAID' ORDER BY id", [(2,), (4,), (6,)]),
        ("SELECT id FROM orders WHERE name = 'ZOE' ORDER BY id", [(2,), (6,)]),
        ("SELECT id FROM orders WHERE name = '订单服务 🙂'", [(3,)]),
        ("SELECT id FROM orders WHERE status IN ('failed', 'x') AND note LIKE 'err%' ORDER BY id", [(1,), (5,)]),
        ("SELECT LOWER(status), COUNT(*) FROM orders GROUP BY status ORDER BY 2 DESC, 1",
         [("paid", 3), ("failed", 2), ("新", 1)]),
        ("SELECT COUNT(DISTINCT status) FROM orders", [(3,)]),
        ("SELECT id FROM orders WHERE note IS NULL", [(4,)]),
        ("SELECT note, raw FROM orders WHERE id = 3", [("it's a | pipe", "hex:0003ff")]),
        ("SELECT ts, date, time FROM orders WHERE id = 3", [("2026-03-03 03:13:23", "2026-03-03", "03:13:23")]),
        ("SELECT SUM(amount), AVG(price), MAX(start) FROM orders", [(215.25, 10.5, -1)]),
        ("(SELECT 2 AS n) UNION ALL (SELECT 1) ORDER BY n", [(1,), (2,)]),
        ("SELECT * FROM ((SELECT 1 AS n) UNION (SELECT 1)) x", [(1,)]),
        ("(SELECT id FROM orders ORDER BY id DESC LIMIT 1) UNION ALL (SELECT 0) ORDER BY 1", [(0,), (6,)]),
        ("SELECT CAST(10.5 AS SIGNED), CAST('12 apples' AS SIGNED), HEX(255), HEX('é'), CAST(12345 AS CHAR(3))",
         [(11, 12, "FF", "C3A9", 123)]),
        ("SELECT NOW(), CURDATE(), UTC_TIMESTAMP(), NOW(2)",
         [("2026-03-01 03:05:00", "2026-03-01", "2026-02-28 19:05:00", "2026-03-01 03:05:00.00")]),
        ("SELECT FIELD('B', 'a', 'b'), FIND_IN_SET('B', 'a,b'), NULLIF('a', 'A'), 5 IN (1, 5)", [(2, 2, None, 1)]),
        ("SELECT GROUP_CONCAT(DISTINCT LOWER(status) ORDER BY status DESC) FROM orders WHERE id < 3", [("paid,failed",)]),
        ("SELECT CASE status WHEN 'paid' THEN 1 ELSE 0 END AS p FROM orders WHERE id = 4", [(1,)]),
    ],
)  # fmt: skip
async def test_r121_a_text_means_the_same_everywhere(
    backend: SqlBackend, sql: str, expected: list[tuple[Any, ...]]
) -> None:
    assert await _rows(backend, sql) == [tuple(_plain(cell) for cell in row) for row in expected]


async def test_r125_parameters_keep_their_types(backend: SqlBackend) -> None:
    values = ["it's ? %s \\ \" 🙂", 2**53 + 1, -5, 1.25, True, None, "", "0010"]
    sql = f"SELECT {', '.join('?' for _ in values)} FROM orders WHERE id = ?"
    (row,) = (await backend.query(_query(sql, *values, 1))).rows
    assert list(row) == [*values[:4], 1, *values[5:]]
    assert [type(cell) for cell in row[:4]] == [str, int, int, float]
    assert await _rows(backend, "SELECT id FROM orders WHERE name LIKE CONCAT('%', ?, '%')", "服务") == [(3,)]
    assert await _rows(backend, "SELECT id FROM orders WHERE status = ? OR id = ? ORDER BY id", "' OR '1'='1", 2) == [
        (2,)
    ]


async def test_columns_are_named_as_written_even_without_rows(backend: SqlBackend) -> None:
    sql = "SELECT COUNT(*), o.status, id+1, MAX(id) AS top, 'x' FROM orders o WHERE id < 0 GROUP BY o.status, id"
    result = await backend.query(_query(sql))
    assert (result.columns[:4], result.rows, result.truncated) == (("COUNT(*)", "status", "id+1", "top"), (), False)


async def test_r124_rows_are_bounded_and_said_to_be(backend: SqlBackend) -> None:
    for limit, truncated in (("LIMIT 50", False), ("LIMIT 51", True), ("", True), ("LIMIT 100000", True)):
        result = await backend.query(_query(f"SELECT n FROM numbers ORDER BY n {limit}"))
        assert (len(result.rows), result.truncated) == (50, truncated)
    assert NUMBERS > 51


async def test_r124_cells_and_bytes_are_bounded_and_said_to_be(backend: SqlBackend) -> None:
    one = await backend.query(_query("SELECT GROUP_CONCAT(n), 1 FROM numbers"))
    assert len(str(one.rows[0][0])) == MAX_CELL_BYTES
    assert one.truncated
    wide = ", ".join(["(SELECT GROUP_CONCAT(n) FROM numbers)"] * 20)
    many = await backend.query(_query(f"SELECT {wide} FROM orders, orders p"))
    assert 1 <= len(many.rows) < ROWS * ROWS
    assert sum(len(str(cell)) for row in many.rows for cell in row) <= MAX_RESULT_BYTES
    assert many.truncated


async def test_r126_a_query_over_its_time_ends_as_query_timeout(backend: SqlBackend) -> None:
    started = time.monotonic()
    with pytest.raises(ToolFailure) as caught:
        await backend.query(_query(HEAVY, seconds=0.4))
    assert caught.value.code is ToolErrorCode.QUERY_TIMEOUT
    assert time.monotonic() - started < 1.4
    assert await _rows(backend, "SELECT 1") == [(1,)]


async def test_r120_a_cancelled_query_ends_at_once(backend: SqlBackend) -> None:
    task = asyncio.create_task(backend.query(_query(HEAVY)))
    await asyncio.sleep(0.2)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 1
    assert await _rows(backend, "SELECT 1") == [(1,)]


@pytest.mark.parametrize(
    "sql", ["SELECT nope FROM orders", "SELECT * FROM no_such_table", "SELECT 1 +", "SELECT NO_SUCH(1)"]
)
async def test_r126_what_fails_is_a_db_error_without_text(backend: SqlBackend, sql: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        await backend.query(_query(sql))
    assert (caught.value.code, str(caught.value)) == (ToolErrorCode.DB_ERROR, "DB_ERROR")
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "sql", ["DELETE FROM orders", "UPDATE orders SET id = 1", "DROP TABLE orders", "INSERT INTO numbers VALUES (1)",
            "CREATE TABLE fresh (id INT)", "SELECT 1; SELECT 2"],
)  # fmt: skip
async def test_r124_past_the_gate_nothing_is_written(backend: SqlBackend, sql: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        await backend.query(_query(sql))
    assert caught.value.code is ToolErrorCode.DB_ERROR
    assert await _rows(backend, "SELECT COUNT(*), MIN(id) FROM orders") == [(ROWS, 1)]


async def test_queries_at_once_do_not_disturb_each_other(backend: SqlBackend) -> None:
    results = await asyncio.gather(*(_rows(backend, "SELECT ?, COUNT(*) FROM orders", number) for number in range(6)))
    assert results == [[(number, ROWS)] for number in range(6)]


async def test_r124_an_account_for_reading_has_nothing_dangerous(backend: SqlBackend) -> None:
    report = await backend.account(2.8)
    assert report is None or not report.privileged
