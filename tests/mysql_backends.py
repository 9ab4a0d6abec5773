"""The databases behind the gate that the contract suite runs against, with the same tables and rows in each.

A new backend joins by an entry in BACKENDS: a name and a function that makes the tables and yields the opened backend.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.mysql_server import account_url, as_root, create_account, fresh_name, require_server
from tests.unit.mysql_texts import TABLES
from tools.mysql.backend import SqlBackend
from tools.mysql.backend_sqlalchemy import SqlAlchemyBackend
from tools.mysql.backend_sqlite import SqliteBackend

COLUMNS = """id INT, user_id INT, order_id INT, status VARCHAR(20), amount DECIMAL(10,2), price INT, quantity INT, a INT, b INT,
c INT, ts DATETIME, created_at DATETIME, last_login DATETIME, name VARCHAR(50), email VARCHAR(50), city VARCHAR(50),
note VARCHAR(200), active INT, `delete` INT, `update` INT, start INT, load_file INT, `select` INT, `中文列` INT, value INT,
date DATE, time TIME, type INT, level INT, user INT, host INT, comment INT, data INT, timestamp INT, count INT, year INT,
version INT, payload TEXT, JSON_TABLE INT, raw BLOB"""
ROWS = 6
NUMBERS = 1_500


def row(number: int) -> dict[str, Any]:
    """The `number`-th row of every table: upper and lower case, NULL, quotes, Chinese, an emoji, JSON, bytes."""
    day = f"2026-03-{number:02d} {number:02d}:1{number}:2{number}"
    texts = {
        "status": ("PAID", "FAILED", "paid", "新")[number % 4],
        "name": ("Ann", "bob", "Żoë", "订单服务 🙂")[number % 4],
        "note": (None, "ERR5 timeout", "50% off", "it's a | pipe")[number % 4],
        "payload": ('{"a": {"b": 1}, "msg": "x", "code": 500}', '{"a": [1, 2]}', "{}", '[1, "x"]')[number % 4],
        "email": f"u{number}@example.org",
        "city": "X",
    }
    times = {
        "ts": day,
        "created_at": f"2026-02-1{number} 10:00:0{number}",
        "last_login": day,
        "date": day[:10],
        "time": day[11:],
    }
    numbers = {"id": number, "user_id": number % 2, "order_id": number, "a": number, "b": 7 - number, "c": number % 2,
               "amount": f"{10.25 * number:.2f}", "price": number * 3, "quantity": number, "value": number, "count": number,
               "year": 2026, "中文列": number, "start": -number}  # fmt: skip
    rest = dict.fromkeys(("active", "delete", "update", "load_file", "select", "type", "level", "user", "host", "comment",
                          "data", "timestamp", "version", "JSON_TABLE"), 1)  # fmt: skip
    return {**texts, **times, **numbers, **rest, "raw": bytes([0, number, 255])}


def _insert(table: str, mark: str) -> tuple[str, list[tuple[Any, ...]]]:
    rows = [row(number) for number in range(1, ROWS + 1)]
    names = ", ".join(f"`{name}`" for name in rows[0])
    return f"INSERT INTO `{table}` ({names}) VALUES ({', '.join(mark for _ in rows[0])})", [
        tuple(one.values()) for one in rows
    ]


@asynccontextmanager
async def sqlite_backend(folder: Path) -> AsyncIterator[SqlBackend]:
    """An SQLite file in `folder`."""
    path = folder / "contract.db"
    connection = sqlite3.connect(path)
    for table in sorted(TABLES - {"dual"}):
        connection.execute(f"CREATE TABLE `{table}` ({COLUMNS})")
        connection.executemany(*_insert(table, "?"))
    connection.execute("CREATE TABLE numbers (n INTEGER)")
    connection.executemany("INSERT INTO numbers VALUES (?)", [(number,) for number in range(NUMBERS)])
    connection.commit()
    connection.close()
    backend = SqliteBackend(path)
    yield backend
    await backend.close()


@asynccontextmanager
async def server_backend(folder: Path) -> AsyncIterator[SqlBackend]:
    """A database and a reading account on the server of the tests."""
    await require_server()
    database, user = fresh_name("superbiz"), fresh_name("u")
    try:
        await as_root(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        for table in sorted(TABLES - {"dual"}):
            insert, rows = _insert(table, "%s")
            # The driver cannot write bytes.
            rows = [tuple(cell.hex() if isinstance(cell, bytes) else cell for cell in one) for one in rows]
            await as_root(
                f"CREATE TABLE `{table}` ({COLUMNS}, FULLTEXT (note))", (insert, rows),
                f"UPDATE `{table}` SET raw = UNHEX(raw)", database=database,
            )  # fmt: skip
        numbers = [(number,) for number in range(NUMBERS)]
        await as_root("CREATE TABLE numbers (n INT)", ("INSERT INTO numbers VALUES (%s)", numbers), database=database)
        await create_account(user, f"SELECT ON {database}.*")
        backend = SqlAlchemyBackend(account_url(user, database))
        yield backend
        await backend.close()
    finally:
        await as_root(f"DROP DATABASE IF EXISTS {database}", f"DROP USER IF EXISTS '{user}'@'%'")


BACKENDS: Mapping[str, Callable[[Path], AbstractAsyncContextManager[SqlBackend]]] = {
    "sqlite": sqlite_backend,
    "server": server_backend,
}
"""Every backend by name; the suite runs unchanged for each."""
