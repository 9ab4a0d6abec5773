"""The gate against the written corpus, hostile texts, legitimate texts and random ones (R121-R123)."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tests.data import ROOT, spec_dir
from tests.unit.mysql_calls import EXPRESSIONS
from tests.unit.mysql_differences import ONLY_THE_PARSER, ONLY_THE_SERVER, READ_DIFFERENTLY
from tests.unit.mysql_texts import DEEP, HOSTILE, LEGITIMATE, MALFORMED, TABLES
from tools.mysql.contract import GateRule
from tools.mysql.functions import ALLOWED_FUNCTIONS
from tools.mysql.gate import HINTS, TableList, judge, judge_line
from tools.mysql.lexical import GateRefusal, Kind, tokenize

LISTED = TableList(TABLES)


def _corpus() -> list[dict[str, str]]:
    return [json.loads(line) for line in (spec_dir() / "sql_corpus.jsonl").read_text("utf-8").splitlines()]


def test_r121_every_corpus_text_gets_exactly_its_verdict() -> None:
    got = {row["sql"]: "allow" if judge(row["sql"], LISTED).allowed else "reject" for row in _corpus()}
    assert got == {row["sql"]: row["verdict"] for row in _corpus()}


@pytest.mark.parametrize(("sql", "rule"), [*HOSTILE, *DEEP])
def test_r123_hostile_texts_are_refused_by_their_rule(sql: str, rule: str) -> None:
    assert judge(sql, LISTED).rule == rule


@pytest.mark.parametrize(("sql", "rule"), [*READ_DIFFERENTLY, *ONLY_THE_SERVER, *ONLY_THE_PARSER])
def test_r123_differences_of_parser_and_server_are_refused_by_their_rule(sql: str, rule: str) -> None:
    assert judge(sql, LISTED).rule == rule


def test_r123_the_parser_alone_would_have_read_them() -> None:
    for sql, _ in (*READ_DIFFERENTLY, *ONLY_THE_PARSER):
        assert _read_by_parser(sql), sql
    assert [sql for sql, _ in ONLY_THE_SERVER if _read_by_parser(sql)] == []
    texts = [sql for sql, _ in (*READ_DIFFERENTLY, *ONLY_THE_SERVER, *ONLY_THE_PARSER)]
    assert len(set(texts)) == len(texts) > 60
    assert not set(texts) & ({sql for sql, _ in HOSTILE} | set(MALFORMED) | {row["sql"] for row in _corpus()})


def _read_by_parser(sql: str) -> bool:
    try:
        statements = sqlglot.parse(sql, dialect="mysql")
    except SqlglotError:
        return False
    return len(statements) == 1 and statements[0] is not None and not isinstance(statements[0], exp.Command)


def test_r123_malformed_texts_fail_closed() -> None:
    assert [sql for sql in MALFORMED if judge(sql, LISTED).allowed] == []


@pytest.mark.parametrize("sql", LEGITIMATE)
def test_r121_what_an_engineer_writes_is_allowed(sql: str) -> None:
    assert judge(sql, LISTED).rule is None
    assert judge(f"{sql} ;\n", LISTED).allowed


@pytest.mark.parametrize(
    "suffix", [" INTO OUTFILE '/x'", " FOR UPDATE", " LOCK IN SHARE MODE", "; SELECT 1", " -- x", " PROCEDURE p()"]
)
def test_r121_no_allowed_text_stays_allowed_with_a_hostile_end(suffix: str) -> None:
    assert [sql for sql in LEGITIMATE if judge(sql + suffix, LISTED).allowed] == []


def test_r121_no_table_is_read_that_is_not_listed() -> None:
    for sql in LEGITIMATE:
        for name in judge(sql, LISTED).tables:
            assert judge(sql, TableList(TABLES - {name})).rule is GateRule.TABLE_NOT_ALLOWED, sql


def test_r121_every_listed_function_can_be_called() -> None:
    refused = {call: judge(f"SELECT {call} FROM t", LISTED).rule for call in EXPRESSIONS}
    assert {call: rule for call, rule in refused.items() if rule is not None} == {}


def test_r121_every_listed_function_is_among_the_examples() -> None:
    assert set(re.findall(r"([A-Z][A-Z_0-9]*)\(", " ".join(EXPRESSIONS))) >= ALLOWED_FUNCTIONS


def test_r121_case_of_a_table_matters_unless_the_datasource_says_otherwise() -> None:
    assert judge("SELECT 1 FROM Orders", TableList(frozenset({"orders"}))).rule is GateRule.TABLE_NOT_ALLOWED
    assert judge("SELECT 1 FROM Orders", TableList(frozenset({"orders"}), case_sensitive=False)).allowed


def test_r121_qualified_names_only_where_listed() -> None:
    system = TableList(frozenset({"orders", "information_schema.processlist"}))
    assert judge("SELECT id FROM information_schema.processlist", system).tables == ("information_schema.processlist",)
    assert judge("SELECT id FROM information_schema.`processlist`", system).allowed
    assert judge("SELECT id FROM processlist", system).rule is GateRule.TABLE_NOT_ALLOWED
    assert judge("SELECT id FROM shop.orders", system).rule is GateRule.TABLE_NOT_ALLOWED
    assert judge("SELECT id FROM `information_schema.processlist`", system).rule is GateRule.TABLE_NOT_ALLOWED


def test_r121_dual_is_a_table_like_any_other() -> None:
    assert judge("SELECT 1 FROM dual", TableList(frozenset({"orders"}))).rule is GateRule.TABLE_NOT_ALLOWED


@pytest.mark.parametrize("length", [4_000, 4_001])
def test_r122_length_is_counted_in_characters(length: int) -> None:
    sql = "SELECT '" + "好" * (length - 9) + "'"
    assert len(sql) == length
    assert judge(sql, LISTED).rule == (None if length <= 4_000 else GateRule.TOO_LONG)


@pytest.mark.parametrize("body", [': @ # -- /* */ %s ? ; { } " 中文　全角 🙂', "it''s", "''", "a\tb\nc", "''''"])
def test_r122_inside_literals_everything_printable_is_data(body: str) -> None:
    verdict = judge(f"SELECT id FROM t WHERE note = '{body}' AND `列 ; -- ?` = ?", LISTED)
    assert verdict.allowed
    assert verdict.placeholders == 1


@pytest.mark.parametrize(
    "char", [chr(code) for code in (*range(32), 127, 0x85, 0x2028, 0x202E, 0xFEFF, 0xD800, 0xE000)]
)
def test_r122_control_characters_are_refused_everywhere(char: str) -> None:
    if char in "\t\n":
        assert judge(f"SELECT{char}1", LISTED).allowed
        return
    for text in (f"SELECT{char}1", f"SELECT '{char}'", f"SELECT `{char}` FROM t"):
        assert judge(text, LISTED).rule is GateRule.CONTROL_CHARACTER


def test_r123_placeholders_are_counted_outside_literals_only() -> None:
    verdict = judge("SELECT '?', `?`, ? FROM t WHERE a IN (?, ?)", LISTED)
    assert (verdict.allowed, verdict.placeholders) == (True, 3)


def test_command_answers_every_line_in_order_and_never_with_a_traceback() -> None:
    lines = [b'{"sql": "SELECT 1"}', b"not json", b"\xff\xfe", b'{"sql": 5}', b"[1]", b"", b'{"sql": "\\ud800"}',
             b"[" * 100_000, b'{"sql": "DROP TABLE t", "verdict": "allow"}',
             '{"sql": "SELECT \'中\' FROM t;"}'.encode()]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tools.mysql.gate", "--tables", " t , a"],
        input=b"\n".join(lines),
        capture_output=True,
        cwd=ROOT,
        check=True,
        timeout=60,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.stderr == b""
    assert [(answer["verdict"], answer["rule"]) for answer in answers] == [
        ("allow", None), *[("reject", "bad_input")] * 5, ("reject", "control_character"), ("reject", "bad_input"),
        ("reject", "not_a_select"), ("allow", None),
    ]  # fmt: skip
    assert [answer["sql"] for answer in answers] == [
        "SELECT 1", None, None, 5, None, None, "\ud800", None, "DROP TABLE t", "SELECT '中' FROM t;",
    ]  # fmt: skip
    assert all(list(answer) == ["sql", "verdict", "rule"] for answer in answers)


def test_command_on_the_corpus_gives_exactly_its_verdicts() -> None:
    path = spec_dir() / "sql_corpus.jsonl"
    tables = "orders,users,user_profiles,a,b,t,logs,audit,documents,dual,table1"
    done = subprocess.run(
        [sys.executable, "-m", "tools.mysql.gate", "--tables", tables],
        input=path.read_bytes(), capture_output=True, cwd=ROOT, check=True, timeout=60,
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(a["sql"], a["verdict"]) for a in answers] == [(row["sql"], row["verdict"]) for row in _corpus()]
    assert all((answer["rule"] is None) == (answer["verdict"] == "allow") for answer in answers)


def _documented() -> dict[str, tuple[str, str]]:
    text = (ROOT / "docs" / "sql-gate.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    return {rule: (meaning, example) for rule, meaning, example in rows}


def _rule_docstrings() -> dict[str, str]:
    tree = ast.parse(Path(ROOT / "tools" / "mysql" / "contract.py").read_text("utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "GateRule")
    found = {}
    for node, after in pairwise(body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(after, ast.Expr):
            assert isinstance(after.value, ast.Constant)
            found[str(node.value.value)] = str(after.value.value)
    return found


def test_r123_the_list_of_rules_in_the_docs_is_the_enum() -> None:
    documented = _documented()
    assert set(documented) == {rule.value for rule in GateRule} == {rule.value for rule in HINTS}
    assert {rule: meaning for rule, (meaning, _) in documented.items()} == _rule_docstrings()


@pytest.mark.parametrize("rule", [rule.value for rule in GateRule])
def test_r123_every_documented_example_breaks_its_rule(rule: str) -> None:
    example = _documented()[rule][1]
    if example.startswith("("):
        assert any(expected == rule for _, expected in (*HOSTILE, *DEEP))
    elif rule == "bad_input":
        assert judge_line(example.strip("`").encode(), LISTED)["rule"] == rule
    else:
        assert judge(example.strip("`"), LISTED).rule == rule


_WORDS = """
SELECT FROM WHERE a t orders users secret mysql.user * , ( ) ; ' '' ` ? . 1 1.5 0x1 -- # /* */ @ : \\ " % %s
|| = < > UNION ALL WITH AS c JOIN ON IN LIKE 'x' 'a;b' `d` COUNT( SLEEP( sleep ( INTO OUTFILE FOR UPDATE LOCK
NOW() INTERVAL DAY ORDER BY LIMIT OVER PARTITION EXISTS NOT CASE WHEN THEN END TABLE VALUES RECURSIVE
PROCEDURE _utf8 N X b DISTINCT + - 中 { } $ ! ~ & | ^
"""
_PIECES = st.sampled_from([*_WORDS.split(), "\t", "\n", "\x00"])


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(
        st.text(max_size=80), st.lists(_PIECES, max_size=25).map(" ".join), st.lists(_PIECES, max_size=25).map("".join)
    )
)
def test_r121_the_gate_never_raises_and_never_allows_what_the_rules_forbid(text: str) -> None:
    for sql in (text, f"SELECT {text}", f"SELECT a FROM t WHERE {text}"):
        verdict = judge(sql, LISTED)
        if not verdict.allowed:
            continue
        outside = re.sub(r"'(?:[^']|'')*'|`[^`]*`", " v ", sql)
        assert outside.isascii()
        assert ";" not in outside.rstrip("\t\n ").removesuffix(";")
        assert not re.search(r"--|#|/\*|[\"\\@{}:]|%s", outside)
        assert "\\" not in sql
        assert re.match(r"[\s(]*(select|with)\b", outside, re.IGNORECASE)
        words = re.sub(r"\.\w+", "", outside).lower()
        assert not re.search(r"\b(into|outfile|lock|procedure|recursive|table)\b|\bsleep\s*\(", words)
        assert set(verdict.tables) <= TABLES


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(_PIECES, max_size=20).map(" ".join)))
def test_r122_tokens_cover_the_text_and_nothing_else(text: str) -> None:
    try:
        tokens = tokenize(text)
    except GateRefusal:
        return
    gaps = text
    for token in reversed(tokens):
        assert text[token.start : token.end] == token.text
        gaps = gaps[: token.start] + gaps[token.end :]
    assert gaps.strip(" \t\n") in ("", ";")
    assert all(token.kind is not Kind.WORD or token.text.isidentifier() for token in tokens)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(LEGITIMATE),
    st.integers(0, 200),
    st.sampled_from(["/**/", "--", "#", "@", "\\", '"', ":", "\x00", "é", "{"]),
)
def test_r122_a_forbidden_mark_outside_literals_is_always_fatal(sql: str, place: int, mark: str) -> None:
    position = min(place, len(sql))
    quoted = sql[:position].count("'") % 2 or sql[:position].count("`") % 2
    if not quoted:
        assert not judge(sql[:position] + mark + sql[position:], LISTED).allowed
