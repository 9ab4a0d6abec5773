"""EvidenceGuard: references, the matrix of R71, quotes (R82, R88e, R89)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from release.contract import Analysis, AnalysisKind, DiagnosisDraft, ViolationCode
from release.evidence import IndexedRecord
from release.evidence_guard import check_evidence, check_references
from release.quotes import find_quotes, haystack
from tests.data import data_dir
from tests.release_builders import (
    LOG_RESULT,
    RUN,
    analysis,
    documents,
    draft,
    empty_logs,
    logs,
    missing,
    observation,
    rows,
    views,
)
from tools.contract import EvidenceStatus, InvocationStatus

OBS, INF = AnalysisKind.OBSERVATION, AnalysisKind.INFERENCE
REF, NEG = AnalysisKind.REFERENCE_KNOWLEDGE, AnalysisKind.NEGATIVE_OBSERVATION
EVIDENCE = views(
    logs(),
    rows(),
    documents(),
    empty_logs(),
    documents("rag-0", evidence=EvidenceStatus.NO_EVIDENCE, result={"documents": []}),
)


def codes(made: DiagnosisDraft, *entries: IndexedRecord) -> list[tuple[str, str | None]]:
    evidence = views(*entries) if entries else EVIDENCE
    return [(each.code.value, each.analysis_id) for each in check_evidence(made, RUN, evidence)]


def test_r89_a_supported_draft_passes() -> None:
    made = draft(
        observation(1, 'Logs show `pool "orders" exhausted` and `HTTP 503`.', "log-1"),
        analysis(2, INF, "Orders failed with `支付失败`", "db-1", "rag-1"),
        analysis(3, REF, "`raise`", "rag-1"),
        analysis(4, NEG, "Nothing for `error OR timeout`", "log-0"),
        conclusion="`HTTP 503` because of `支付失败`",
        supports=["A1", "A2"],
    )
    assert codes(made) == []


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (logs("other"), "UNKNOWN_TOOL_CALL"),
        (missing("log-1"), "RECORD_UNAVAILABLE"),
        (logs(run_id="run-2"), "RECORD_NOT_OWNED"),
        (logs(status=InvocationStatus.ERROR, evidence=EvidenceStatus.ERROR), "TOOL_CALL_NOT_READY"),
        (logs(status=InvocationStatus.PROJECTING, evidence=None), "TOOL_CALL_NOT_READY"),
        (logs(evidence=EvidenceStatus.ERROR), "TOOL_CALL_NOT_READY"),
        (logs(evidence=None), "TOOL_CALL_NOT_READY"),
    ],
)
def test_r89_1_every_call_exists_for_this_run_and_is_ready(given: IndexedRecord, code: str) -> None:
    made = draft(observation(1, "x", "log-1"), observation(2, "y", "db-1"), supports=["A2"])
    assert (code, "A1") in codes(made, given, rows())
    assert all(where == "A1" for _, where in codes(made, given, rows()))


def test_r49_a_record_stored_under_another_call_is_not_owned() -> None:
    other = logs("log-2")
    swapped = IndexedRecord("log-1", "logs", other.kind, other.record, control=other.control)
    assert ("RECORD_NOT_OWNED", "A1") in codes(draft(observation()), swapped)


FOUND, LOGDB, DOCS, NONE = (
    "KIND_NEEDS_EVIDENCE_FOUND",
    "KIND_NEEDS_LOG_OR_DATABASE",
    "KIND_NEEDS_DOCUMENTS_ONLY",
    "KIND_NEEDS_NO_EVIDENCE",
)


@pytest.mark.parametrize(
    ("kind", "calls", "expected"),
    [
        (OBS, ["log-1"], []),
        (OBS, ["db-1", "rag-1"], []),
        (OBS, ["rag-1"], [LOGDB]),
        (OBS, ["log-0"], [FOUND]),
        (OBS, ["log-1", "log-0"], [FOUND]),
        (OBS, ["rag-0"], [FOUND, LOGDB]),
        (INF, ["log-1", "db-1"], []),
        (INF, ["rag-1"], [LOGDB]),
        (INF, ["rag-1", "log-0"], [FOUND]),
        (REF, ["rag-1"], []),
        (REF, ["rag-1", "log-1"], [DOCS]),
        (REF, ["db-1"], [DOCS]),
        (REF, ["rag-0"], [FOUND]),
        (NEG, ["log-0"], []),
        (NEG, ["rag-0", "log-0"], []),
        (NEG, ["log-1"], [NONE]),
        (NEG, ["log-0", "db-1"], [NONE]),
        (NEG, ["rag-1"], [NONE]),
    ],
)
def test_r71_binding_matrix(kind: AnalysisKind, calls: list[str], expected: list[str]) -> None:
    made = draft(observation(1, "x", "log-1"), analysis(2, kind, "y", *calls))
    assert codes(made) == [(code, "A2") for code in expected]


def test_r89_3_supporting_analyses_exist() -> None:
    assert codes(draft(observation(), supports=["A1", "A7"])) == [("UNKNOWN_SUPPORTING_ANALYSIS", None)]
    both = [("UNKNOWN_SUPPORTING_ANALYSIS", None), ("NO_SUPPORTING_EVIDENCE", None)]
    assert codes(draft(observation(), supports=["A7"])) == both


@pytest.mark.parametrize("kinds", [[(NEG, "log-0")], [(REF, "rag-1")], [(NEG, "log-0"), (REF, "rag-1")]])
def test_r89_4_no_conclusion_on_negative_or_reference_alone(kinds: list[tuple[AnalysisKind, str]]) -> None:
    weak = [analysis(number, kind, "x", call) for number, (kind, call) in enumerate(kinds, start=2)]
    made = draft(observation(), *weak, supports=[each.analysis_id for each in weak])
    assert codes(made) == [("NO_SUPPORTING_EVIDENCE", None)]
    assert codes(draft(observation(), *weak, supports=["A1", *[each.analysis_id for each in weak]])) == []


def test_r89_5_analysis_ids_are_unique() -> None:
    assert codes(draft(observation(), observation(1, "other"))) == [("DUPLICATE_ANALYSIS_ID", "A1")]


def test_r89_a_conclusion_without_calls_fails() -> None:
    made = draft(observation())
    assert [each.code for each in check_evidence(made, RUN, {})] == [
        ViolationCode.UNKNOWN_TOOL_CALL,
        ViolationCode.KIND_NEEDS_LOG_OR_DATABASE,
    ]
    assert [each.code for each in check_evidence(draft(), RUN, {})] == [
        ViolationCode.UNKNOWN_SUPPORTING_ANALYSIS,
        ViolationCode.NO_SUPPORTING_EVIDENCE,
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "`HTTP 503 from payment-svc`",
        "``HTTP 503``",
        '`pool "orders" exhausted`',
        r"`pool \"orders\" exhausted`",
        "`exhausted\n  waiting 5000 ms`",
        "`exhausted waiting 5000 ms`",
        r"`exhausted\n  waiting`",
        "`128`",
        '`"total":128`',
        '`"total": 128`',
        "`10:00:01`",
        "``` \nHTTP 503 from payment-svc\n```",
        "```text\nHTTP 503 from payment-svc\n```",
        "`ERROR` and `HTTP 503`",
        "`application-logs`",
        "no quote at all",
        "` HTTP 503 `",
    ],
)
def test_r89_6_verbatim_quotes_pass(statement: str) -> None:
    assert codes(draft(observation(1, statement, "log-1"))) == []


@pytest.mark.parametrize(
    "statement",
    [
        "`HTTP 504`",
        "`http 503`",
        "``HTTP 504``",
        "`HTTP 503` and `OOMKilled`",
        "`HTTP 503 ... payment-svc`",
        "`pool orders exhausted`",
        "`12`",
        "`28`",
        "`000 ms`",
        "`HTTP 503",
        "HTTP 503`",
        "``",
        "` `",
        "`` ` ``",
        "```text\nHTTP 504\n```",
        "`error OR timeout`",
        "`支付失败`",
        "`1500`",
    ],
)
def test_r89_6_what_no_cited_result_holds_is_a_violation(statement: str) -> None:
    assert codes(draft(observation(1, statement, "log-1"))) == [("QUOTE_NOT_FOUND", "A1")]


@pytest.mark.parametrize(
    ("statement", "passes"),
    [
        ("`FAILED` `1500` `0.25`", True),
        ('`["FAILED",1500]`', True),
        ('`"FAILED", 1500`', True),
        ("`status`", True),
        ("`orders`", True),
        ("`FAILED 1500`", False),
        ("`status=FAILED`", False),
        ("`150`", False),
        ("`500`", False),
        ("`25`", False),
        ("`0`", False),
        ("`disk full`", False),
        ("`order`", False),
    ],
)
def test_r89_6_quotes_of_table_cells(statement: str, passes: bool) -> None:
    assert (codes(draft(observation(1, statement, "db-1"))) == []) is passes


def test_r89_6_a_quote_needs_one_of_the_statements_own_calls() -> None:
    assert codes(draft(observation(1, "`HTTP 503` `支付失败`", "log-1", "db-1"))) == []
    both = draft(observation(1, "x", "log-1"), observation(2, "`HTTP 503`", "db-1"))
    assert codes(both) == [("QUOTE_NOT_FOUND", "A2")]


def test_r89_6_the_conclusion_quotes_its_supporting_analyses_only() -> None:
    analyses = [observation(1, "x", "log-1"), observation(2, "y", "db-1")]
    assert codes(draft(*analyses, conclusion="`支付失败`", supports=["A2"])) == []
    assert codes(draft(*analyses, conclusion="`支付失败`", supports=["A1"])) == [("QUOTE_NOT_FOUND", None)]


def test_r71_a_negative_observation_may_quote_the_scope_it_searched() -> None:
    made = draft(observation(), analysis(2, NEG, '`error OR timeout` in `30` minutes: `"total":0`', "log-0"))
    assert codes(made) == []
    made = draft(observation(), analysis(2, NEG, "`disk full`", "log-0"))
    assert codes(made) == [("QUOTE_NOT_FOUND", "A2")]


def test_r89_6_a_quote_from_a_foreign_or_failed_call_does_not_count() -> None:
    made = draft(observation(1, "`HTTP 503`", "log-1"))
    assert ("QUOTE_NOT_FOUND", "A1") in codes(made, logs(run_id="run-2"))


def test_r82_references_of_a_null_conclusion_are_checked_and_nothing_else() -> None:
    made = draft(
        observation(1, "`not there`", "rag-1"),
        observation(1, "duplicate id", "log-1"),
        analysis(3, NEG, "x", "log-0"),
        conclusion=None,
        missing_info=["which service"],
    )
    checked = check_references(made, RUN, EVIDENCE)
    assert checked.draft == made
    assert not checked.invalid


@pytest.mark.parametrize(
    "bad",
    [
        observation(2, "x", "forged"),
        observation(2, "x", "log-1", "forged"),
        observation(2, "x", "foreign"),
        observation(2, "x", "failed"),
        observation(2, "x", "gone-1"),
        observation(2, "x", "log-0"),
        analysis(2, REF, "x", "rag-0"),
        analysis(2, NEG, "x", "log-1"),
    ],
)
def test_r88e_an_analysis_with_a_false_reference_is_dropped(bad: Analysis) -> None:
    evidence = {
        **EVIDENCE,
        **views(
            logs("foreign", run_id="run-2"),
            logs("failed", status=InvocationStatus.ERROR, evidence=EvidenceStatus.ERROR),
            missing(),
        ),
    }
    checked = check_references(draft(observation(), bad, conclusion=None, missing_info=["m"]), RUN, evidence)
    assert [each.analysis_id for each in checked.draft.analyses] == ["A1"]
    assert [(each.code.value, each.analysis_id) for each in checked.violations] == [("REFERENCE_INVALID", "A2")]
    assert checked.draft.limitations.missing_info == ["m"]


def test_r88e_nothing_valid_may_remain() -> None:
    checked = check_references(draft(observation(1, "x", "forged"), conclusion=None), RUN, {})
    assert checked.invalid
    assert checked.draft.analyses == []


@given(st.text("`a b\n", max_size=40))
def test_r89_6_quotes_never_raise_and_every_lone_backtick_is_broken(statement: str) -> None:
    quotes = find_quotes(statement)
    assert all(text and text == text.strip() for text in quotes.texts)
    if statement.count("`") == 1:
        assert quotes.broken
    if "`" not in statement:
        assert quotes.texts == ()
        assert not quotes.broken


words = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="`"), min_size=1, max_size=30)


@given(words)
def test_r89_6_what_a_model_reads_it_may_quote(text: str) -> None:
    """Both forms pass: the value itself, and the JSON text that the model is shown."""
    view = views(logs(result={"events": [{"message": f"[{text}]"}]}))["log-1"]
    hay = haystack(view, OBS)
    assert hay.holds(f"[{text}]")
    assert hay.holds(json.dumps(f"[{text}]", ensure_ascii=False))


@given(st.integers(0, 999), st.integers(0, 10**6))
def test_r89_6_a_number_is_not_found_inside_another(needle: int, number: int) -> None:
    view = views(logs(result={"n": number, "text": f"x{number}y, {number}.5"}))["log-1"]
    expected = needle == number
    assert haystack(view, OBS).holds(str(needle)) is expected


def test_r89_6_every_real_log_line_can_be_quoted_back() -> None:
    """Ten real log formats: a line, as value and as JSON text, survives quoting; its neighbour's numbers do not."""
    samples = sorted((data_dir() / "logs").rglob("*.log"))
    assert len(samples) >= 10
    for sample in samples:
        lines = [line for line in sample.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        hay = haystack(views(logs(result={"events": [{"message": line} for line in lines[:20]]}))["log-1"], OBS)
        for line in lines[:20]:
            for form in (line, json.dumps(line, ensure_ascii=False)):
                quotes = find_quotes(f"seen ````{form}````")
                assert len(quotes.texts) == 1
                assert hay.holds(quotes.texts[0]), line
        assert not hay.holds(lines[0][:-1] + "\u0394")


def test_r89_echo_of_the_request_is_no_evidence_but_the_same_words_in_an_event_are() -> None:
    result = {**LOG_RESULT, "events": [{"message": "saw error OR timeout here"}]}
    assert codes(draft(observation(1, "`error OR timeout`", "log-1")), logs(result=result)) == []


PATTERNS: dict[str, Any] = {
    "events": [{"message": "<ip>10.0.0.7</ip> refused"}],
    "patterns": [
        {
            "template": "call to <ip> took <num> seconds on worker <*>",
            "count": 19,
            "values": {"min": "2.5", "max": "9.01"},
        },
        {"template": "pool of prod-db:3333 exhausted, max size 256", "count": 4},
        {"template": "<other patterns>", "count": 3},
    ],
    "total": 26,
}


@pytest.mark.parametrize(
    ("quote", "passes"),
    [
        ("pool of prod-db:3333 exhausted, max size 256", True),
        ("seconds on worker", True),
        ("9.01", True),
        ("<ip>10.0.0.7</ip> refused", True),
        ("call to <ip> took", False),
        ("took <num> seconds", False),
        ("<num>", False),
        ("on worker <*>", False),
        ('"template":"call to <ip> took <num> seconds on worker <*>"', False),
        ("took seconds", False),
        ("<other patterns>", False),
    ],
)
def test_r89_6_a_template_is_no_quotable_line_but_its_fixed_pieces_are(quote: str, passes: bool) -> None:
    assert haystack(views(logs(result=PATTERNS))["log-1"], OBS).holds(quote) is passes
