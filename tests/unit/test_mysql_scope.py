"""Same and different scope of MySQL requests (R43-R47), driver text (R123)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.mysql_texts import LEGITIMATE, TABLES
from tools.contract import Scope
from tools.mysql.driver_text import to_driver_text
from tools.mysql.gate import TableList, judge
from tools.mysql.request import MysqlQueryRequest
from tools.mysql.scope import normalize_sql, project_scope


def _scope(sql: str, *params: str | int | float | bool | None, datasource: str = "shop") -> Scope:
    request = MysqlQueryRequest(datasource=datasource, sql=sql, params=list(params))
    return project_scope("query_mysql", request, ("orders",))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT id FROM orders", "select id\n\tfrom   orders ;"),
        ("SELECT COUNT(*) FROM orders WHERE a = 'X'", "Select count(*) From orders Where a='X'"),
        ("SELECT id FROM orders WHERE a IN (1, 2)", "SELECT id FROM orders WHERE a in ( 1,2 )"),
        ("SELECT id FROM t WHERE b > NOW() - INTERVAL 5 MINUTE", "SELECT id FROM t WHERE b>now()-interval 5 minute"),
        (
            "SELECT CASE WHEN a THEN 1 END FROM t LIMIT 5 OFFSET 1",
            "select case when a then 1 end from t limit 5 offset 1",
        ),
    ],
)
def test_r47_whitespace_and_keyword_case_are_one_scope(one: str, other: str) -> None:
    assert _scope(one) == _scope(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT id FROM orders", "SELECT id FROM Orders"),
        ("SELECT id FROM orders", "SELECT ID FROM orders"),
        ("SELECT id FROM t WHERE a = 'x'", "SELECT id FROM t WHERE a = 'X'"),
        ("SELECT id FROM t WHERE a = 'x  y'", "SELECT id FROM t WHERE a = 'x y'"),
        ("SELECT `From` FROM t", "SELECT `FROM` FROM t"),
        ("SELECT a, b FROM t", "SELECT b, a FROM t"),
        ("SELECT id FROM t WHERE a = 1 AND b = 2", "SELECT id FROM t WHERE b = 2 AND a = 1"),
        ("SELECT id FROM Day", "SELECT id FROM DAY"),
        ("SELECT Day.id FROM Day", "SELECT DAY.id FROM DAY"),
        ("SELECT id FROM t LIMIT 5", "SELECT id FROM t LIMIT 10"),
        ("SELECT id FROM t WHERE a = 1.0", "SELECT id FROM t WHERE a = 1"),
    ],
)
def test_r47_what_may_mean_something_else_is_another_scope(one: str, other: str) -> None:
    assert _scope(one).key != _scope(other).key


def test_r47_parameters_count_with_their_types() -> None:
    sql = "SELECT id FROM orders WHERE a = ?"
    keys = [_scope(sql, value).key for value in (1, "1", 1.0, True, None, "", 0, False)]
    assert len(set(keys)) == len(keys)
    assert _scope(sql, "x").key == _scope("select id from orders where a=?", "x").key


def test_r47_datasource_is_lower_cased_and_counts() -> None:
    assert _scope("SELECT 1", datasource=" Shop ") == _scope("SELECT 1", datasource="shop")
    assert _scope("SELECT 1", datasource="shop").key != _scope("SELECT 1", datasource="shop2").key


def test_r43_the_readable_form_holds_the_three_fields() -> None:
    scope = _scope("select  id from orders where a = ?;", "x", datasource="SHOP")
    assert scope.normalized == {"datasource": "shop", "sql": "SELECT id FROM orders WHERE a = ?", "params": ["x"]}


def test_r104_the_summary_shows_no_text_and_no_parameter() -> None:
    scope = _scope("SELECT id FROM orders WHERE a = 'MARK1' AND b = ?", "MARK2")
    assert scope.summary == f"shop: orders ({scope.key[:12]})"


def test_r44_normalizing_keeps_a_text_allowed_and_is_stable() -> None:
    for sql in LEGITIMATE:
        normal = normalize_sql(sql)
        before, after = judge(sql, TableList(TABLES)), judge(normal, TableList(TABLES))
        assert (after.rule, after.tables, after.placeholders) == (None, before.tables, before.placeholders), sql
        assert normalize_sql(normal) == normal


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80))
def test_r43_projection_is_total(text: str) -> None:
    if any(0xD800 <= ord(char) < 0xE000 for char in text):
        return
    assert normalize_sql(normalize_sql(text)) == normalize_sql(text)


@pytest.mark.parametrize(
    ("sql", "driver"),
    [
        ("SELECT '?', `?`, ? FROM t", "SELECT '?', `?`, %s FROM t"),
        ("SELECT a % 2 FROM t WHERE b LIKE '50%' AND c = ?", "SELECT a %% 2 FROM t WHERE b LIKE '50%%' AND c = %s"),
        ("SELECT '%s', '%(x)s', ?", "SELECT '%%s', '%%(x)s', %s"),
        ("SELECT 'it''s ?', ? ;", "SELECT 'it''s ?', %s ;"),
    ],
)
def test_r123_only_placeholders_change_on_the_way_to_the_driver(sql: str, driver: str) -> None:
    assert to_driver_text(sql) == driver


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["?", "'?'", "'%'", "'%s'", "`%d`", "a % 2", "'''?'''", "1"]), min_size=1, max_size=8))
def test_r123_the_drivers_formatting_gives_the_original_back(parts: list[str]) -> None:
    sql = f"SELECT {', '.join(parts)}"
    count = parts.count("?")
    assert to_driver_text(sql) % (("?",) * count) == sql
