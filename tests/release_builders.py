"""Small builders of release values for tests; every default is legal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from release.contract import Analysis, AnalysisKind, Conclusion, DiagnosisDraft, DraftLimitations, LimitationCode
from release.evidence import EvidenceView, IndexedRecord, evidence_views
from tools.contract import (
    CanonicalRecord,
    ControlView,
    EvidenceKind,
    EvidenceStatus,
    InvocationStatus,
    RelevanceLevel,
    Scope,
    ToolErrorCode,
)
from tools.evidence_tool import FactView
from tools.scope import make_scope

RUN = "run-1"
LOG_SCOPE: dict[str, Any] = {"topic": "application-logs", "query": "error OR timeout", "lookback_minutes": 30}
LOG_RESULT: dict[str, Any] = {
    "topic": "application-logs",
    "query": "error OR timeout",
    "total": 128,
    "events": [
        {
            "timestamp": "2026-01-05T10:00:01Z",
            "level": "ERROR",
            "message": 'pool "orders" exhausted\n  waiting 5000 ms',
        },
        {"timestamp": "2026-01-05T10:00:02Z", "level": "ERROR", "message": "HTTP 503 from payment-svc"},
    ],
    "patterns": [],
}
DB_SCOPE: dict[str, Any] = {"datasource": "orders", "sql": "SELECT status, n FROM orders WHERE note = 'disk full'"}
DB_RESULT: dict[str, Any] = {"columns": ["status", "n"], "rows": [["FAILED", 1500], ["支付失败", 0.25]]}
RAG_SCOPE: dict[str, Any] = {"query": "orders pool"}
RAG_RESULT: dict[str, Any] = {
    "documents": [
        {
            "document_id": "pool.md#1",
            "title": "连接池耗尽",
            "source": "pool.md",
            "content": "When the pool is exhausted, raise `max_connections`.",
            "score": 0.7,
            "relevance_level": "HIGH",
        }
    ],
    "relevance_level": "HIGH",
    "total": 1,
}


def entry(
    call: str = "c1",
    tool: str = "logs",
    kind: EvidenceKind = EvidenceKind.LOG_OR_DATABASE,
    *,
    status: InvocationStatus = InvocationStatus.READY,
    evidence: EvidenceStatus | None = EvidenceStatus.EVIDENCE_FOUND,
    scope: dict[str, Any] | None = None,
    result: dict[str, Any] | None = None,
    facts: Sequence[str] = (),
    count: int = 2,
    truncated: bool = False,
    run_id: str = RUN,
    level: RelevanceLevel | None = None,
    readable: bool = True,
) -> IndexedRecord:
    """An index entry with its record; READY with evidence unless told otherwise."""
    made = make_scope(tool, LOG_SCOPE if scope is None else scope, f"{tool} scope")
    failed = status is InvocationStatus.ERROR
    record = CanonicalRecord(
        run_id=run_id,
        tool_call_id=call,
        tool_name=tool,
        status=status,
        evidence_status=evidence,
        error_code=ToolErrorCode.TOOL_TIMEOUT if failed else None,
        scope=made,
        request=dict(made.normalized),
        agent_result=None if failed else (LOG_RESULT if result is None else result),
        created_at=0.0,
    )
    return IndexedRecord(
        tool_call_id=call,
        tool_name=tool,
        kind=kind,
        record=record,
        facts=tuple(FactView(fact) for fact in facts),
        control=_control(made, status, evidence, count, truncated, level) if readable and not failed else None,
    )


def _control(
    scope: Scope,
    status: InvocationStatus,
    evidence: EvidenceStatus | None,
    count: int,
    truncated: bool,
    level: RelevanceLevel | None,
) -> ControlView:
    return ControlView(
        status=status,
        evidence_status=evidence,
        returned_count=count,
        truncated=truncated,
        relevance_level=level,
        scope=scope,
    )


def logs(call: str = "log-1", **more: Any) -> IndexedRecord:
    return entry(call, **more)


def empty_logs(call: str = "log-0", **more: Any) -> IndexedRecord:
    result = {"topic": "application-logs", "query": "error OR timeout", "total": 0, "events": [], "patterns": []}
    return entry(call, evidence=EvidenceStatus.NO_EVIDENCE, result=result, count=0, **more)


def rows(call: str = "db-1", **more: Any) -> IndexedRecord:
    options: dict[str, Any] = {"scope": DB_SCOPE, "result": DB_RESULT, **more}
    return entry(call, "mysql", **options)


def documents(call: str = "rag-1", **more: Any) -> IndexedRecord:
    options: dict[str, Any] = {"scope": RAG_SCOPE, "result": RAG_RESULT, "level": RelevanceLevel.HIGH, **more}
    return entry(call, "rag", EvidenceKind.DOCUMENTS, **options)


def missing(call: str = "gone-1", code: LimitationCode | None = None) -> IndexedRecord:
    return IndexedRecord(call, "logs", EvidenceKind.LOG_OR_DATABASE, None, missing_code=code)


def views(*entries: IndexedRecord) -> dict[str, EvidenceView]:
    return evidence_views(entries)


def analysis(number: int, kind: AnalysisKind, statement: str, *calls: str) -> Analysis:
    return Analysis(analysis_id=f"A{number}", kind=kind, statement=statement, tool_call_ids=list(calls))


def observation(number: int = 1, statement: str = "128 errors", *calls: str) -> Analysis:
    return analysis(number, AnalysisKind.OBSERVATION, statement, *(calls or ("log-1",)))


def draft(
    *analyses: Analysis,
    conclusion: str | None = "The pool is exhausted.",
    supports: Sequence[str] = ("A1",),
    missing_info: Sequence[str] = (),
    unverified: Sequence[str] = (),
) -> DiagnosisDraft:
    return DiagnosisDraft(
        conclusion=Conclusion(statement=conclusion, supporting_analysis_ids=list(supports)) if conclusion else None,
        analyses=list(analyses),
        limitations=DraftLimitations(missing_info=list(missing_info), unverified=list(unverified)),
    )
