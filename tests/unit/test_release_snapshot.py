"""The snapshot of what a Run checked and saw (R64-R66, R68, R71)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.contract import DiagnosisStopReason
from release.bounding import MAX_SCOPE_BYTES, cut_text, fit_json, readable_scope, size
from release.contract import (
    MAX_CHECKED,
    MAX_DOCUMENTS,
    MAX_EXCERPT_CHARS,
    MAX_FACTS,
    FactKind,
    LimitationCode,
    ProgressSnapshot,
)
from release.evidence import IndexedRecord
from release.snapshot import negative_excerpt, project_snapshot, with_limitation
from tests.release_builders import RUN, documents, empty_logs, entry, logs, missing, rows
from tools.contract import EvidenceKind, EvidenceStatus, InvocationStatus, RelevanceLevel
from tools.scope import make_scope


def project(*entries: IndexedRecord, **more: Any) -> ProgressSnapshot:
    options: dict[str, Any] = {"stop_reason": None, "budget_crossed": False, "fault": False, **more}
    return project_snapshot(RUN, entries, **options)


def test_r66_positive_facts_and_checked_scopes() -> None:
    snapshot = project(logs(facts=["pool exhausted", "HTTP 503"]), rows(facts=["FAILED | 1500"]))
    assert [(fact.tool_call_id, fact.kind, fact.excerpt) for fact in snapshot.observed_facts] == [
        ("log-1", FactKind.POSITIVE, "pool exhausted"),
        ("log-1", FactKind.POSITIVE, "HTTP 503"),
        ("db-1", FactKind.POSITIVE, "FAILED | 1500"),
    ]
    assert [(each.tool_call_id, each.tool_name, each.returned_count) for each in snapshot.checked] == [
        ("log-1", "logs", 2),
        ("db-1", "mysql", 2),
    ]
    assert snapshot.limitations == []


def test_r66_r71_verified_no_evidence_of_logs_is_a_negative_fact_with_scope_and_zero() -> None:
    fact = project(empty_logs()).observed_facts[0]
    assert fact.kind is FactKind.NEGATIVE
    assert fact.excerpt == "matched=0 | topic=application-logs | query=error OR timeout | lookback_minutes=30"
    assert fact.scope == {"topic": "application-logs", "query": "error OR timeout", "lookback_minutes": 30}


def test_r66_no_evidence_of_documents_is_no_fact() -> None:
    snapshot = project(documents(evidence=EvidenceStatus.NO_EVIDENCE, result={"documents": []}, count=0, level=None))
    assert snapshot.observed_facts == []
    assert snapshot.documents == []
    assert snapshot.checked[0].evidence_status is EvidenceStatus.NO_EVIDENCE


def test_r68_documents_are_metadata_never_facts() -> None:
    snapshot = project(documents(facts=["must not appear"]))
    assert snapshot.observed_facts == []
    assert snapshot.checked[0].relevance_level is RelevanceLevel.HIGH
    assert [document.model_dump(mode="json") for document in snapshot.documents] == [
        {"document_id": "pool.md#1", "title": "连接池耗尽", "source": "pool.md", "relevance_level": "HIGH"}
    ]
    assert "max_connections" not in snapshot.model_dump_json()


def test_r68_a_document_of_several_calls_appears_once_with_its_higher_level() -> None:
    low = {"document_id": "a", "title": "A", "source": "a.md", "relevance_level": "REFERENCE"}
    high = {**low, "relevance_level": "HIGH"}
    for first, second in ((low, high), (high, low)):
        snapshot = project(
            documents("r1", result={"documents": [first]}), documents("r2", result={"documents": [second]})
        )
        assert [each.relevance_level for each in snapshot.documents] == [RelevanceLevel.HIGH]


def test_r68_malformed_document_metadata_is_left_out() -> None:
    bad: list[Any] = [
        None,
        "x",
        {"document_id": "a"},
        {"document_id": 1, "title": "t", "source": "s", "relevance_level": "HIGH"},
    ]
    bad.append({"document_id": "a", "title": "t", "source": "s", "relevance_level": "BEST"})
    bad.append({"document_id": "a", "title": "t", "source": "s", "relevance_level": []})
    assert project(documents(result={"documents": bad})).documents == []
    assert project(documents(result={"documents": "none"})).documents == []


@pytest.mark.parametrize(
    ("given", "limitation"),
    [
        (missing(), "CANONICAL_RECORD_UNAVAILABLE"),
        (missing(code=LimitationCode.CANONICAL_RECORD_MISSING), "CANONICAL_RECORD_MISSING"),
        (missing(code=LimitationCode.CANONICAL_RECORD_EXPIRED), "CANONICAL_RECORD_EXPIRED"),
        (missing(code=LimitationCode.STOPPED_BUDGET), "CANONICAL_RECORD_UNAVAILABLE"),
        (logs(facts=["f"], run_id="run-2"), "RECORD_NOT_OWNED"),
        (logs(facts=["f"], status=InvocationStatus.ERROR, evidence=EvidenceStatus.ERROR), "TOOL_ERROR"),
        (logs(facts=["f"], status=InvocationStatus.PROJECTING, evidence=None), "CANONICAL_RECORD_UNAVAILABLE"),
        (logs(facts=["f"], evidence=None), "CANONICAL_RECORD_UNAVAILABLE"),
        (logs(facts=["f"], evidence=EvidenceStatus.ERROR), "TOOL_ERROR"),
        (logs(facts=["f"], readable=False), "CANONICAL_RECORD_UNAVAILABLE"),
    ],
)
def test_r65_what_is_not_verified_is_a_limitation_and_no_fact(given: IndexedRecord, limitation: str) -> None:
    snapshot = project(given)
    assert snapshot.observed_facts == []
    assert snapshot.limitations == [LimitationCode(limitation)]
    assert [each.evidence_status for each in snapshot.checked] == (
        [EvidenceStatus.ERROR] if limitation == "TOOL_ERROR" else []
    )


def test_r65_a_record_of_another_call_is_not_owned() -> None:
    other = logs("log-2", facts=["f"])
    swapped = IndexedRecord("log-1", "logs", other.kind, other.record, other.facts, other.control)
    renamed = IndexedRecord("log-2", "mysql", other.kind, other.record, other.facts, other.control)
    for given_entry in (swapped, renamed):
        assert project(given_entry).limitations == [LimitationCode.RECORD_NOT_OWNED]
        assert project(given_entry).observed_facts == []


def test_r65_control_that_contradicts_its_record_fails_closed() -> None:
    found, empty = logs("c", facts=["f"]), empty_logs("c")
    mixed = IndexedRecord("c", "logs", found.kind, found.record, found.facts, empty.control)
    assert project(mixed).limitations == [LimitationCode.CANONICAL_RECORD_UNAVAILABLE]


def test_r66_limitations_are_ordered_and_unique() -> None:
    snapshot = project(
        logs("a", truncated=True),
        missing("b"),
        missing("c"),
        logs("d", status=InvocationStatus.ERROR, evidence=EvidenceStatus.ERROR),
        logs("e", run_id="run-2"),
        stop_reason=DiagnosisStopReason.INFORMATION_SATURATED,
        budget_crossed=True,
        fault=True,
    )
    assert [code.value for code in snapshot.limitations] == [
        "FAULT",
        "CANONICAL_RECORD_UNAVAILABLE",
        "TOOL_ERROR",
        "RECORD_NOT_OWNED",
        "RESULT_TRUNCATED",
        "STOPPED_INFORMATION_SATURATED",
        "STOPPED_BUDGET",
    ]


def test_r94_budget_crossed_at_saturation_shows_both_limitations() -> None:
    snapshot = project(stop_reason=DiagnosisStopReason.INFORMATION_SATURATED, budget_crossed=True)
    assert snapshot.limitations == [LimitationCode.STOPPED_INFORMATION_SATURATED, LimitationCode.STOPPED_BUDGET]
    again = with_limitation(with_limitation(snapshot, LimitationCode.FAULT), LimitationCode.FAULT)
    assert again.limitations == [LimitationCode.FAULT, *snapshot.limitations]


@pytest.mark.parametrize(
    ("stop", "code"),
    [
        (DiagnosisStopReason.PROGRESS_PROTOCOL_VIOLATED, LimitationCode.STOPPED_PROTOCOL),
        (DiagnosisStopReason.BUDGET_LIMIT_REACHED, LimitationCode.STOPPED_BUDGET),
    ],
)
def test_r66_stop_reason_is_a_limitation(stop: DiagnosisStopReason, code: LimitationCode) -> None:
    assert project(stop_reason=stop).limitations == [code]


def test_r66_facts_are_shared_fairly_and_a_cut_is_said() -> None:
    entries = [logs(f"c{at}", facts=[f"{at}.{rank}" for rank in range(4)]) for at in range(6)]
    snapshot = project(*entries, empty_logs("n"))
    assert [fact.excerpt for fact in snapshot.observed_facts[:6]] == ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"]
    assert [fact.tool_call_id for fact in snapshot.observed_facts if fact.kind is FactKind.NEGATIVE] == ["n"]
    assert len(snapshot.observed_facts) == MAX_FACTS
    assert snapshot.limitations == [LimitationCode.SNAPSHOT_TRUNCATED]


def test_r66_what_was_found_goes_before_what_was_not() -> None:
    empty = [empty_logs(f"n{at}") for at in range(6)]
    snapshot = project(*empty, *(logs(f"p{at}", facts=["x"]) for at in range(6)))
    kinds = [fact.kind for fact in snapshot.observed_facts]
    assert kinds == [FactKind.NEGATIVE] * 4 + [FactKind.POSITIVE] * 6


def test_r66_more_than_twenty_checked_scopes_or_documents_are_cut_and_said() -> None:
    snapshot = project(*(documents(f"c{at}", result={"documents": []}) for at in range(21)))
    assert [each.tool_call_id for each in snapshot.checked] == [f"c{at}" for at in range(20)]
    assert snapshot.limitations == [LimitationCode.SNAPSHOT_TRUNCATED]
    many = [{"document_id": f"d{at}", "title": "t", "source": "s", "relevance_level": "HIGH"} for at in range(21)]
    snapshot = project(documents(result={"documents": many}))
    assert len(snapshot.documents) == MAX_DOCUMENTS
    assert snapshot.limitations == [LimitationCode.SNAPSHOT_TRUNCATED]


def test_r17_an_entry_indexed_twice_counts_once() -> None:
    snapshot = project(logs("a", facts=["first"]), logs("a", facts=["second"]))
    assert [fact.excerpt for fact in snapshot.observed_facts] == ["first"]
    assert len(snapshot.checked) == 1


def test_r66_secrets_in_a_scope_are_masked() -> None:
    sql = "SELECT id FROM users WHERE password = 'hunter2-secret' AND n = 1"
    snapshot = project(
        empty_logs("a", scope={"datasource": "orders", "sql": sql}),
        rows("b", facts=["x"]),
    )
    assert "hunter2" not in snapshot.model_dump_json()
    assert "matched=0" in snapshot.observed_facts[0].excerpt


def test_r66_a_long_sql_is_cut_readably_and_said() -> None:
    sql = "SELECT " + ", ".join(f"column_number_{at}" for at in range(230)) + " FROM orders"
    snapshot = project(empty_logs(scope={"datasource": "orders", "sql": sql, "params": ["x"]}))
    shown = snapshot.checked[0].scope
    assert shown["datasource"] == "orders"
    assert shown["sql"].startswith("SELECT column_number_0")
    assert LimitationCode.SNAPSHOT_TRUNCATED in snapshot.limitations
    excerpt = snapshot.observed_facts[0].excerpt
    assert excerpt.startswith("matched=0 | datasource=orders | sql=SELECT column_number_0")
    assert excerpt.endswith('| params=["x"]')


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
scopes = st.dictionaries(st.text(max_size=40), json_values | st.text(min_size=200, max_size=4000), max_size=12)


@given(scopes)
@settings(max_examples=60)
def test_r71_negative_excerpt_is_bounded_and_names_zero(scope: dict[str, Any]) -> None:
    excerpt = negative_excerpt(scope)
    assert len(excerpt) <= MAX_EXCERPT_CHARS
    assert excerpt.startswith("matched=0")


entries = st.lists(
    st.one_of(
        st.builds(missing, st.sampled_from(["a", "b", "c"]), st.sampled_from([None, *LimitationCode])),
        st.builds(
            entry,
            st.sampled_from([f"c{at}" for at in range(40)]),
            st.sampled_from(["logs", "mysql", "rag"]),
            st.sampled_from(EvidenceKind),
            status=st.sampled_from(InvocationStatus),
            evidence=st.sampled_from([None, *EvidenceStatus]),
            scope=scopes,
            result=st.dictionaries(st.sampled_from(["documents", "events"]), json_values, max_size=2),
            facts=st.lists(st.text(max_size=400), max_size=12),
            count=st.integers(0, 100),
            truncated=st.booleans(),
            run_id=st.sampled_from([RUN, "run-2"]),
            readable=st.booleans(),
        ),
    ),
    max_size=30,
)


@given(entries, st.sampled_from([None, *DiagnosisStopReason]), st.booleans(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_r65_r66_bounds_hold_and_facts_are_verified_for_any_records(
    given_entries: list[IndexedRecord], stop: DiagnosisStopReason | None, budget: bool, fault: bool
) -> None:
    snapshot = project_snapshot(RUN, given_entries, stop, budget, fault)
    assert len(snapshot.checked) <= MAX_CHECKED
    assert len(snapshot.observed_facts) <= MAX_FACTS
    assert len(snapshot.documents) <= MAX_DOCUMENTS
    assert all(size(each.scope) <= MAX_SCOPE_BYTES for each in snapshot.checked)
    assert list(dict.fromkeys(snapshot.limitations)) == snapshot.limitations
    first = {each.tool_call_id: each for each in reversed(given_entries)}
    for fact in snapshot.observed_facts:
        source = first[fact.tool_call_id]
        assert source.record is not None
        assert (source.record.run_id, source.record.status) == (RUN, InvocationStatus.READY)
        assert source.kind is EvidenceKind.LOG_OR_DATABASE
        assert (fact.kind is FactKind.NEGATIVE) is (source.record.evidence_status is EvidenceStatus.NO_EVIDENCE)
        assert len(fact.excerpt) <= MAX_EXCERPT_CHARS
    json.loads(snapshot.model_dump_json())


@given(json_values, st.integers(16, 400), st.lists(st.text(max_size=5), max_size=3))
def test_fit_json_fits_whatever_it_is_given(value: Any, limit: int, keep: list[str]) -> None:
    fitted, cut = fit_json(value, limit, keep)
    assert size(fitted) <= limit
    assert cut or fitted == value


@given(st.text(max_size=80), st.integers(0, 60), st.text(max_size=5))
def test_cut_text_never_exceeds_its_limit(text: str, limit: int, keep: str) -> None:
    assert len(cut_text(text, limit, [keep])) <= limit or len(text) <= limit


def test_cut_text_keeps_what_matters() -> None:
    text = "x" * 500 + "needle" + "y" * 500
    assert "needle" in cut_text(text, 60, ["needle"])
    assert cut_text("x" * 50 + "needle", 20, ["needle"]).endswith("needle")


def test_readable_scope_falls_back_to_the_summary() -> None:
    scope = make_scope("x", {"n": 10**3000}, "a number of 3,001 digits")
    assert readable_scope(scope) == ({"summary": "a number of 3,001 digits"}, True)
