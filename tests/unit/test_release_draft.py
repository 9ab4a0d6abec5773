"""The draft's contract and its strict parsing (R73, R75, R77, R79)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from release.contract import MAX_DRAFT_BYTES, AgentOutputFailure, DiagnosisDraft
from release.draft import parse_draft
from tests.release_builders import draft, observation

EXAMPLE = (
    '{"conclusion":{"statement":"连接池耗尽","supporting_analysis_ids":["A1"]},'
    '"analyses":[{"analysis_id":"A1","kind":"OBSERVATION","statement":"128 errors","tool_call_ids":["call_1"]}],'
    '"limitations":{"missing_info":["哪个服务"],"unverified":["磁盘"]}}'
)
NULL_EXAMPLE = '{"conclusion":null,"analyses":[],"limitations":{"missing_info":[],"unverified":[]}}'


@pytest.mark.parametrize("text", [EXAMPLE, NULL_EXAMPLE])
def test_r75_draft_json_is_frozen(text: str) -> None:
    parsed = parse_draft(text)
    assert isinstance(parsed, DiagnosisDraft)
    assert parsed.model_dump_json() == text


def test_r73_null_conclusion_is_a_legal_end_and_json_whitespace_may_surround_it() -> None:
    parsed = parse_draft(f" \r\n\t{NULL_EXAMPLE}\n")
    assert isinstance(parsed, DiagnosisDraft)
    assert parsed.conclusion is None


def _with(**changes: Any) -> str:
    return json.dumps({**json.loads(EXAMPLE), **changes}, ensure_ascii=False)


def _analysis(**changes: Any) -> dict[str, Any]:
    return {**json.loads(EXAMPLE)["analyses"][0], **changes}


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("", "EMPTY_OUTPUT"),
        (" \n\t\u3000", "EMPTY_OUTPUT"),
        (f"```json\n{EXAMPLE}\n```", "NOT_JSON"),
        (f"Here it is: {EXAMPLE}", "NOT_JSON"),
        (f"{EXAMPLE}\nDone.", "NOT_JSON"),
        (EXAMPLE + EXAMPLE, "NOT_JSON"),
        ("\ufeff" + EXAMPLE, "NOT_JSON"),
        ("\u00a0" + EXAMPLE, "NOT_JSON"),
        (EXAMPLE[:-1], "NOT_JSON"),
        (EXAMPLE.replace('"', "'"), "NOT_JSON"),
        (EXAMPLE[:-1] + ",}", "NOT_JSON"),
        (EXAMPLE.replace("[]", "[NaN]").replace('["磁盘"]', "NaN"), "NOT_JSON"),
        (EXAMPLE.replace('["磁盘"]', "-Infinity"), "NOT_JSON"),
        (EXAMPLE.replace("磁盘", "\ud800"), "NOT_JSON"),
        (EXAMPLE.replace("磁盘", "\n"), "NOT_JSON"),
        ("<think>x</think>" + EXAMPLE, "NOT_JSON"),
        (EXAMPLE.replace("磁盘", "\\ud800"), "SCHEMA_VIOLATION"),
        ("null", "SCHEMA_VIOLATION"),
        (f"[{EXAMPLE}]", "SCHEMA_VIOLATION"),
        (json.dumps(EXAMPLE), "SCHEMA_VIOLATION"),
        ("1" * 6000, "SCHEMA_VIOLATION"),
        ("[" * 12000 + "]" * 12000, "SCHEMA_VIOLATION"),
        ('{"a":' * 4000 + "1" + "}" * 4000, "SCHEMA_VIOLATION"),
        (EXAMPLE[:-1] + ',"limitations":{"missing_info":[],"unverified":[]}}', "SCHEMA_VIOLATION"),
        (EXAMPLE.replace('"kind":', '"kind":"INFERENCE","kind":'), "SCHEMA_VIOLATION"),
        (_with(confidence=0.9), "SCHEMA_VIOLATION"),
        (_with(next_action="x"), "SCHEMA_VIOLATION"),
        ('{"analyses":[],"limitations":{"missing_info":[],"unverified":[]}}', "SCHEMA_VIOLATION"),
        (_with(conclusion={"statement": "x", "supporting_analysis_ids": []}), "SCHEMA_VIOLATION"),
        (_with(conclusion={"statement": " \n", "supporting_analysis_ids": ["A1"]}), "SCHEMA_VIOLATION"),
        (_with(conclusion={"statement": "x" * 1001, "supporting_analysis_ids": ["A1"]}), "SCHEMA_VIOLATION"),
        (_with(conclusion={"statement": "x", "supporting_analysis_ids": ["A1"] * 9}), "SCHEMA_VIOLATION"),
        (_with(analyses=[_analysis()] * 13), "SCHEMA_VIOLATION"),
        (_with(analyses=[_analysis(analysis_id="A0")]), "SCHEMA_VIOLATION"),
        (_with(analyses=[_analysis(analysis_id="A100")]), "SCHEMA_VIOLATION"),
        (_with(analyses=[_analysis(analysis_id="A1\n")]), "SCHEMA_VIOLATION"),
        (_with(analyses=[_analysis(kind="observation")]), "SCHEMA_VIOLATION"),
        (_with(analyses=[_analysis(statement=7)]), "SCHEMA_VIOLATION"),
        (_with(analyses=[_analysis(statement="x" * 601)]), "SCHEMA_VIOLATION"),
        (_with(analyses=[_analysis(tool_call_ids="call_1")]), "SCHEMA_VIOLATION"),
        (_with(analyses=[_analysis(tool_call_ids=[])]), "SCHEMA_VIOLATION"),
        (_with(analyses=[_analysis(tool_call_ids=["c"] * 7)]), "SCHEMA_VIOLATION"),
        (_with(analyses=[_analysis(tool_call_ids=["a b"])]), "SCHEMA_VIOLATION"),
        (_with(limitations={"missing_info": ["x" * 201], "unverified": []}), "SCHEMA_VIOLATION"),
        (_with(limitations={"missing_info": ["x"] * 9, "unverified": []}), "SCHEMA_VIOLATION"),
        (EXAMPLE + " " * MAX_DRAFT_BYTES, "OUTPUT_TOO_LARGE"),
    ],
)
def test_r77_r79_illegal_text_is_discarded_with_its_category(text: str, failure: str) -> None:
    assert parse_draft(text) is AgentOutputFailure(failure)


def test_r79_limit_counts_utf8_bytes() -> None:
    padding = MAX_DRAFT_BYTES - len(EXAMPLE.encode())
    assert isinstance(parse_draft(EXAMPLE + " " * padding), DiagnosisDraft)
    assert parse_draft(EXAMPLE + " " * (padding + 1)) is AgentOutputFailure.OUTPUT_TOO_LARGE
    assert parse_draft("错" * (MAX_DRAFT_BYTES // 3 + 1)) is AgentOutputFailure.OUTPUT_TOO_LARGE


@given(st.one_of(st.text(st.characters()), st.text('{}[]":,\\u0AdnulNa1e+- \n`', max_size=60)))
def test_r77_parse_never_raises(text: str) -> None:
    assert isinstance(parse_draft(text), DiagnosisDraft | AgentOutputFailure)


@given(st.text(min_size=1), st.integers(0, len(EXAMPLE)))
def test_r77_inserted_text_never_raises(piece: str, at: int) -> None:
    assert isinstance(parse_draft(EXAMPLE[:at] + piece + EXAMPLE[at:]), DiagnosisDraft | AgentOutputFailure)


def test_r6_draft_is_immutable() -> None:
    made = draft(observation())
    with pytest.raises(ValidationError):
        made.conclusion = None  # type: ignore[misc]
