from __future__ import annotations

from typing import Any

import pytest

from release.contract import LimitationCode
from service.cli.console import plain
from service.cli.evidence import evidence_lines
from service.cli.run_commands import cited, statements
from service.contract import DiagnosisReport
from service.replay.text import read_bundle
from service.report import report_lines
from service.report_texts import TEXTS
from tests.data import ROOT
from tests.stores import a_run
from tools.contract import EvidenceStatus

CALLS: dict[str, dict[str, Any]] = {"c1": {"tool_name": "query_logs"}, "c2": {"tool_name": "query_mysql"}}
OPERATOR = {
    "internal_state": "SUCCESS",
    "stop_reason": "INFORMATION_SATURATED",
    "error_code": None,
    "usage": {"model_calls": 4, "tool_calls": 2, "total_tokens": 1234, "usage_unavailable": 1},
}
PUBLISHED = {
    "query": "q",
    "outcome": "CONCLUSION",
    "conclusion": "redis 不可用",
    "findings": [{"statement": "s1", "kind": "OBSERVATION", "tool_call_ids": ["c1", "c2"]}],
    "scope": [{"tool_name": "query_logs", "scope": {"topic": "app"}, "evidence_status": "EVIDENCE_FOUND"}],
    "limitations": {"missing_info": ["m"], "unverified": ["u"], "notes": ["RESULT_TRUNCATED"]},
    "documents": [{"document_id": "d", "title": "T", "source": "a.md", "relevance_level": "HIGH"}],
}
FALLBACK = {
    "type": "FALLBACK",
    "reason": "INSUFFICIENT_EVIDENCE",
    "summary": "sum",
    "process": [
        {
            "tool_name": "query_logs",
            "scope": {"topic": "app"},
            "evidence_status": "NO_EVIDENCE",
            "returned_count": 0,
            "truncated": False,
        }
    ],
    "observed_facts": [{"statement": "f1", "tool_call_id": "c1"}],
    "limitations": {"missing_info": [], "notes": ["STOPPED_BUDGET"]},
}


def made_of(*values: Any) -> DiagnosisReport:
    return DiagnosisReport(**dict(zip(DiagnosisReport.model_fields, values, strict=True)))


def text_of(made: DiagnosisReport, language: str, **options: Any) -> str:
    calls = options.pop("calls", CALLS)
    return "\n".join(line.text for line in report_lines(made, "why?", calls, language, **options))


@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_conclusion_shows_its_citations_and_its_limits(language: str) -> None:
    text = text_of(made_of("r", "SUCCESS", "CONCLUSION", PUBLISHED, None, OPERATOR), language, offline=True)
    word = TEXTS[language]
    assert "[query_logs c1] [query_mysql c2]" in text
    for expected in (
        "redis 不可用",
        "topic=app",
        "a.md",
        word["RESULT_TRUNCATED"],
        word["offline"],
        word["conclusion"],
    ):
        assert expected in text
    operator = text.splitlines()[-1]
    assert operator.startswith(word["operator"])
    assert "INFORMATION_SATURATED" in operator
    assert "1234 tokens (+1 calls unknown)" in operator


def test_r55_what_is_the_operators_stays_on_the_operators_line() -> None:
    report = made_of("r", "SUCCESS", "FALLBACK", None, FALLBACK, OPERATOR)
    lines = text_of(report, "en").splitlines()
    assert [line for line in lines if "INFORMATION_SATURATED" in line] == [lines[-1]]
    assert not any("tokens" in line for line in lines[:-1])


def test_a_fallback_shows_facts_and_process() -> None:
    text = text_of(made_of("r", "SUCCESS", "FALLBACK", None, FALLBACK, OPERATOR), "en")
    for expected in (
        "INSUFFICIENT_EVIDENCE: sum",
        "f1 [query_logs c1]",
        "nothing found",
        TEXTS["en"]["STOPPED_BUDGET"],
    ):
        assert expected in text
    assert TEXTS["en"]["offline"] not in text


def test_no_result_says_so() -> None:
    operator = {"internal_state": "FAILED", "error_code": "INTERNAL_ERROR", "stop_reason": None, "usage": {}}
    text = text_of(made_of(None, "FAILED", "NONE", None, None, operator), "en")
    assert TEXTS["en"]["failed"] in text
    assert "error INTERNAL_ERROR" in text
    cancelled = made_of("r", "CANCELLED", "NONE", None, None, {**operator, "internal_state": "CANCELLED"})
    assert TEXTS["en"]["cancelled"] in text_of(cancelled, "en")


def test_both_languages_know_every_word_and_code() -> None:
    assert set(TEXTS["zh"]) == set(TEXTS["en"])
    for code in [*LimitationCode, *EvidenceStatus]:
        assert code.value in TEXTS["en"], code


def test_evidence_of_each_kind_of_call() -> None:
    event = {"timestamp": "T", "level": "error", "service": "pay", "message": "ERROR boom"}
    assert list(evidence_lines({"events": [event]})) == ["T pay ERROR boom"]
    counted = {"events": [event], "levels": {"ERROR": 2, "NONE": 1}}
    assert list(evidence_lines(counted)) == ["ERROR 2, NONE 1", "T pay ERROR boom"]
    rows = {"columns": ["a", "b"], "rows": [[1, None], ["x\ny", True]]}
    assert list(evidence_lines(rows)) == ["a | b", "1 | NULL", "x y | True"]
    document = {"title": "T", "source": "a.md", "relevance_level": "HIGH", "content": "long"}
    assert list(evidence_lines({"documents": [document]})) == ["T (a.md, HIGH)"]
    assert list(evidence_lines({"events": []})) == ["(0)"]
    assert list(evidence_lines(None)) == ["-"]
    assert list(evidence_lines({"other": 1})) == ['{"other": 1}']
    many = list(evidence_lines({"rows": [[n] for n in range(30)], "columns": ["n"]}))
    assert many[-1] == "… 10 more"
    assert max(len(line) for line in evidence_lines({"events": [{"message": "m" * 9000}]})) == 500


def test_terminals_get_no_control_characters() -> None:
    assert plain("a\x1b[31mb\x07\x9bc\u202ed\te\nf") == "a\ufffd[31mb\ufffd\ufffdc\ufffdd\te\nf"
    assert plain("订单 5xx ✓ 👍") == "订单 5xx ✓ 👍"


@pytest.mark.parametrize(("name", "calls"), [("knowledge-zh", ["lookup-1"]), ("system-en", [])])
def test_evidence_of_answers_without_findings(name: str, calls: list[str]) -> None:
    bundle = read_bundle((ROOT / f"tests/recordings/hand-{name}.json").read_bytes())
    result = bundle.by_kind["result"]["result"]["published_result"]
    run = a_run(published_result=result)
    assert cited(run) == calls
    assert [statement for statement, _ in statements(run)] == [item["text"] for item in result.get("items", ())]


@pytest.mark.parametrize(
    ("language", "word"), [("zh", "查询日志时以此为当前时间"), ("en", "Taken as now by log queries")]
)
def test_the_head_tells_which_moment_log_queries_took_as_now(language: str, word: str) -> None:
    made = made_of("r", "SUCCESS", "CONCLUSION", PUBLISHED, None, OPERATOR)
    ends = ["2026-03-01T10:00:00.000+08:00", "2026-03-01T10:00:00.000+08:00", None, "10:01", "10:02", "10:03"]
    calls = {f"c{n}": {"tool_name": "query_logs", "agent_result": {"to": end}} for n, end in enumerate(ends, 1)}
    lines = text_of(made, language, calls=calls).splitlines()
    assert lines[2] == f"{word}: 2026-03-01T10:00:00.000+08:00, 10:01, 10:02, …"
    assert word not in text_of(made, language)
