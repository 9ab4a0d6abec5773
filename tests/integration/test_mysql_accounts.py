"""Accounts on a real server: what each may do is read before its first query, and `doctor` says it (R124)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from service.doctor import Finding, examine
from service.settings import Settings
from tests.data import ROOT
from tests.mysql_server import PASSWORD, account_url, as_root, create_account, fresh_name, require_server
from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.mysql.backend import Query
from tools.mysql.backend_sqlalchemy import SqlAlchemyBackend
from tools.mysql.grants import AccountRule, GrantReport

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONE = Query("SELECT COUNT(*) FROM orders", (), None, timedelta(), 2.8)


@dataclass(frozen=True)
class Shop:
    """A database with two tables and a routine, and the accounts and roles that a test makes."""

    database: str
    users: list[str]
    roles: list[str]

    async def account(self, *grants: str) -> str:
        """Create an account; `{db}` in a grant is this database."""
        user = fresh_name("u")
        self.users.append(user)
        await create_account(user, *(grant.format(db=self.database) for grant in grants))
        return user

    async def role(self, *grants: str, to: str, default: bool) -> str:
        """Create a role with grants and give it to an account or a role."""
        role = fresh_name("r")
        self.roles.append(role)
        granted = [f"GRANT {grant.format(db=self.database)} TO '{role}'" for grant in grants]
        host = "@'%'" if to.startswith("u_") else ""
        await as_root(f"CREATE ROLE '{role}'", *granted, f"GRANT '{role}' TO '{to}'{host}")
        if default:
            await as_root(f"SET DEFAULT ROLE '{role}' FOR '{to}'@'%'")
        return role

    def backend(self, user: str, *tables: str, allow: bool = False) -> SqlAlchemyBackend:
        """Open a backend whose catalogue lists `tables`, by default orders."""
        rule = AccountRule(self.database, frozenset(tables or ("orders",)), allow)
        return SqlAlchemyBackend(account_url(user, self.database), rule)

    async def report(self, user: str, *tables: str) -> GrantReport:
        """What the account may do, this database's name replaced."""
        backend = self.backend(user, *tables)
        try:
            report = await backend.account(2.8)
        finally:
            await backend.close()

        def named(phrases: Sequence[str]) -> tuple[str, ...]:
            return tuple(phrase.replace(self.database, "{db}") for phrase in phrases)

        return GrantReport(
            named(report.dangerous), named(report.extra), named(report.beyond), report.idle_roles, report.not_understood
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[Shop]:
    await require_server()
    found = Shop(fresh_name("superbiz"), [], [])
    try:
        await as_root(f"CREATE DATABASE {found.database} CHARACTER SET utf8mb4")
        await as_root(
            "CREATE TABLE orders (id INT, note TEXT, `a b` INT)", "CREATE TABLE payments (id INT)",
            "CREATE TABLE `odd``t` (id INT)",
            "CREATE PROCEDURE p() SELECT 1", database=found.database,
        )  # fmt: skip
        yield found
    finally:
        await as_root(
            f"DROP DATABASE IF EXISTS {found.database}",
            *(f"DROP USER IF EXISTS '{user}'@'%'" for user in found.users),
            *(f"DROP ROLE IF EXISTS '{role}'" for role in found.roles),
        )


async def test_r124_the_account_of_the_docs_has_nothing_to_report_and_answers(shop: Shop) -> None:
    user = await shop.account("SELECT ON {db}.orders")
    assert await shop.report(user) == GrantReport()
    backend = shop.backend(user)
    assert (await backend.query(ONE)).rows == ((0,),)
    await backend.close()


async def test_r124_the_statements_of_the_docs_make_such_an_account(shop: Shop) -> None:
    blocks = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "mysql.md").read_text("utf-8"), re.DOTALL)
    reading, system = ([line.rstrip(";") for line in block.splitlines()] for block in blocks)
    user = fresh_name("u")
    shop.users.append(user)
    for line in (*reading, *system):
        line = line.replace("'superbiz'", f"'{user}'").replace("shop.", f"{shop.database}.")
        await as_root(line.replace("a long random password", PASSWORD))
    view = "performance_schema.events_statements_summary_by_digest"
    assert await shop.report(user, "orders", "payments", "information_schema.processlist", view) == GrantReport()


@pytest.mark.parametrize(
    ("grants", "expected"),
    [
        (("SELECT ON {db}.*",), GrantReport(beyond=("every table of {db}",))),
        (("SELECT ON `{db}`.`odd``t`",), GrantReport(beyond=("{db}.odd`t",))),
        (("SELECT ON `{db}%`.*",), GrantReport(beyond=("every table of every database like {db}%",))),
        (("SELECT (id, `a b`), INSERT (id) ON {db}.orders",), GrantReport(extra=("INSERT (1 columns) on {db}.orders",))),
        (
            ("SELECT, INSERT, UPDATE ON {db}.orders", "SHOW VIEW ON {db}.*"),
            GrantReport(extra=("SHOW VIEW on {db}", "INSERT on {db}.orders", "UPDATE on {db}.orders")),
        ),
        (("ALL PRIVILEGES ON {db}.orders",), GrantReport(extra=("ALL PRIVILEGES on {db}.orders",))),
        (("SELECT ON *.*",), GrantReport(beyond=("every table of every database",))),
    ],
)  # fmt: skip
async def test_r124_more_than_reading_is_reported_and_not_refused(
    shop: Shop, grants: tuple[str, ...], expected: GrantReport
) -> None:
    user = await shop.account("SELECT (id) ON {db}.orders", *grants)
    assert await shop.report(user) == expected
    backend = shop.backend(user)
    await backend.query(ONE)
    await backend.close()


@pytest.mark.parametrize(
    ("grant", "dangerous"),
    [
        ("FILE ON *.*", "FILE"),
        ("SUPER ON *.*", "SUPER"),
        ("PROCESS ON *.*", "PROCESS"),
        ("SHUTDOWN ON *.*", "SHUTDOWN"),
        ("CREATE USER ON *.*", "CREATE USER"),
        ("SET USER ON *.*", "SET USER"),
        ("BINLOG ADMIN ON *.*", "BINLOG ADMIN"),
        ("EXECUTE ON {db}.*", "EXECUTE on {db}"),
        ("EXECUTE ON PROCEDURE {db}.p", "EXECUTE on {db}.p"),
        ("ALL PRIVILEGES ON {db}.*", "ALL PRIVILEGES on {db}"),
        ("ALL PRIVILEGES ON *.*", "ALL PRIVILEGES"),
    ],
)
async def test_r124_a_privileged_account_is_refused_unless_the_catalogue_allows_it(
    shop: Shop, grant: str, dangerous: str
) -> None:
    user = await shop.account("SELECT ON {db}.orders", grant)
    assert (await shop.report(user)).dangerous == (dangerous,)
    backend = shop.backend(user)
    for _ in range(2):
        with pytest.raises(ToolFailure) as caught:
            await backend.query(ONE)
        assert caught.value.code is ToolErrorCode.BACKEND_UNAVAILABLE
    await backend.close()
    allowed = shop.backend(user, allow=True)
    assert (await allowed.query(ONE)).rows == ((0,),)
    await allowed.close()


async def test_r124_a_refused_account_is_used_as_soon_as_it_has_fewer_grants(shop: Shop) -> None:
    user = await shop.account("SELECT ON {db}.orders", "FILE ON *.*")
    backend = shop.backend(user)
    with pytest.raises(ToolFailure):
        await backend.query(ONE)
    await as_root(f"REVOKE FILE ON *.* FROM '{user}'@'%'")
    assert (await backend.query(ONE)).rows == ((0,),)
    await backend.close()


async def test_r124_grant_option_is_an_administrators(shop: Shop) -> None:
    user = await shop.account()
    await as_root(f"GRANT SELECT ON {shop.database}.orders TO '{user}'@'%' WITH GRANT OPTION")
    assert (await shop.report(user)).dangerous == ("GRANT OPTION on {db}.orders",)


async def test_r124_process_goes_with_listed_system_views(shop: Shop) -> None:
    user = await shop.account("SELECT ON {db}.orders", "PROCESS ON *.*")
    assert (await shop.report(user)).privileged
    assert await shop.report(user, "orders", "information_schema.processlist") == GrantReport()


async def test_r124_active_roles_count_through_every_level_and_idle_ones_are_named(shop: Shop) -> None:
    user = await shop.account()
    outer = await shop.role("SELECT ON {db}.orders", to=user, default=True)
    idle = await shop.role("FILE ON *.*", to=user, default=False)
    assert await shop.report(user) == GrantReport(idle_roles=(idle,))
    backend = shop.backend(user)
    assert (await backend.query(ONE)).rows == ((0,),)
    await backend.close()
    await shop.role("FILE ON *.*", to=outer, default=False)
    assert (await shop.report(user)).dangerous == ("FILE",)


def _catalog(folder: Path, database: str, extra: str = "") -> Settings:
    path = folder / "superbiz.toml"
    path.write_text(f'[[datasource]]\nname = "shop"\ndsn_env = "SHOP_DSN"\n{extra}tables.orders = ["id", "note"]\n')
    return Settings(catalog=path, home=folder / "home")


async def _doctor(settings: Settings, shop: Shop, user: str) -> dict[str, Finding]:
    url = account_url(user, shop.database).set(drivername="mysql").render_as_string(hide_password=False)
    return {finding.subject: finding for finding in await examine(settings, {"SHOP_DSN": url})}


async def test_r124_doctor_says_in_plain_words_what_an_account_may_do(shop: Shop, tmp_path: Path) -> None:
    settings = _catalog(tmp_path, shop.database)
    reader = await _doctor(settings, shop, await shop.account("SELECT ON {db}.orders"))
    assert reader["datasource shop"].ok
    assert "datasource shop account" not in reader
    wider = await _doctor(settings, shop, await shop.account("SELECT, INSERT ON {db}.*"))
    assert wider["datasource shop"].ok
    note = wider["datasource shop account"]
    assert (note.ok, note.broken) == (False, False)
    assert note.text == (
        f"the account can do more than read: INSERT on {shop.database}; "
        f"can read more than the listed tables: every table of {shop.database}"
    )


async def test_r124_doctor_says_why_an_account_is_not_used_and_what_to_do(shop: Shop, tmp_path: Path) -> None:
    user = await shop.account("SELECT ON {db}.orders", "FILE, SUPER ON *.*")
    refused = await _doctor(_catalog(tmp_path, shop.database), shop, user)
    finding = refused["datasource shop account"]
    assert finding.broken
    assert finding.text.startswith("not used: the account has privileges of an administrator: FILE, SUPER; use one ")
    assert "allow_privileged = true" in finding.text
    assert "datasource shop" not in refused
    allowed = await _doctor(_catalog(tmp_path, shop.database, "allow_privileged = true\n"), shop, user)
    assert allowed["datasource shop"].ok
    assert not allowed["datasource shop account"].broken
    for texts in (refused, allowed):
        assert not any("IDENTIFIED" in one.text or "pw-" in one.text for one in texts.values())
