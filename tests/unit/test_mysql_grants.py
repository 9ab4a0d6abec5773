"""What SHOW GRANTS of MySQL 8 and MariaDB 10 says, and what the tool makes of it (R124)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.catalog import CatalogError, build_catalog
from tools.mysql.account import read_account
from tools.mysql.grant_lines import Privilege, read_grant_lines, read_role_names
from tools.mysql.grants import AccountRule, GrantReport, judge_grants

SHOP = AccountRule("shop", frozenset({"orders", "payments", "audit.events"}))
SYSTEM = AccountRule("shop", frozenset({"orders", "information_schema.processlist"}))
PASSWORD = "IDENTIFIED BY PASSWORD '*D821809F681A40A6E379B50D0463EFAE20BDD122'"
READS = ("GRANT USAGE ON *.* TO `agent`@`%` " + PASSWORD, "GRANT SELECT ON `shop`.`orders` TO `agent`@`%`")


def test_r124_an_account_that_only_reads_the_listed_tables_has_nothing_to_report() -> None:
    lines = (*READS, "GRANT SELECT (`id`, `status`) ON `shop`.`payments` TO `agent`@`%`",
             "GRANT SELECT ON `audit`.`events` TO `agent`@`%`")  # fmt: skip
    report = judge_grants(lines, SHOP)
    assert (report, report.warnings(), report.privileged) == (GrantReport(), (), False)


@pytest.mark.parametrize(
    ("line", "dangerous"),
    [
        ("GRANT FILE ON *.* TO `agent`@`%` " + PASSWORD, "FILE"),
        ("GRANT SELECT, SUPER ON *.* TO `agent`@`%`", "SUPER"),
        ("GRANT PROCESS ON *.* TO `agent`@`%`", "PROCESS"),
        ("GRANT SHUTDOWN ON *.* TO `agent`@`%` REQUIRE SSL", "SHUTDOWN"),
        ("GRANT CREATE USER ON *.* TO `agent`@`%`", "CREATE USER"),
        ("GRANT SET USER, BINLOG ADMIN ON *.* TO `agent`@`%`", "BINLOG ADMIN"),
        ("GRANT BACKUP_ADMIN,SYSTEM_VARIABLES_ADMIN ON *.* TO `agent`@`%`", "SYSTEM_VARIABLES_ADMIN"),
        ("GRANT SELECT INTO S3 ON *.* TO `agent`@`%`", "SELECT INTO S3"),
        ("GRANT SOME_LATER_PRIVILEGE ON *.* TO `agent`@`%`", "SOME_LATER_PRIVILEGE"),
        ("GRANT EXECUTE ON `shop`.* TO `agent`@`%`", "EXECUTE on shop"),
        ("GRANT EXECUTE ON PROCEDURE `shop`.`p` TO `agent`@`%`", "EXECUTE on shop.p"),
        ("GRANT EXECUTE, ALTER ROUTINE ON PACKAGE BODY `shop`.`p` TO `agent`@`%`", "EXECUTE on shop.p"),
        ("GRANT ALL PRIVILEGES ON *.* TO `agent`@`%` WITH GRANT OPTION", "ALL PRIVILEGES"),
        ("GRANT ALL PRIVILEGES ON `shop`.* TO `agent`@`%`", "ALL PRIVILEGES on shop"),
        ("GRANT SELECT ON `shop`.`orders` TO `agent`@`%` WITH GRANT OPTION", "GRANT OPTION on shop.orders"),
        ("GRANT SELECT ON `shop`.`orders` TO 'agent'@'%' WITH MAX_USER_CONNECTIONS 5 GRANT OPTION", "GRANT OPTION on"),
        ("GRANT PROXY ON ``@`%` TO `agent`@`%`", "PROXY"),
        ("GRANT PROXY ON 'app'@'localhost' TO 'agent'@'%' WITH GRANT OPTION", "PROXY"),
        ("GRANT `dba`@`%` TO `agent`@`%` WITH ADMIN OPTION", "ROLE ADMIN OPTION"),
        ("GRANT SELECT, FILE ON *.* TO PUBLIC", "FILE"),
    ],
)  # fmt: skip
def test_r124_privileges_of_an_administrator_are_dangerous(line: str, dangerous: str) -> None:
    report = judge_grants([*READS, line], SHOP)
    assert report.privileged
    assert any(phrase.startswith(dangerous) for phrase in report.dangerous), report.dangerous
    assert report.not_understood == 0
    assert "has privileges of an administrator" in report.warnings()[0]


@pytest.mark.parametrize(
    ("line", "extra"),
    [
        ("GRANT SELECT, INSERT, UPDATE ON `shop`.`orders` TO `a`@`%`", ("INSERT on shop.orders", "UPDATE on shop.orders")),
        ("GRANT SELECT (`a b`, `id`), INSERT (`id`) ON `shop`.`orders` TO `a`@`%`", ("INSERT (1 columns) on shop.orders",)),
        ("GRANT SHOW VIEW ON `shop`.* TO `a`@`%`", ("SHOW VIEW on shop",)),
        ("GRANT SHOW DATABASES, REPLICATION CLIENT ON *.* TO `a`@`%`", ("SHOW DATABASES", "REPLICATION CLIENT")),
        ("GRANT ALL PRIVILEGES ON `shop`.`orders` TO `a`@`%`", ("ALL PRIVILEGES on shop.orders",)),
        ("GRANT DELETE HISTORY ON `shop`.* TO `a`@`%`", ("DELETE HISTORY on shop",)),
    ],
)  # fmt: skip
def test_r124_changing_tables_is_more_than_reading_but_not_an_administrators(line: str, extra: tuple[str, ...]) -> None:
    report = judge_grants([line], SHOP)
    assert (report.extra, report.dangerous, report.privileged) == (extra, (), False)
    assert report.warnings()[0].startswith("can do more than read: ")


@pytest.mark.parametrize(
    ("line", "beyond"),
    [
        ("GRANT SELECT ON *.* TO `a`@`%`", "every table of every database"),
        ("GRANT SELECT ON `shop`.* TO `a`@`%`", "every table of shop"),
        ("GRANT SELECT ON `shop\\_eu`.* TO `a`@`%`", "every table of shop_eu"),
        ("GRANT SELECT ON `shop%`.* TO `a`@`%`", "every table of every database like shop%"),
        ("GRANT SELECT ON `shop\\%`.* TO `a`@`%`", "every table of shop%"),
        ("GRANT SELECT ON `shop`.`users` TO `a`@`%`", "shop.users"),
        ("GRANT SELECT ON TABLE `shop`.`users` TO `a`@`%`", "shop.users"),
        ("GRANT SELECT (`id`) ON `other`.`orders` TO `a`@`%`", "other.orders"),
        ('GRANT SELECT ON "shop"."odd`t" TO "a"@"%"', "shop.odd`t"),
        ("GRANT SELECT ON `shop`.`a``b` TO `a`@`%`", "shop.a`b"),
        ("GRANT SELECT ON `shop`.`Orders` TO `a`@`%`", "shop.Orders"),
        ("GRANT SELECT ON shop.users TO a@`%`", "shop.users"),
    ],
)
def test_r124_reading_more_than_the_listed_tables_is_named(line: str, beyond: str) -> None:
    report = judge_grants([line], SHOP)
    assert (report.beyond, report.extra, report.privileged) == ((beyond,), (), False)


def test_r124_process_is_fine_where_the_catalogue_lists_system_views() -> None:
    line = "GRANT PROCESS ON *.* TO `agent`@`%`"
    assert judge_grants([*READS, line], SYSTEM).warnings() == ()
    assert judge_grants([*READS, line], SHOP).privileged
    assert judge_grants([*READS, line.replace("PROCESS", "PROCESS, SUPER")], SYSTEM).dangerous == ("SUPER",)


def test_r124_privileges_of_active_roles_count_and_idle_roles_are_named() -> None:
    mariadb = (
        "GRANT `reader` TO `agent`@`%`", "GRANT `dba` TO `agent`@`%`", "GRANT USAGE ON *.* TO `agent`@`%`",
        "GRANT `inner` TO `reader`", "GRANT USAGE ON *.* TO `reader`", "GRANT FILE ON *.* TO `inner`",
        "SET DEFAULT ROLE `reader` FOR `agent`@`%`",
    )  # fmt: skip
    report = judge_grants(mariadb, SHOP)
    assert (report.dangerous, report.idle_roles) == (("FILE",), ("dba",))
    mysql = ("GRANT USAGE ON *.* TO `agent`@`%`", "GRANT `dba`@`%`,`reader`@`localhost` TO `agent`@`%`")
    assert judge_grants(mysql, SHOP).idle_roles == ("dba", "reader")
    assert judge_grants(mysql, SHOP, ["reader"]).warnings() == ("could switch on more roles: dba",)


def test_r124_partial_revokes_and_default_roles_are_passed_over() -> None:
    lines = (
        "REVOKE SELECT ON `mysql`.* FROM `a`@`%`",
        "SET DEFAULT ROLE `r` FOR `a`@`%`",
        "SET DEFAULT ROLE NONE FOR `a`@`%`",
    )
    assert judge_grants(lines, SHOP) == GrantReport()


@pytest.mark.parametrize(
    "line",
    ["", "GRANT", "GRANT SELECT", "GRANT SELECT ON `shop`.`orders`", "GRANT SELECT ON TO `a`@`%`", "GRANT ON *.* TO `a`@`%`",
     "GRANT SELECT ON shop TO `a`@`%`", "GRANT SELECT ON `s`.`t`.`u` TO `a`@`%`", "GRANT SELECT ON *.`t` TO `a`@`%`",
     "GRANT SELECT () ON `s`.`t` TO `a`@`%`", "GRANT SELECT (`a` ON `s`.`t` TO `a`@`%`", "GRANT `SELECT` ON *.* TO `a`@`%`",
     "GRANT SELECT ON `s`.`t TO `a`@`%`", "FLUSH PRIVILEGES", "GRANT TO `a`@`%`", "GRANT SELECT,, FILE ON *.* TO `a`@`%`",
     "GRANT SELECT ON *.* TO", "GRANT SELECT ON ).* TO `a`@`%`", "SELECT"],
)  # fmt: skip
def test_r124_a_grant_that_is_not_understood_counts_as_privileged(line: str) -> None:
    report = judge_grants([*READS, line], SHOP)
    assert (report.not_understood, report.privileged) == (1, True)
    assert report.warnings() == ("has 1 grants in a form that is not known",)


def test_r124_warnings_are_bounded_and_carry_no_hash() -> None:
    lines = [f"GRANT SELECT, INSERT ON `{'x' * 60}`.`{'t' * 60}{index}` TO `a`@`%` {PASSWORD}" for index in range(500)]
    warnings = judge_grants([*lines, f"GRANT SUPER ON *.* TO `a`@`%` {PASSWORD}"], SHOP).warnings()
    assert len(warnings) == 3
    assert all(len(warning) < 2_500 for warning in warnings)
    assert not any("*D82" in warning or "PASSWORD" in warning for warning in warnings)
    assert "and 488 more" in warnings[1]


def test_r124_role_lists_of_mysql_are_read() -> None:
    assert read_role_names("NONE") == ()
    assert read_role_names("`a`@`%`,`b``c`@`localhost`") == (("a", "%"), ("b`c", "localhost"))
    with pytest.raises(ValueError, match="not a list of roles"):
        read_role_names("`a`@`%`,,")


async def test_r124_mysql_is_asked_for_its_active_roles_by_name() -> None:
    answers = {
        "SHOW GRANTS": ["GRANT USAGE ON *.* TO `u`@`%`", "GRANT `idle`@`%`,`od``d`@`%` TO `u`@`%`"],
        "SELECT CURRENT_ROLE()": ["`od``d`@`%`"],
        "SHOW GRANTS FOR CURRENT_USER() USING `od``d`@`%`": ["GRANT FILE ON *.* TO `u`@`%`"],
    }

    async def ask(statement: str, /) -> list[str]:
        return list(answers[statement])

    report = await read_account(ask, is_mariadb=False, rule=SHOP)
    assert (report.dangerous, report.idle_roles) == (("FILE",), ("idle",))
    assert (await read_account(ask, is_mariadb=True, rule=SHOP)).idle_roles == ("idle", "od`d")


_NAMES = st.text(min_size=1, max_size=12)
_PRIVILEGES = st.sampled_from(
    ["SELECT", "INSERT", "FILE", "CREATE USER", "BACKUP_ADMIN", "ALTER ROUTINE", "LOCK TABLES"]
)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@st.composite
def _grants(draw: st.DrawFn) -> tuple[str, list[Privilege]]:
    database = draw(st.none() | _NAMES)
    table = draw(_NAMES | st.none()) if database is not None else None
    items = draw(st.lists(st.tuples(_PRIVILEGES, st.lists(_NAMES, max_size=3)), min_size=1, max_size=4))
    option = draw(st.booleans())
    parts = [
        name + (f" ({', '.join(_quoted(column) for column in columns)})" if columns else "") for name, columns in items
    ]
    place = f"{_quoted(database) if database is not None else '*'}.{_quoted(table) if table is not None else '*'}"
    grantee = draw(st.builds(lambda user, host: f"{_quoted(user)}@{_quoted(host)}", _NAMES, _NAMES))
    tail = draw(st.sampled_from(["", " " + PASSWORD, " REQUIRE SUBJECT 'x WITH GRANT OPTION, (FILE'"]))
    tail += " WITH GRANT OPTION" if option else ""
    expected = [Privilege(name, database, table, tuple(columns)) for name, columns in items]
    expected += [Privilege("GRANT OPTION", database, table)] if option else []
    return f"GRANT {', '.join(parts)} ON {place} TO {grantee}{tail}", expected


@given(st.lists(_grants(), max_size=4))
def test_r124_what_a_server_writes_is_read_back(grants: list[tuple[str, list[Privilege]]]) -> None:
    read = read_grant_lines([line for line, _ in grants])
    assert list(read.privileges) == [privilege for _, expected in grants for privilege in expected]
    assert read.not_understood == 0


@given(
    st.lists(st.text(max_size=60) | st.text("GRANT SELECTON TO`'\".,()*@\\ ", max_size=60), max_size=4),
    st.integers(0, 4),
)
def test_r124_no_text_raises_or_hides_a_dangerous_privilege(lines: list[str], place: int) -> None:
    plain: Any = judge_grants(lines, SHOP)
    assert isinstance(plain.warnings(), tuple)
    lines.insert(place, "GRANT SELECT, FILE ON *.* TO `a`@`%`")
    assert "FILE" in judge_grants(lines, SHOP).dangerous


def test_r124_only_a_datasource_with_accounts_can_allow_a_privileged_one(tmp_path: Path) -> None:
    source = {"name": "shop", "tables": {"orders": ["id"]}, "allow_privileged": True}
    assert build_catalog({"datasource": [{**source, "dsn_env": "SHOP_DSN"}]}, tmp_path).datasources[0].allow_privileged
    with pytest.raises(CatalogError, match="allow_privileged goes with dsn_env"):
        build_catalog({"datasource": [{**source, "path": "shop.db"}]}, tmp_path)
