"""The hostile texts at the differences between parser and server: what a real server makes of them, and a search for more."""

from __future__ import annotations

import random
import warnings
from collections.abc import AsyncIterator

import aiomysql
import pymysql
import pytest
import pytest_asyncio

from tests.mysql_backends import COLUMNS
from tests.mysql_server import PASSWORD, ROOT_URL, as_root, create_account, fresh_name, require_server
from tests.unit.mysql_calls import EXPRESSIONS
from tests.unit.mysql_differences import ONLY_THE_PARSER, ONLY_THE_SERVER, READ_DIFFERENTLY
from tests.unit.mysql_texts import LEGITIMATE, TABLES
from tools.mysql.functions import ALLOWED_FUNCTIONS, FOLDED_WORDS, FOLDED_WORDS_UNLESS_NAMES
from tools.mysql.gate import TableList, judge
from tools.mysql.lexical import tokenize
from tools.mysql.mysql_session import SQL_MODE

pytestmark = pytest.mark.asyncio(loop_scope="module")

LISTED = TableList(TABLES)
DENIED = {1044, 1142, 1143, 1227, 1370, 1369}
"""Errors that say: the account may not do this. A listed table and an allowed function never give one."""

NOT_NATIVE = ("ANY_VALUE", "REGEXP_LIKE")
"""Functions of MySQL that MariaDB has not and looks for among stored functions, which the account may not execute."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def database() -> AsyncIterator[tuple[str, str]]:
    """A database with listed tables, one that is not listed, stored functions, and a reading account's name."""
    await require_server()
    name, user = fresh_name("superbiz"), fresh_name("u")
    listed = sorted(TABLES - {"dual"})
    try:
        await as_root(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        await as_root(
            *(f"CREATE TABLE `{table}` ({COLUMNS}, FULLTEXT (note))" for table in (*listed, "secret")),
            *(f"INSERT INTO `{table}` (id, a, b, note) VALUES (1, 2, 3, 'x')" for table in ("t", "a", "orders", "secret")),
            "CREATE FUNCTION leak() RETURNS INT RETURN 7", "CREATE FUNCTION count_all(x INT) RETURNS INT RETURN 7",
            "CREATE SEQUENCE sq", database=name,
        )  # fmt: skip
        await create_account(user, *(f"SELECT ON {name}.`{table}`" for table in listed))
        yield name, user
    finally:
        await as_root(f"DROP DATABASE IF EXISTS {name}", f"DROP USER IF EXISTS '{user}'@'%'")


async def _connect(database: str, user: str, password: str) -> aiomysql.Connection:
    connection = await aiomysql.connect(
        host=ROOT_URL.host or "127.0.0.1", port=ROOT_URL.port or 3306, user=user, password=password, db=database,
        autocommit=True, charset="utf8mb4",
    )  # fmt: skip
    await connection.query(
        f"SET SESSION sql_mode='{SQL_MODE}', SESSION max_statement_time=1, SESSION sql_select_limit=51"
    )
    return connection


async def _runs(database: str, sql: str) -> bool:
    """Say whether the administrator can run a text; a text may leave its connection unusable, so each has its own."""
    connection = await _connect(database, ROOT_URL.username or "root", ROOT_URL.password or "")
    try:
        async with connection.cursor() as cursor:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", pymysql.Warning)
                await cursor.execute(sql)
            await cursor.fetchall()
    except pymysql.MySQLError:
        return False
    finally:
        connection.close()
    return True


async def test_r123_the_server_runs_what_only_the_server_reads(database: tuple[str, str]) -> None:
    texts = [sql for sql, _ in (*ONLY_THE_SERVER, *READ_DIFFERENTLY)]
    assert [sql for sql in texts if not await _runs(database[0], sql)] == []


async def test_r123_the_server_refuses_what_only_the_parser_reads(database: tuple[str, str]) -> None:
    assert [sql for sql, _ in ONLY_THE_PARSER if await _runs(database[0], sql)] == []


async def test_r123_no_word_that_the_server_reserves_is_taken_for_a_name(database: tuple[str, str]) -> None:
    words = {row[0] for row in await as_root("SELECT word FROM information_schema.keywords") if row[0].isidentifier()}
    words |= ALLOWED_FUNCTIONS | FOLDED_WORDS | FOLDED_WORDS_UNLESS_NAMES
    connection = await _connect(database[0], ROOT_URL.username or "root", ROOT_URL.password or "")
    wrong = []
    for word in sorted(words):
        try:
            async with connection.cursor() as cursor:
                await cursor.execute(f"SELECT {word} FROM (SELECT 1 AS `{word}`) q")
        except pymysql.MySQLError as error:
            if error.args[0] != 1064:
                continue
            forms = (
                f"SELECT {word} FROM t",
                f"SELECT 1 AS {word}",
                f"SELECT 1 {word} FROM t",
                f"SELECT 1 FROM t AS {word}",
            )
            wrong += [form for form in forms if judge(form, LISTED).allowed]
    connection.close()
    assert wrong == []


def _mutations(seed: int, count: int) -> list[str]:
    """Texts near legitimate ones: tokens changed, added, removed and swapped."""
    chance = random.Random(seed)
    seeds = [
        [token.text for token in tokenize(sql)]
        for sql in (*LEGITIMATE, *(f"SELECT {call} FROM t" for call in EXPRESSIONS))
    ]
    words = sorted({text for tokens in seeds for text in tokens})
    words += [
        "secret",
        "mysql.user",
        "`mysql`.`user`",
        "leak()",
        "sq",
        "TABLE",
        "VALUES",
        "LATERAL",
        "information_schema.tables",
    ]
    texts = []
    for _ in range(count):
        tokens = list(chance.choice(seeds))
        for _ in range(chance.choice((1, 1, 2, 3))):
            place, kind = chance.randrange(len(tokens)), chance.random()
            if kind < 0.4:
                tokens[place] = chance.choice(words)
            elif kind < 0.7:
                tokens.insert(place, chance.choice(words))
            elif kind < 0.85 and len(tokens) > 1:
                del tokens[place]
            else:
                other = chance.choice(seeds)
                tokens[place:place] = other[: chance.randrange(1, 6)]
        texts.append(" ".join(tokens).replace("( ", "(").replace(" (", "(").replace(" . ", ".").replace("AS(", "AS ("))
    return texts


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
async def test_r121_what_passes_the_gate_never_needs_more_than_the_listed_tables(
    database: tuple[str, str], seed: int
) -> None:
    connection = await _connect(*database, PASSWORD)
    passed, denied = 0, []
    for sql in _mutations(seed, 4_000 if seed == 1 else 60_000):
        verdict = judge(sql, LISTED)
        if not verdict.allowed or verdict.placeholders or any(name in sql.upper() for name in NOT_NATIVE):
            continue
        passed += 1
        try:
            async with connection.cursor() as cursor:
                await cursor.execute(sql)
                await cursor.fetchall()
        except pymysql.MySQLError as error:
            if error.args[0] in DENIED:
                denied.append((sql, error.args[0]))
        except (ValueError, OverflowError):
            continue  # a value that Python cannot hold
    connection.close()
    assert denied == []
    assert passed > 100
