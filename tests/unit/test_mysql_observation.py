"""Bounds, masking and whitelist of what the model sees (R51, R52, R55), values as JSON (R124)."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.contract import EvidenceStatus, Scope
from tools.evidence_tool import ObservationContractViolation
from tools.mysql import observation
from tools.mysql.secret_columns import secret_positions
from tools.mysql.values import MAX_RESULT_BYTES, JsonScalar, QueryResult, ResultBuilder, to_json
from tools.scope import make_scope


def _scope(sql: str = "SELECT 1", params: list[Any] | None = None) -> Scope:
    return make_scope("query_mysql", {"datasource": "shop", "sql": sql, "params": params or []}, "shop")


def _observe(result: QueryResult, scope: Scope | None = None, secret: frozenset[int] = frozenset()) -> dict[str, Any]:
    scope = scope or _scope()
    return observation.project("call-1", scope, observation.build_response(scope, result, secret))


def test_r51_the_observation_holds_the_whitelist_and_nothing_else() -> None:
    seen = _observe(QueryResult(("id",), ((1,),), False))
    assert seen == {
        "tool_call_id": "call-1",
        "scope": {"datasource": "shop", "sql": "SELECT 1", "params": []},
        "columns": ["id"],
        "rows": [[1]],
        "evidence_status": "EVIDENCE_FOUND",
        "truncated": False,
    }


def test_r55_rows_columns_and_cells_are_bounded() -> None:
    result = QueryResult(
        tuple(f"c{i}" for i in range(40)), tuple(tuple("v" for _ in range(40)) for _ in range(50)), False
    )
    seen = _observe(result)
    assert (len(seen["rows"]), len(seen["columns"]), len(seen["rows"][0]), seen["truncated"]) == (20, 30, 30, True)
    long = _observe(QueryResult(("c",), (("x" * 500,),), False))
    assert len(long["rows"][0][0]) == 200
    assert long["truncated"] is True
    exact = _observe(QueryResult(("c",), (("x" * 200,),) * 20, False))
    assert (len(exact["rows"]), exact["truncated"]) == (20, False)


def test_r55_returned_counts_rows_even_when_they_are_not_shown() -> None:
    response = observation.build_response(_scope(), QueryResult(("c",), (("x",),) * 50, True), ())
    assert (response.returned, len(response.rows), response.truncated) == (50, 20, True)


_CELLS = st.one_of(st.none(), st.booleans(), st.integers(-(2**64), 2**64), st.floats(allow_nan=False, allow_infinity=False),
                   st.text(st.characters(exclude_categories=["Cs"]), max_size=60).map(lambda text: text * 7))  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 40).flatmap(lambda n: st.lists(st.lists(_CELLS, min_size=n, max_size=n), max_size=25)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), max_size=20),
)
def test_r55_every_observation_fits_8_kib(rows: list[list[JsonScalar]], text: str, params: list[str]) -> None:
    width = len(rows[0]) if rows else 3
    result = QueryResult(tuple(f"{text}{i}"[:64] for i in range(width)), tuple(tuple(row) for row in rows), False)
    seen = _observe(result, _scope(text * 20, params))
    assert len(json.dumps(seen, ensure_ascii=False).encode()) <= 8 * 1024
    assert len(seen["rows"]) == 0 if not rows else len(seen["rows"]) >= 1


def test_r55_the_widest_row_still_shows() -> None:
    result = QueryResult(tuple("列" * 64 for _ in range(30)), (tuple("🙂" * 500 for _ in range(30)),) * 5, False)
    seen = _observe(result, _scope("SELECT '" + "好" * 3_900 + "'", ["\x01" * 1_000] * 20))
    assert len(seen["rows"]) == 1
    assert len(json.dumps(seen, ensure_ascii=False).encode()) <= 8 * 1024


def test_r55_secrets_are_masked_by_name_and_by_content() -> None:
    result = QueryResult(("password", "note", "n"), (("hunter2", "token=abcdef123456", 5),), False)
    response = observation.build_response(
        _scope(), result, secret_positions("SELECT password, note, n FROM t", result.columns)
    )
    assert "hunter2" not in response.model_dump_json()
    assert "abcdef123456" not in response.model_dump_json()
    assert response.rows[0][2] == 5


def test_r55_numbers_under_a_secret_name_are_masked_and_null_stays() -> None:
    result = QueryResult(("api_token",), ((123456,), (None,)), False)
    response = observation.build_response(_scope(), result, secret_positions("SELECT api_token FROM t", result.columns))
    assert response.rows == [["[masked]"], [None]]


@pytest.mark.parametrize(
    ("sql", "columns", "masked"),
    [
        ("SELECT id, password AS p FROM t", ["id", "p"], {1}),
        ("SELECT u.password p, id FROM t u", ["p", "id"], {0}),
        ("SELECT CONCAT(name, password), name FROM t", ["CONCAT(name, password)", "name"], {0}),
        ("SELECT x.p, x.id FROM (SELECT password AS p, id FROM t) x", ["p", "id"], {0}),
        (
            "WITH c AS (SELECT password AS p FROM t), d AS (SELECT p AS q FROM c) SELECT q AS r, 1 AS n FROM d",
            ["r", "n"],
            {0},
        ),
        ("WITH c (p) AS (SELECT password FROM t) SELECT p FROM c", ["p"], {0}),
        ("SELECT 1 AS n, 2 AS m UNION SELECT id, password FROM t", ["n", "m"], {1}),
        ("SELECT id FROM t UNION ALL (SELECT api_key FROM t)", ["id"], {0}),
        ("SELECT (SELECT password FROM t LIMIT 1) AS x, id FROM t", ["x", "id"], {0}),
        ("SELECT * FROM t", ["id", "password", "name"], {1}),
        ("SELECT 'a' AS a, 'b' AS b UNION ALL SELECT * FROM t", ["a", "b"], {0, 1}),
        ("WITH c (x, y) AS (SELECT * FROM t) SELECT x, y FROM c", ["x", "y"], {0, 1}),
        ("SELECT y FROM (SELECT id AS x, 'k' AS y FROM t UNION SELECT id, password FROM t) AS u", ["y"], {0}),
        ("SELECT x FROM (SELECT id AS x, 'k' AS y FROM t UNION SELECT id, password FROM t) AS u", ["x"], set()),
        ("SELECT y FROM (SELECT 1 AS x, 'q' AS y UNION ALL SELECT * FROM t) AS u", ["y"], {0}),
        ("SELECT id FROM a UNION ALL SELECT id FROM b", ["id"], set()),
        ("SELECT t.*, password AS p FROM t", ["id", "name", "p"], {0, 1, 2}),
        ("SELECT * FROM (SELECT password AS p, id FROM t) x", ["p", "id"], {0}),
        ("SELECT id, status FROM t WHERE password_reset_at IS NULL", ["id", "status"], set()),
        ("SELECT token_count FROM t", ["token_count"], set()),
        ("SELECT COUNT(*) AS n FROM t", ["n"], set()),
    ],
)
def test_r55_aliases_do_not_hide_a_secret_column(sql: str, columns: list[str], masked: set[int]) -> None:
    assert secret_positions(sql, columns) == masked


@pytest.mark.parametrize(
    ("sql", "params", "masked"),
    [
        ("SELECT JSON_UNQUOTE(JSON_EXTRACT(data, '$.password')) AS v, id FROM t", [], {0}),
        ("SELECT id, JSON_VALUE(data, '$.a[0].api_key') FROM t", [], {1}),
        ("SELECT JSON_EXTRACT(data, '$.\"db secret\"') AS v, id FROM t", [], {0}),
        ("SELECT JSON_EXTRACT(data, '$.id', '$.token') AS v, id FROM t", [], {0}),
        ("SELECT JSON_EXTRACT(data, '$.secret.x') AS v, id FROM t", [], {0}),
        ("SELECT JSON_EXTRACT(data, '$.*') AS v, id FROM t", [], {0}),
        ("SELECT JSON_EXTRACT(data, '$**.x') AS v, id FROM t", [], {0}),
        ("SELECT JSON_EXTRACT(data, ?) AS v, id FROM t", ["$.password"], {0}),
        ("SELECT JSON_EXTRACT(data, ?) AS v, id FROM t WHERE id = ?", ["$.id", 3], set()),
        ("SELECT JSON_EXTRACT(data, CONCAT('$.pass', 'word')) AS v, id FROM t", [], {0}),
        ("SELECT JSON_EXTRACT(data, path) AS v, id FROM t", [], {0}),
        ("SELECT SUBSTRING_INDEX(data, '\"password\":', -1) AS v, id FROM t", [], {0}),
        ("SELECT x.v, x.id FROM (SELECT JSON_EXTRACT(data, '$.password') AS v, id FROM t) x", [], {0}),
        ("SELECT id AS v, id FROM t UNION SELECT JSON_EXTRACT(data, '$.pwd'), id FROM t", [], {0}),
        ("SELECT JSON_EXTRACT(data, '$.items[*].price') AS v, SUM(kind = 'token') FROM t", [], set()),
        ("SELECT COUNT(*) FROM t WHERE JSON_EXTRACT(data, '$.password') IS NULL", [], set()),
    ],
)
def test_r55_a_path_into_json_does_not_hide_a_secret(sql: str, params: list[Any], masked: set[int]) -> None:
    assert secret_positions(sql, ["v", "id"], params) == masked


def test_r66_facts_are_bounded_excerpts_without_masked_cells() -> None:
    result = QueryResult(("id", "password", "note"), ((1, "x", "y" * 190), (2, "x", None)), False)
    response = observation.build_response(_scope(), result, {1})
    views = observation.facts(response)
    assert [view.excerpt[:9] for view in views] == ["id=1, not", "id=2, not"]
    assert all(len(view.excerpt) <= 300 and "masked" not in view.excerpt for view in views)


@pytest.mark.parametrize(
    "broken",
    [{}, {"rows": []}, {"datasource": "s", "columns": ["a"], "rows": [[1, 2]], "returned": 1, "truncated": False},
     {"datasource": "s", "columns": ["a"], "rows": [[{}]], "returned": 1, "truncated": False},
     {"datasource": "s", "columns": ["a"], "rows": [], "returned": 0, "truncated": False, "more": 1}],
)  # fmt: skip
def test_r53_a_foreign_agent_result_is_a_contract_violation(broken: dict[str, Any]) -> None:
    with pytest.raises(ObservationContractViolation):
        observation.read_response(broken)


def test_r70_no_rows_are_no_evidence() -> None:
    response = observation.build_response(_scope(), QueryResult(("a",), (), False), ())
    assert observation.evidence_status(response) is EvidenceStatus.NO_EVIDENCE
    assert observation.facts(response) == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), (True, True), (5, 5), (2**64, 2**64), (1.5, 1.5), (float("nan"), "nan"), (float("inf"), "inf"),
        (Decimal("1E+3"), "1000"), (Decimal("0.10"), "0.10"), (datetime(2026, 3, 1, 3, 5), "2026-03-01T03:05:00"),
        (date(2026, 3, 1), "2026-03-01"), (timedelta(hours=100, minutes=1), "100:01:00"),
        (-timedelta(hours=838, minutes=59, seconds=59), "-838:59:59"), (timedelta(microseconds=-5), "-00:00:00.000005"),
        (b"\x00\xff", "hex:00ff"), (b"", "hex:"), ({"b", "a"}, "a,b"), ("0000-00-00", "0000-00-00"),
    ],
)  # fmt: skip
def test_r124_values_become_json_without_loss_of_meaning(value: Any, expected: JsonScalar) -> None:
    got = to_json(value)
    assert (got, type(got)) == (expected, type(expected))
    json.dumps(got, allow_nan=False)


def test_r124_the_raw_result_is_bounded_in_rows_cells_and_bytes() -> None:
    builder = ResultBuilder(["a"])
    assert [builder.add(["x"]) for _ in range(51)] == [True] * 50 + [False]
    assert (len(builder.build().rows), builder.build().truncated) == (50, True)
    cells = ResultBuilder(["a"])
    cells.add(["好" * 5_000])
    cell = cells.build().rows[0][0]
    assert isinstance(cell, str)
    assert len(cell.encode()) <= 2_048
    assert cells.build().truncated
    heavy = ResultBuilder([str(i) for i in range(10)])
    while heavy.add(["x" * 2_000] * 10):
        pass
    assert sum(len(str(c)) for row in heavy.build().rows for c in row) <= MAX_RESULT_BYTES
    assert heavy.build().truncated
