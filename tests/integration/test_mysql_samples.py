"""Two public sample databases on a real server, asked as an engineer would, through the whole tool (R121-R126)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiomysql
import pytest
import pytest_asyncio

from tests.data import data_dir
from tests.mysql_dump import statements
from tests.mysql_server import PASSWORD, ROOT_URL, account_url, as_root, create_account, fresh_name, require_server
from tools.catalog import build_catalog
from tools.contract import EvidenceStatus
from tools.evidence_tool import CallContext
from tools.masking import MASK
from tools.mysql.backend import Query
from tools.mysql.backend_sqlalchemy import SqlAlchemyBackend
from tools.mysql.grants import AccountRule
from tools.mysql.mysql_session import SQL_MODE
from tools.mysql.request import MysqlQueryRequest
from tools.mysql.tool import MysqlTool, build_mysql_tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAKILA = ("actor", "address", "category", "city", "country", "customer", "film", "film_actor", "film_category", "film_text",
          "inventory", "language", "payment", "rental", "staff", "store", "customer_list")  # fmt: skip
CHINOOK = ("Album", "Artist", "Customer", "Employee", "Genre", "Invoice", "InvoiceLine", "MediaType", "Playlist",
           "PlaylistTrack", "Track")  # fmt: skip

QUERIES: tuple[tuple[str, str], ...] = (
    ("sakila", "SELECT COUNT(*) AS films, MIN(length) AS shortest, MAX(length) AS longest, AVG(rental_rate) AS rate FROM film"),
    ("sakila", "SELECT rating, COUNT(*) AS n FROM film GROUP BY rating ORDER BY n DESC, rating"),
    ("sakila", "SELECT COUNT(*) FROM rental WHERE return_date IS NULL"),
    ("sakila", "SELECT DATE(rental_date) AS day, COUNT(*) AS n FROM rental GROUP BY day ORDER BY n DESC, day LIMIT 10"),
    ("sakila", "SELECT HOUR(payment_date) AS h, SUM(amount) AS total FROM payment GROUP BY h ORDER BY h LIMIT 20"),
    ("sakila", "SELECT c.customer_id, c.email, SUM(p.amount) AS paid FROM customer c JOIN payment p USING (customer_id) "
     "GROUP BY c.customer_id, c.email ORDER BY paid DESC, c.customer_id LIMIT 5"),
    ("sakila", "SELECT s.store_id, COUNT(DISTINCT i.film_id) AS titles, COUNT(*) AS copies FROM store s "
     "JOIN inventory i ON i.store_id = s.store_id GROUP BY s.store_id ORDER BY s.store_id"),
    ("sakila", "SELECT cat.name, COUNT(*) AS rentals FROM rental r JOIN inventory i USING (inventory_id) "
     "JOIN film_category fc USING (film_id) JOIN category cat USING (category_id) GROUP BY cat.name "
     "ORDER BY rentals DESC LIMIT 5"),
    ("sakila", "SELECT r.rental_id, TIMESTAMPDIFF(DAY, r.rental_date, r.return_date) AS days FROM rental r "
     "WHERE r.return_date IS NOT NULL ORDER BY days DESC, r.rental_id LIMIT 5"),
    ("sakila", "SELECT f.title FROM film f LEFT JOIN inventory i ON i.film_id = f.film_id WHERE i.inventory_id IS NULL "
     "ORDER BY f.title LIMIT 10"),
    ("sakila", "WITH busy AS (SELECT customer_id, COUNT(*) AS n FROM rental GROUP BY customer_id) "
     "SELECT MIN(n), MAX(n), AVG(n) FROM busy"),
    ("sakila", "SELECT customer_id, payment_date, amount, SUM(amount) OVER (PARTITION BY customer_id ORDER BY payment_date, "
     "payment_id) AS running FROM payment WHERE customer_id = 148 ORDER BY payment_date, payment_id LIMIT 10"),
    ("sakila", "SELECT title, special_features FROM film WHERE FIND_IN_SET('Deleted Scenes', special_features) > 0 "
     "ORDER BY film_id LIMIT 3"),
    ("sakila", "SELECT active, COUNT(*) FROM customer GROUP BY active ORDER BY active"),
    ("sakila", "SELECT staff_id, COUNT(*) AS n, SUM(amount) AS total FROM payment WHERE amount = 0 "
     "GROUP BY staff_id ORDER BY staff_id"),
    ("sakila", "SELECT film_id FROM film_text WHERE MATCH(title, description) AGAINST ('+shark +monkey' IN BOOLEAN MODE) "
     "ORDER BY film_id LIMIT 5"),
    ("sakila", "SELECT co.country, COUNT(*) AS n FROM address a JOIN city ci USING (city_id) JOIN country co "
     "USING (country_id) GROUP BY co.country HAVING n > 20 ORDER BY n DESC, co.country"),
    ("sakila", "SELECT ID, name, notes FROM customer_list WHERE SID = 1 ORDER BY ID LIMIT 5"),
    ("sakila", "SELECT release_year, replacement_cost, rental_duration, last_update FROM film WHERE film_id = 1"),
    ("sakila", "SELECT (SELECT COUNT(*) FROM rental) AS rentals, (SELECT COUNT(*) FROM payment) AS payments, "
     "(SELECT COUNT(*) FROM customer) AS customers"),
    ("chinook", "SELECT COUNT(*) AS tracks, SUM(Milliseconds) / 3600000 AS hours FROM Track"),
    ("chinook", "SELECT BillingCountry, COUNT(*) AS invoices, SUM(Total) AS total FROM Invoice GROUP BY BillingCountry "
     "ORDER BY total DESC, BillingCountry LIMIT 10"),
    ("chinook", "SELECT g.Name, COUNT(*) AS sold FROM InvoiceLine l JOIN Track t USING (TrackId) JOIN Genre g USING (GenreId) "
     "GROUP BY g.Name ORDER BY sold DESC, g.Name LIMIT 5"),
    ("chinook", "SELECT i.InvoiceId, i.Total, SUM(l.UnitPrice * l.Quantity) AS lines_total FROM Invoice i JOIN InvoiceLine l "
     "ON l.InvoiceId = i.InvoiceId GROUP BY i.InvoiceId, i.Total HAVING i.Total <> lines_total"),
    ("chinook", "SELECT e.EmployeeId, e.LastName, m.LastName AS manager FROM Employee e LEFT JOIN Employee m "
     "ON m.EmployeeId = e.ReportsTo ORDER BY e.EmployeeId"),
    ("chinook", "SELECT a.Title, COUNT(*) AS n FROM Album a JOIN Track t ON t.AlbumId = a.AlbumId GROUP BY a.AlbumId, a.Title "
     "ORDER BY n DESC, a.AlbumId LIMIT 3"),
    ("chinook", "SELECT Name FROM Artist WHERE Name LIKE '%ã%' ORDER BY ArtistId LIMIT 5"),
    ("chinook", "SELECT FirstName, LastName, Country FROM Customer WHERE Company IS NULL ORDER BY CustomerId LIMIT 5"),
    ("chinook", "SELECT DATE_FORMAT(InvoiceDate, '%Y-%m') AS month, SUM(Total) AS total FROM Invoice GROUP BY month "
     "ORDER BY month DESC LIMIT 6"),
    ("chinook", "SELECT p.Name, COUNT(pt.TrackId) AS n FROM Playlist p LEFT JOIN PlaylistTrack pt USING (PlaylistId) "
     "GROUP BY p.PlaylistId, p.Name ORDER BY n, p.PlaylistId LIMIT 5"),
    ("chinook", "SELECT t.Name, t.Bytes, RANK() OVER (ORDER BY t.Bytes DESC) AS place FROM Track t ORDER BY place LIMIT 3"),
    ("chinook", "SELECT COUNT(*) FROM Track WHERE Composer IS NULL UNION ALL SELECT COUNT(*) FROM Track WHERE Composer = ''"),
    ("chinook", "SELECT m.Name, AVG(t.UnitPrice) AS price, COUNT(*) AS n FROM Track t JOIN MediaType m USING (MediaTypeId) "
     "GROUP BY m.Name ORDER BY n DESC"),
    ("chinook", "SELECT CustomerId, COUNT(*) AS n, MAX(InvoiceDate) AS latest FROM Invoice GROUP BY CustomerId "
     "HAVING COUNT(*) < 7 ORDER BY CustomerId"),
)  # fmt: skip
EMPTY = {"SELECT i.InvoiceId"}
"""Starts of the queries that rightly find nothing: every invoice is the sum of its lines."""


def _script(path: Path, database: str) -> Iterator[str]:
    """The statements of a dump, for the database that is open; MariaDB too gets what is marked for MySQL 5.7.5."""
    text = re.sub(r"/\*!50705(.*?)\*/", r"\1", path.read_text("utf-8"), flags=re.DOTALL)
    text = re.sub(r"\bsakila\.", f"{database}.", text.replace("\r\n", "\n"))
    for statement in statements(text):
        if not re.match(r"(DROP|CREATE) (SCHEMA|DATABASE)\b|USE\b", statement):
            yield statement


async def _load(database: str, *files: Path) -> None:
    connection = await aiomysql.connect(
        host=ROOT_URL.host or "127.0.0.1", port=ROOT_URL.port or 3306, user=ROOT_URL.username or "root",
        password=ROOT_URL.password or "", db=database, charset="utf8mb4",
    )  # fmt: skip
    try:
        for path in files:
            for statement in _script(path, database):
                await connection.query(statement)
        await connection.commit()
    finally:
        connection.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def samples(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[MysqlTool, dict[str, str]]]:
    """The tool over both databases, with one account that reads their tables, and the databases' names."""
    await require_server()
    folder = data_dir() / "sql"
    names = {"sakila": fresh_name("sakila"), "chinook": fresh_name("chinook")}
    user = fresh_name("u")
    try:
        await as_root(*(f"CREATE DATABASE {name} CHARACTER SET utf8mb4" for name in names.values()))
        await _load(
            names["sakila"], folder / "sakila" / "sakila-mv-schema.sql", folder / "sakila" / "sakila-mv-data.sql"
        )
        await _load(names["chinook"], folder / "chinook" / "Chinook_MySql.sql")
        grants = [f"SELECT ON {names['sakila']}.`{table}`" for table in SAKILA]
        await create_account(user, *grants, *(f"SELECT ON {names['chinook']}.`{table}`" for table in CHINOOK))
        catalog = build_catalog(
            {"datasource": [
                {"name": "sakila", "dsn_env": "SAKILA_DSN", "tables": {table: [] for table in SAKILA}},
                {"name": "chinook", "dsn_env": "CHINOOK_DSN", "tables": {table: [] for table in CHINOOK}},
            ]}, tmp_path_factory.mktemp("catalog"),
        )  # fmt: skip
        dsn = {
            f"{key.upper()}_DSN": account_url(user, name).render_as_string(hide_password=False)
            for key, name in names.items()
        }
        tool = build_mysql_tool(catalog, dsn)
        assert tool is not None
        yield tool, names
        await tool.close()
    finally:
        await as_root(
            *(f"DROP DATABASE IF EXISTS {name}" for name in names.values()), f"DROP USER IF EXISTS '{user}'@'%'"
        )


async def _ask(tool: MysqlTool, source: str, sql: str, *params: Any) -> Any:
    request = MysqlQueryRequest(datasource=source, sql=sql, params=list(params))
    assert tool.check(request) is None
    return await tool.run(request, CallContext(now=0.0, at_given=False, deadline_seconds=3.0))


def _same(cell: Any) -> Any:
    """What the plain driver gives, as the tool shows it."""
    return str(cell) if cell is not None and not isinstance(cell, int | float) else cell


async def test_r121_thirty_queries_of_an_engineer_give_what_the_server_gives(
    samples: tuple[MysqlTool, dict[str, str]],
) -> None:
    tool, names = samples
    assert len(QUERIES) > 30
    for source, sql in QUERIES:
        outcome = await _ask(tool, source, sql)
        rows = [
            [_same(cell) for cell in row]
            for row in await as_root(f"SET SESSION sql_mode='{SQL_MODE}'", sql, database=names[source])
        ]
        empty = any(sql.startswith(start) for start in EMPTY)
        assert outcome.evidence_status is (EvidenceStatus.NO_EVIDENCE if empty else EvidenceStatus.EVIDENCE_FOUND), sql
        assert outcome.agent_result["rows"] == rows[:20], sql
        assert outcome.truncated is (len(rows) > 20), sql


async def test_known_facts_of_both_databases(samples: tuple[MysqlTool, dict[str, str]]) -> None:
    tool, _ = samples
    counts = await _ask(tool, "sakila", QUERIES[19][1])
    assert counts.agent_result["rows"] == [[16044, 16049, 599]]
    films = await _ask(tool, "sakila", "SELECT COUNT(*) FROM film WHERE rating = ? AND length > ?", "PG-13", 100)
    assert films.agent_result["rows"][0][0] > 100
    tracks = await _ask(tool, "chinook", "SELECT COUNT(*) FROM Track")
    assert tracks.agent_result["rows"] == [[3503]]


async def test_r124_spatial_sets_years_and_pictures_come_out(samples: tuple[MysqlTool, dict[str, str]]) -> None:
    tool, names = samples
    point = await _ask(tool, "sakila", "SELECT location FROM address WHERE address_id = 1")
    text = point.agent_result["rows"][0][0]
    ((expected,),) = await as_root(
        "SELECT ST_AsText(location) FROM address WHERE address_id = 1", database=names["sakila"]
    )
    numbers = [float(number) for number in re.findall(r"[-\d.]+", text)]
    assert numbers == pytest.approx([float(number) for number in re.findall(r"[-\d.]+", expected)])
    assert text.startswith("POINT(-112.8")
    film = await _ask(
        tool, "sakila", "SELECT special_features, rating, release_year, rental_rate FROM film WHERE film_id = 1"
    )
    assert film.agent_result["rows"] == [["Deleted Scenes,Behind the Scenes", "PG", 2006, "0.99"]]
    picture = await _ask(tool, "sakila", "SELECT picture, picture IS NULL FROM staff ORDER BY staff_id")
    assert picture.agent_result["rows"][0][0].startswith("hex:89504e47")
    assert (picture.truncated, picture.agent_result["rows"][1]) == (True, [None, 1])


async def test_r55_a_password_column_is_masked(samples: tuple[MysqlTool, dict[str, str]]) -> None:
    tool, _ = samples
    staff = await _ask(
        tool, "sakila", "SELECT username, password, CONCAT(password, 'x') AS p FROM staff ORDER BY staff_id LIMIT 1"
    )
    assert staff.agent_result["rows"] == [["Mike", MASK, MASK]]


async def test_r124_a_wide_result_of_a_sample_is_bounded(samples: tuple[MysqlTool, dict[str, str]]) -> None:
    tool, _ = samples
    outcome = await _ask(tool, "sakila", "SELECT * FROM rental r JOIN payment p USING (customer_id)")
    assert (len(outcome.agent_result["rows"]) <= 20, outcome.truncated, outcome.returned_count) == (True, True, 50)


async def test_r124_views_run_with_the_invokers_rights_and_routines_are_out_of_reach(
    samples: tuple[MysqlTool, dict[str, str]],
) -> None:
    tool, names = samples
    request = MysqlQueryRequest(datasource="sakila", sql="SELECT get_customer_balance(1, NOW())")
    refusal = tool.check(request)
    assert refusal is not None
    assert refusal.rule == "function_not_allowed"
    user = fresh_name("u")
    await create_account(user, f"SELECT ON {names['sakila']}.customer")
    backend = SqlAlchemyBackend(
        account_url(user, names["sakila"]), AccountRule(names["sakila"], frozenset({"customer"}))
    )
    try:
        for sql in ("SELECT get_customer_balance(1, NOW())", "SELECT * FROM rental"):
            with pytest.raises(Exception, match="DB_ERROR"):
                await backend.query(Query(sql, (), None, timedelta(), 2.8))
    finally:
        await backend.close()
        await as_root(f"DROP USER '{user}'@'%'")
    assert PASSWORD not in tool.description
