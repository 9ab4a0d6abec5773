"""Reads the index's canonical records for the projector and the guards (R13, R64, R65, R88g)."""

from __future__ import annotations

from graph.tracker import CompletedCall, DiagnosisProgressTracker
from nodes.node_run import NodeRun
from release.contract import LimitationCode
from release.evidence import EvidenceView, IndexedRecord, evidence_views
from tools.canonical.store import CanonicalStoreUnavailable
from tools.contract import CanonicalRecord, EvidenceKind, InvocationStatus
from tools.evidence_tool import EvidenceTool, ObservationContractViolation


async def indexed_records(run: NodeRun, tracker: DiagnosisProgressTracker) -> list[IndexedRecord]:
    """Fetch every entry's record key by key, in the index's order; what is missing says so and is never made up."""
    records = list[IndexedRecord]()
    for entry in tracker.index:
        try:
            record = await run.resources.canonical.get(run.run.run_id, entry.tool_call_id)
        except CanonicalStoreUnavailable:
            record = None
        records.append(_indexed(run, entry, record))
    return records


async def guarded_evidence(run: NodeRun, tracker: DiagnosisProgressTracker) -> dict[str, EvidenceView]:
    """Fetch the same for a guard. Raises CanonicalStoreUnavailable: a guard that cannot read did not say no (R88g)."""
    store, run_id = run.resources.canonical, run.run.run_id
    return evidence_views(
        [_indexed(run, entry, await store.get(run_id, entry.tool_call_id)) for entry in tracker.index]
    )


def _indexed(run: NodeRun, entry: CompletedCall, record: CanonicalRecord | None) -> IndexedRecord:
    tool = run.resources.tools.get(entry.tool_name)
    kind = tool.kind if tool is not None else EvidenceKind.LOG_OR_DATABASE
    # A scope is remembered only after a successful projection: what was withheld from the model proves nothing (R17).
    withheld = record is not None and record.status is InvocationStatus.READY and entry.scope_key is None
    if record is None or tool is None or withheld:
        return IndexedRecord(
            tool_call_id=entry.tool_call_id,
            tool_name=entry.tool_name,
            kind=kind,
            record=None,
            missing_code=LimitationCode.CANONICAL_RECORD_UNAVAILABLE,
        )
    return _read(tool, entry, record)


def _read(tool: EvidenceTool, entry: CompletedCall, record: CanonicalRecord) -> IndexedRecord:
    bare = IndexedRecord(entry.tool_call_id, entry.tool_name, tool.kind, record)
    if record.status is not InvocationStatus.READY or record.agent_result is None:
        return bare
    try:
        control = tool.control(record.agent_result, record.scope)
        facts = tool.facts(record.scope, record.agent_result)
    except ObservationContractViolation:
        return bare
    return IndexedRecord(entry.tool_call_id, entry.tool_name, tool.kind, record, facts, control)
