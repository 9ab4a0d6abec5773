"""What the user gets, and what the next turn may see of it (R74, R75, R92, R99, R100, R131)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.contract import DiagnosisStopReason
from release.contract import (
    AnalysisKind,
    DocumentRef,
    FallbackFact,
    FallbackLimitations,
    FallbackReason,
    Finding,
    LimitationCode,
    ProcessStep,
    ProgressSnapshot,
    PublishedLimitations,
    PublishedResult,
    PublishedScope,
    ReleaseOutcome,
    SafeFallback,
)
from release.fallback import build_fallback
from release.published import build_published, previous_turn_text
from release.snapshot import project_snapshot
from tests.release_builders import RUN, analysis, documents, draft, empty_logs, logs, observation
from tools.contract import EvidenceStatus, RelevanceLevel

SNAPSHOT = project_snapshot(
    RUN,
    [
        logs(facts=["HTTP 503"], truncated=True, scope={"topic": "app"}),
        documents(scope={"query": "pool"}),
        empty_logs(scope={"topic": "db"}),
    ],
    DiagnosisStopReason.INFORMATION_SATURATED,
    False,
    False,
)
FALLBACK_JSON = (
    '{"type":"FALLBACK","reason":"INSUFFICIENT_EVIDENCE","summary":"The evidence does not support a root cause. '
    'process lists what was checked in this run, observed_facts what was verified.","process":['
    '{"tool_name":"logs","scope":{"topic":"app"},"evidence_status":"EVIDENCE_FOUND","returned_count":2,'
    '"truncated":true},'
    '{"tool_name":"rag","scope":{"query":"pool"},"evidence_status":"EVIDENCE_FOUND","returned_count":2,'
    '"truncated":false,"relevance_level":"HIGH"},'
    '{"tool_name":"logs","scope":{"topic":"db"},"evidence_status":"NO_EVIDENCE","returned_count":0,'
    '"truncated":false}],"observed_facts":[{"statement":"HTTP 503","tool_call_id":"log-1"},'
    '{"statement":"matched=0 | topic=db","tool_call_id":"log-0"}],"limitations":{"missing_info":["which region"],'
    '"notes":["RESULT_TRUNCATED","STOPPED_INFORMATION_SATURATED"]}}'
)
PUBLISHED_JSON = (
    '{"query":"why 5xx?","outcome":"CONCLUSION","conclusion":"The pool is exhausted.","findings":[{"statement":'
    '"`HTTP 503`","kind":"OBSERVATION","tool_call_ids":["log-1"]},{"statement":"nothing in db","kind":'
    '"NEGATIVE_OBSERVATION","tool_call_ids":["log-0"]}],"scope":[{"tool_name":"logs","scope":{"topic":"app"},'
    '"evidence_status":"EVIDENCE_FOUND"},{"tool_name":"rag","scope":{"query":"pool"},"evidence_status":"EVIDENCE_FOUND"},'
    '{"tool_name":"logs","scope":{"topic":"db"},"evidence_status":"NO_EVIDENCE"}],"limitations":{"missing_info":'
    '["which region"],"unverified":["disk"],"notes":["RESULT_TRUNCATED"]},"documents":[{"document_id":"pool.md#1",'
    '"title":"连接池耗尽","source":"pool.md","relevance_level":"HIGH"}]}'
)
DRAFT = draft(
    analysis(1, AnalysisKind.NEGATIVE_OBSERVATION, "nothing in db", "log-0"),
    observation(2, "`HTTP 503`", "log-1", "log-1"),
    supports=["A2"],
    missing_info=["which region"],
    unverified=["disk", " "],
)


def test_r75_r92_r131_fallback_json_is_frozen() -> None:
    made = build_fallback(FallbackReason.INSUFFICIENT_EVIDENCE, SNAPSHOT, ["which region"], "en")
    assert made.model_dump_json() == FALLBACK_JSON
    assert SafeFallback.model_validate_json(FALLBACK_JSON) == made


def test_r74_r75_published_json_is_frozen() -> None:
    made = build_published("why 5xx?", DRAFT, SNAPSHOT)
    assert made.model_dump_json() == PUBLISHED_JSON
    assert PublishedResult.model_validate_json(PUBLISHED_JSON) == made


def test_r88d_a_stop_reason_does_not_reach_the_published_result() -> None:
    assert "STOPPED" not in build_published("q", DRAFT, SNAPSHOT).model_dump_json()


def test_r74_no_document_content_and_no_raw_rows() -> None:
    text = build_published("q", DRAFT, SNAPSHOT).model_dump_json()
    for raw in ("max_connections", "waiting 5000 ms", "payment-svc", "score"):
        assert raw not in text


def test_r74_a_null_conclusion_is_never_published() -> None:
    with pytest.raises(ValueError, match="conclusion"):
        build_published("q", draft(conclusion=None), SNAPSHOT)


def test_r74_published_text_holds_no_control_characters() -> None:
    made = build_published("q\x00\x1b[31m", draft(observation(1, "a\x1b[2Jb\x07"), conclusion="c\x00"), SNAPSHOT)
    assert (made.query, made.conclusion, made.findings[0].statement) == ("q[31m", "c", "a[2Jb")


@pytest.mark.parametrize("language", ["zh", "en", "fr"])
@pytest.mark.parametrize("reason", FallbackReason)
def test_r92_summary_is_a_fixed_template_without_numbers(language: str, reason: FallbackReason) -> None:
    one = build_fallback(reason, SNAPSHOT, ["m"], language)
    other = build_fallback(reason, ProgressSnapshot(run_id="other"), [], language)
    assert one.summary == other.summary
    assert not any(char.isdigit() for char in one.summary)
    assert one.summary.isascii() is (language != "zh")


def test_r92_blank_missing_info_is_left_out() -> None:
    made = build_fallback(FallbackReason.INSUFFICIENT_EVIDENCE, SNAPSHOT, ["", " \n", "region"], "zh")
    assert made.limitations.missing_info == ["region"]


def test_r99_previous_turn_of_a_published_result() -> None:
    text = previous_turn_text("why 5xx?", build_published("why 5xx?", DRAFT, SNAPSHOT))
    assert json.loads(text) == {
        "query": "why 5xx?",
        "outcome": "CONCLUSION",
        "conclusion": "The pool is exhausted.",
        "missing_info": ["which region"],
        "unverified": ["disk"],
        "findings": ["`HTTP 503`", "nothing in db"],
        "scope": [{"topic": "app"}, {"query": "pool"}, {"topic": "db"}],
        "documents": ["连接池耗尽"],
    }


def test_r99_previous_turn_of_a_fallback() -> None:
    fallback = build_fallback(FallbackReason.MISSING_REQUIRED_CONTEXT, ProgressSnapshot(run_id=RUN), ["region"], "zh")
    assert json.loads(previous_turn_text("为什么", fallback)) == {
        "query": "为什么",
        "outcome": "FALLBACK",
        "reason": "MISSING_REQUIRED_CONTEXT",
        "missing_info": ["region"],
    }


def test_r100_old_ids_are_removed_even_from_statements() -> None:
    made = draft(observation(1, "see call_1, (call_1) and call_12", "call_1"), conclusion="by call_1")
    text = previous_turn_text("q", build_published("q", made, SNAPSHOT))
    assert json.loads(text)["conclusion"] == "by -"
    assert json.loads(text)["findings"] == ["see -, (-) and call_12"]


texts = st.text(max_size=1200)
results = st.builds(
    PublishedResult,
    query=texts,
    outcome=st.just(ReleaseOutcome.CONCLUSION),
    conclusion=texts,
    findings=st.lists(
        st.builds(
            Finding,
            statement=texts,
            kind=st.sampled_from(AnalysisKind),
            tool_call_ids=st.lists(st.sampled_from(["call_1", "lookup-1", "7"]), max_size=3),
        ),
        max_size=12,
    ),
    scope=st.lists(
        st.builds(
            PublishedScope,
            tool_name=st.just("secret_tool"),
            scope=st.dictionaries(st.text(max_size=9), texts, max_size=3),
            evidence_status=st.sampled_from(EvidenceStatus),
        ),
        max_size=5,
    ),
    limitations=st.builds(PublishedLimitations, missing_info=st.lists(texts, max_size=3)),
    documents=st.lists(
        st.builds(
            DocumentRef, document_id=texts, title=texts, source=texts, relevance_level=st.sampled_from(RelevanceLevel)
        ),
        max_size=3,
    ),
)
fallbacks = st.builds(
    SafeFallback,
    reason=st.sampled_from(FallbackReason),
    summary=texts,
    process=st.lists(
        st.builds(
            ProcessStep,
            tool_name=st.just("secret_tool"),
            scope=st.dictionaries(st.text(max_size=9), texts, max_size=3),
            evidence_status=st.sampled_from(EvidenceStatus),
            returned_count=st.integers(0, 9),
            truncated=st.booleans(),
        ),
        max_size=5,
    ),
    observed_facts=st.lists(
        st.builds(FallbackFact, statement=texts, tool_call_id=st.just("call_1")),
        max_size=5,
    ),
    limitations=st.builds(
        FallbackLimitations,
        missing_info=st.lists(texts, max_size=3),
        notes=st.lists(st.sampled_from(LimitationCode), max_size=3),
    ),
)


@given(texts, results | fallbacks, st.sampled_from([256, 2048]))
@settings(max_examples=80, deadline=None)
def test_r99_previous_turn_is_bounded_json_without_ids_or_tool_names(query: str, result: Any, limit: int) -> None:
    text = previous_turn_text(query, result, limit)
    assert len(text.encode()) <= limit
    assert json.loads(text)["outcome"] in ("CONCLUSION", "FALLBACK")
    assert "tool_call_id" not in text
    assert "secret_tool" not in text


def test_r99_the_previous_turn_reads_the_same_however_a_store_orders_keys() -> None:
    made = build_published("why 5xx?", DRAFT, SNAPSHOT)
    checked = [made.scope[0].model_copy(update={"scope": {"topic": "gateway", "query": "504", "lookback_minutes": 60}})]
    result = made.model_copy(update={"scope": checked})
    stored = PublishedResult.model_validate_json(json.dumps(result.model_dump(mode="json"), sort_keys=True))
    assert list(stored.scope[0].scope) != list(result.scope[0].scope)
    assert previous_turn_text("why 5xx?", stored) == previous_turn_text("why 5xx?", result)
