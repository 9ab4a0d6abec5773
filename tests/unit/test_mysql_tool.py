"""The MySQL tool as the harness sees it: schema, checks, control view, configuration (R18-R28, R50, R125-R127)."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tools.catalog import Catalog, CatalogError, build_catalog
from tools.contract import EvidenceStatus, InvocationStatus, ToolErrorCode
from tools.evidence_tool import CallContext, EvidenceTool, ToolFailure
from tools.mysql.contract import GateRule
from tools.mysql.request import MysqlQueryRequest, MysqlToolCall
from tools.mysql.tool import MysqlTool, build_mysql_tool, problems

CONTEXT = CallContext(now=1_772_305_500.0, at_given=False, deadline_seconds=3.0)


def _catalog(base: Path, *more: dict[str, Any], **extra: Any) -> Catalog:
    shop = {"name": "Shop", "description": "orders", "path": "shop.db", "tables": {"orders": ["id", "status"]}, **extra}
    return build_catalog({"datasource": [shop, *more]}, base)


@pytest.fixture
def tool(tmp_path: Path) -> MysqlTool:
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE orders (id INTEGER, status TEXT, password TEXT)")
        connection.execute("INSERT INTO orders VALUES (1, 'PAID', 'hunter2'), (2, 'FAILED', 'hunter3')")
    connection.close()
    built = build_mysql_tool(_catalog(tmp_path), {})
    assert built is not None
    return built


def _request(sql: str, *params: Any, datasource: str = "shop") -> MysqlQueryRequest:
    return MysqlQueryRequest(datasource=datasource, sql=sql, params=list(params))


def test_it_is_an_evidence_tool(tool: MysqlTool) -> None:
    assert isinstance(tool, EvidenceTool)
    assert (tool.name, tool.timeout_seconds, tool.envelope) == ("query_mysql", 3.0, MysqlToolCall)


def test_r22_the_schema_shows_the_concrete_fields_of_input() -> None:
    schema = json.dumps(MysqlToolCall.model_json_schema())
    request = MysqlToolCall.model_json_schema()["$defs"]["MysqlQueryRequest"]
    assert set(request["properties"]) == {"datasource", "sql", "params"}
    assert request["additionalProperties"] is False
    assert request["properties"]["params"]["maxItems"] == 20
    assert all("description" in field for field in request["properties"].values())
    assert "information_gain" in schema


@pytest.mark.parametrize(
    "bad",
    [{"sql": "SELECT 1"}, {"datasource": "shop"}, {"datasource": "shop", "sql": 5}, {"datasource": 1, "sql": "x"},
     {"datasource": "shop", "sql": "x", "params": "a"}, {"datasource": "shop", "sql": "x", "params": [[1]]},
     {"datasource": "shop", "sql": "x", "params": [{}]}, {"datasource": "shop", "sql": "x", "params": [1] * 21},
     {"datasource": "shop", "sql": "x", "extra": 1}, {"datasource": "shop", "sql": "x", "params": [2**64]},
     {"datasource": "shop", "sql": "x", "params": ["\ud800"]},
     {"datasource": "shop", "sql": "x", "params": [float("nan")]}, {"datasource": "shop", "sql": "x", "params": ["x" * 1_001]}],
)  # fmt: skip
def test_r23_requests_are_strict(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        MysqlToolCall.model_validate({"input": bad})


def test_r125_parameters_keep_their_json_types() -> None:
    call = MysqlToolCall.model_validate_json(
        '{"input": {"datasource": "s", "sql": "x", "params": ["1", 1, 1.0, true, null]}}'
    )
    assert [(type(value), value) for value in call.input.params] == [
        (str, "1"), (int, 1), (float, 1.0), (bool, True), (type(None), None),
    ]  # fmt: skip
    assert MysqlToolCall.model_validate({"input": {"datasource": "s", "sql": "x"}}).input.params == []


def test_r28_an_unknown_datasource_names_what_exists_and_not_what_was_sent(tool: MysqlTool) -> None:
    invalid = tool.check(_request("SELECT 1", datasource="MARKER"))
    assert invalid is not None
    assert (invalid.field, invalid.rule, invalid.allowed) == ("input.datasource", "unknown_datasource", "one of: Shop")


@pytest.mark.parametrize("rule", ["sleep(1)", "MARKER_table", "'"])
def test_r28_a_refused_text_names_the_gates_rule_and_not_the_text(tool: MysqlTool, rule: str) -> None:
    sql = {"sleep(1)": "SELECT sleep(1)", "MARKER_table": "SELECT 1 FROM MARKER_table", "'": "SELECT 'MARKER"}[rule]
    invalid = tool.check(_request(sql))
    assert invalid is not None
    assert invalid.field == "input.sql"
    assert invalid.rule in {one.value for one in GateRule}
    assert "MARKER" not in invalid.model_dump_json()


def test_r28_a_table_refusal_lists_the_tables(tool: MysqlTool) -> None:
    invalid = tool.check(_request("SELECT 1 FROM users"))
    assert invalid is not None
    assert invalid.allowed == "tables of this datasource: orders"


def test_r28_hints_stay_bounded_with_many_tables(tmp_path: Path) -> None:
    tables: dict[str, list[str]] = {f"table_with_a_long_name_{index:04d}": ["id"] * 100 for index in range(500)}
    built = build_mysql_tool(_catalog(tmp_path, tables=tables), {})
    assert built is not None
    invalid = built.check(_request("SELECT 1 FROM x"))
    assert invalid is not None
    assert invalid.allowed.endswith(" more")
    assert len(built.description) <= 6_000


@pytest.mark.parametrize(("sql", "params"), [("SELECT ?", []), ("SELECT 1", [1]), ("SELECT '?', ?", [1, 2])])
def test_r126_the_number_of_parameters_must_match(tool: MysqlTool, sql: str, params: list[Any]) -> None:
    invalid = tool.check(_request(sql, *params))
    assert invalid is not None
    assert (invalid.field, invalid.rule) == ("input.params", "param_count_mismatch")


async def test_r126_run_refuses_what_check_refuses(tool: MysqlTool) -> None:
    for request, code in (
        (_request("SELECT 1", datasource="x"), ToolErrorCode.UNKNOWN_DATASOURCE),
        (_request("DROP TABLE orders"), ToolErrorCode.SQL_REJECTED),
        (_request("SELECT ?"), ToolErrorCode.PARAM_COUNT_MISMATCH),
    ):
        with pytest.raises(ToolFailure) as caught:
            await tool.run(request, CONTEXT)
        assert caught.value.code is code


async def test_r50_a_run_yields_result_control_view_observation_and_facts(tool: MysqlTool) -> None:
    request = _request("SELECT id, status, password AS p FROM Orders WHERE status = ? ", "PAID", datasource="SHOP")
    assert tool.check(request) is None
    outcome = await tool.run(request, CONTEXT)
    scope = tool.scope(request)
    assert outcome.raw_response["rows"] == [[1, "PAID", "hunter2"]]
    assert outcome.agent_result == {
        "datasource": "shop", "columns": ["id", "status", "p"], "rows": [[1, "PAID", "[masked]"]], "returned": 1,
        "truncated": False,
    }  # fmt: skip
    view = tool.control(outcome.agent_result, scope)
    assert (view.status, view.evidence_status, view.returned_count) == (
        InvocationStatus.READY, EvidenceStatus.EVIDENCE_FOUND, 1,
    )  # fmt: skip
    seen = tool.observe("call-1", scope, outcome.agent_result)
    assert set(seen) == {"tool_call_id", "scope", "columns", "rows", "evidence_status", "truncated"}
    assert "hunter2" not in json.dumps([seen, outcome.agent_result])
    assert [fact.excerpt for fact in tool.facts(scope, outcome.agent_result)] == ["id=1, status=PAID"]
    json.dumps(outcome.raw_response, allow_nan=False)


async def test_r71_no_row_is_no_evidence_and_keeps_the_scope(tool: MysqlTool) -> None:
    request = _request("SELECT id FROM orders WHERE status = 'NONE'")
    outcome = await tool.run(request, CONTEXT)
    assert (outcome.evidence_status, outcome.returned_count) == (EvidenceStatus.NO_EVIDENCE, 0)
    assert tool.observe("c", tool.scope(request), outcome.agent_result)["rows"] == []


@pytest.mark.parametrize(
    ("now", "at_given", "expected"),
    [(None, False, "2026-03-01 03:05:00"), ("2026-03-12T14:35:00+08:00", False, "2026-03-12 14:35:00"),
     ("2026-03-12T14:35:00+08:00", True, "2026-03-01 03:05:00"), ("latest", False, "2026-03-01 03:05:00")],
)  # fmt: skip
async def test_now_is_the_time_of_the_question_in_the_datasources_zone(
    tmp_path: Path, tool: MysqlTool, now: str | None, at_given: bool, expected: str
) -> None:
    entry = {"name": "shop", "path": "shop.db", "timezone": "Asia/Shanghai", "tables": {"orders": []}}
    built = build_mysql_tool(build_catalog({"now": now, "datasource": [entry]}, tmp_path), {})
    assert built is not None
    outcome = await built.run(_request("SELECT NOW() AS n"), CallContext(1_772_305_500.0, at_given, 3.0))
    assert outcome.agent_result["rows"] == [[expected]]


def test_a_bad_zone_is_a_catalogue_error(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"datasource\.0\.timezone.*IANA"):
        _catalog(tmp_path, timezone="Mars/Olympus")


def test_no_datasource_no_tool(tmp_path: Path) -> None:
    assert build_mysql_tool(build_catalog({}, tmp_path), {}) is None


@pytest.mark.parametrize(
    ("env", "problem"),
    [({}, "dsn_env: SHOP_DSN is not set"), ({"SHOP_DSN": " "}, "dsn_env: SHOP_DSN is not set"),
     ({"SHOP_DSN": "postgresql://u:MARKER@h/d"}, "dsn_env: SHOP_DSN is not a URL like"),
     ({"SHOP_DSN": "MARKER"}, "dsn_env: SHOP_DSN is not a URL like"),
     ({"SHOP_DSN": "mysql://u:MARKER@h:x/d"}, "is not a URL like")],
)  # fmt: skip
async def test_r127_a_missing_or_bad_dsn_is_seen_beforehand_and_fails_at_the_call(
    tmp_path: Path, env: dict[str, str], problem: str
) -> None:
    catalog = build_catalog(
        {"datasource": [{"name": "s", "dsn_env": "SHOP_DSN", "tables": {"orders": ["id"]}}]}, tmp_path
    )
    (found,) = problems(catalog, env)
    assert found.startswith("datasource s: ")
    assert problem in found
    assert "MARKER" not in found
    built = build_mysql_tool(catalog, env)
    assert built is not None
    request = _request("SELECT id FROM orders", datasource="s")
    assert built.check(request) is None
    with pytest.raises(ToolFailure) as caught:
        await built.run(request, CONTEXT)
    assert caught.value.code is ToolErrorCode.BACKEND_UNAVAILABLE


def test_a_missing_driver_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.mysql.datasources.find_spec", lambda name: None)
    catalog = build_catalog({"datasource": [{"name": "s", "dsn_env": "DSN", "tables": {"orders": ["id"]}}]}, tmp_path)
    (found,) = problems(catalog, {"DSN": "mysql://u:MARKER@h/d"})
    assert found == "datasource s: dsn_env: the MySQL driver is not installed; install the extra [mysql]"


def test_a_missing_file_is_seen_beforehand(tmp_path: Path) -> None:
    assert problems(_catalog(tmp_path), {}) == ("datasource Shop: path: the SQLite file does not exist",)


def test_the_description_names_datasources_tables_columns_and_zone(tool: MysqlTool) -> None:
    assert "- Shop (times in UTC): orders\n  - orders (id, status)" in tool.description
    assert "shop.db" not in tool.description


@pytest.mark.parametrize(
    "url", ["mysql://h/d", "mysql+pymysql://h/d", "mysql+aiomysql://h/d", "mariadb://u:p@h:3307/d"]
)
def test_urls_of_both_servers_are_taken(tmp_path: Path, url: str) -> None:
    catalog = build_catalog(
        {"datasource": [{"name": "s", "dsn_env": "SHOP_DSN", "tables": {"orders": ["id"]}}]}, tmp_path
    )
    assert problems(catalog, {"SHOP_DSN": url}) == ()
