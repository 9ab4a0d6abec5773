"""DiagnosisProgressProjector: one bounded account of what a Run checked and saw (R64-R66, R68). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graph.contract import DiagnosisStopReason
from release.bounding import clean_text, cut_text, dump, readable_scope
from release.contract import (
    MAX_CHECKED,
    MAX_DOCUMENTS,
    MAX_EXCERPT_CHARS,
    MAX_FACTS,
    CheckedScope,
    DocumentRef,
    FactKind,
    LimitationCode,
    ObservedFact,
    ProgressSnapshot,
)
from release.evidence import IndexedRecord
from tools.contract import CanonicalRecord, ControlView, EvidenceKind, EvidenceStatus, InvocationStatus, RelevanceLevel

_MISSING = frozenset(
    {
        LimitationCode.CANONICAL_RECORD_MISSING,
        LimitationCode.CANONICAL_RECORD_EXPIRED,
        LimitationCode.CANONICAL_RECORD_UNAVAILABLE,
    }
)
_STOPPED = {
    DiagnosisStopReason.INFORMATION_SATURATED: LimitationCode.STOPPED_INFORMATION_SATURATED,
    DiagnosisStopReason.PROGRESS_PROTOCOL_VIOLATED: LimitationCode.STOPPED_PROTOCOL,
    DiagnosisStopReason.BUDGET_LIMIT_REACHED: LimitationCode.STOPPED_BUDGET,
}
_MAX_METADATA_CHARS = 300
_MAX_SCOPE_KEYS = 8


def project_snapshot(
    run_id: str,
    entries: Sequence[IndexedRecord],
    stop_reason: DiagnosisStopReason | None,
    budget_crossed: bool,
    fault: bool,
) -> ProgressSnapshot:
    """Project the index of a Run (completion order) into its snapshot (R64-R66).

    Only READY records of this very Run yield facts: excerpts of logs and database rows, and "nothing matched" where
    those were searched in vain. Documents appear by metadata alone (R68). Everything else yields a limitation.
    """
    unique = list({entry.tool_call_id: entry for entry in reversed(entries)}.values())[::-1]
    limits = _run_limitations(stop_reason, budget_crossed, fault)
    checked: list[CheckedScope] = []
    facts: list[tuple[int, ObservedFact]] = []
    documents: dict[str, DocumentRef] = {}
    for entry in unique:
        limitation = _limitation(run_id, entry)
        if limitation is not None:
            limits.add(limitation)
        record = entry.record
        if record is None or limitation not in (None, LimitationCode.TOOL_ERROR):
            continue
        scope, cut = readable_scope(record.scope)
        view = entry.control if limitation is None else None
        checked.append(_checked(entry, scope, record.evidence_status if view else None, view))
        limits |= {LimitationCode.SNAPSHOT_TRUNCATED} if cut else set()
        limits |= {LimitationCode.RESULT_TRUNCATED} if checked[-1].truncated else set()
        if limitation is None:
            facts += list(enumerate(_facts(entry, record, scope)))
            for document in _documents(entry, record):
                _keep_higher(documents, document)
    shown = _select(facts)
    if len(checked) > MAX_CHECKED or len(shown) < len(facts) or len(documents) > MAX_DOCUMENTS:
        limits.add(LimitationCode.SNAPSHOT_TRUNCATED)
    return ProgressSnapshot(
        run_id=run_id,
        checked=checked[:MAX_CHECKED],
        observed_facts=shown,
        documents=list(documents.values())[:MAX_DOCUMENTS],
        limitations=[code for code in LimitationCode if code in limits],
    )


def with_limitation(snapshot: ProgressSnapshot, code: LimitationCode) -> ProgressSnapshot:
    """Return the snapshot with one more limitation, in the order of the enum and each once."""
    codes = {*snapshot.limitations, code}
    return snapshot.model_copy(update={"limitations": [known for known in LimitationCode if known in codes]})


def _run_limitations(stop: DiagnosisStopReason | None, budget_crossed: bool, fault: bool) -> set[LimitationCode]:
    limits = {_STOPPED[stop]} if stop is not None else set()
    limits |= {LimitationCode.STOPPED_BUDGET} if budget_crossed else set()
    return limits | ({LimitationCode.FAULT} if fault else set())


def _limitation(run_id: str, entry: IndexedRecord) -> LimitationCode | None:
    """Say why an entry proves nothing; None when it is a READY record of this Run and of this call (R65)."""
    record = entry.record
    if record is None:
        code = entry.missing_code
        return code if code in _MISSING else LimitationCode.CANONICAL_RECORD_UNAVAILABLE
    if (record.run_id, record.tool_call_id, record.tool_name) != (run_id, entry.tool_call_id, entry.tool_name):
        return LimitationCode.RECORD_NOT_OWNED
    if record.status is InvocationStatus.ERROR or record.evidence_status is EvidenceStatus.ERROR:
        return LimitationCode.TOOL_ERROR
    control = entry.control
    readable = control is not None and control.evidence_status is record.evidence_status is not None
    if record.status is not InvocationStatus.READY or not readable:
        return LimitationCode.CANONICAL_RECORD_UNAVAILABLE
    return None


def _checked(
    entry: IndexedRecord, scope: dict[str, Any], status: EvidenceStatus | None, view: ControlView | None
) -> CheckedScope:
    """A call that failed was tried all the same: it stands in the process, with nothing returned."""
    return CheckedScope(
        tool_call_id=entry.tool_call_id,
        tool_name=entry.tool_name,
        scope=scope,
        evidence_status=status or EvidenceStatus.ERROR,
        returned_count=view.returned_count if view else 0,
        truncated=view.truncated if view else False,
        relevance_level=view.relevance_level if view else None,
    )


def _facts(entry: IndexedRecord, record: CanonicalRecord, scope: dict[str, Any]) -> Iterator[ObservedFact]:
    if entry.kind is EvidenceKind.DOCUMENTS:
        return
    nothing = record.evidence_status is EvidenceStatus.NO_EVIDENCE
    texts = (negative_excerpt(scope),) if nothing else tuple(fact.excerpt for fact in entry.facts)
    for text in texts:
        excerpt = cut_text(clean_text(text).strip(), MAX_EXCERPT_CHARS)
        if excerpt:
            yield ObservedFact(
                tool_call_id=entry.tool_call_id,
                tool_name=entry.tool_name,
                kind=FactKind.NEGATIVE if nothing else FactKind.POSITIVE,
                scope=scope,
                excerpt=excerpt,
            )


def _select(facts: Sequence[tuple[int, ObservedFact]]) -> list[ObservedFact]:
    """Take ten facts, every call's most telling one before any call's second; shown in completion order."""

    def priority(at: int) -> tuple[int, bool, int]:
        rank, fact = facts[at]
        return rank, fact.kind is FactKind.NEGATIVE, at

    chosen = sorted(range(len(facts)), key=priority)[:MAX_FACTS]
    return [facts[at][1] for at in sorted(chosen)]


def negative_excerpt(scope: Mapping[str, Any]) -> str:
    """Say in at most 300 characters that nothing matched, and in which scope (R71); every key keeps its share."""
    pairs = [
        (cut_text(key, 32), value if isinstance(value, str) else dump(value))
        for key, value in list(scope.items())[:_MAX_SCOPE_KEYS]
    ]
    text = "matched=0"
    for at, (key, value) in enumerate(pairs):
        later = sum(len(name) + min(len(item), 24) + 4 for name, item in pairs[at + 1 :])
        room = max(MAX_EXCERPT_CHARS - len(text) - len(key) - 4 - later, 1)
        text += f" | {key}={cut_text(value, room)}"
    return cut_text(text, MAX_EXCERPT_CHARS)


def _documents(entry: IndexedRecord, record: CanonicalRecord) -> Iterator[DocumentRef]:
    listed = (record.agent_result or {}).get("documents")
    if entry.kind is not EvidenceKind.DOCUMENTS or not isinstance(listed, list):
        return
    for item in listed:
        fields = item if isinstance(item, dict) else {}
        level = fields.get("relevance_level")
        names = [fields.get(name) for name in ("document_id", "title", "source")]
        if level in tuple(RelevanceLevel) and all(isinstance(name, str) for name in names) and names[0]:
            document_id, title, source = (cut_text(clean_text(str(name)), _MAX_METADATA_CHARS) for name in names)
            yield DocumentRef(
                document_id=document_id, title=title, source=source, relevance_level=RelevanceLevel(str(level))
            )


def _keep_higher(documents: dict[str, DocumentRef], document: DocumentRef) -> None:
    known = documents.get(document.document_id)
    if known is None or document.relevance_level is RelevanceLevel.HIGH:
        documents[document.document_id] = document
