"""EvidenceRepair: what its single model call sees, and what of its answer is taken (R90). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from release.contract import (
    MAX_GUARD_INPUT_BYTES,
    DiagnosisDraft,
    GuardViolation,
    RepairRejected,
)
from release.draft import parse_draft
from release.evidence import EvidenceView
from release.evidence_guard import CARRYING_KINDS, Evidence, unfound_quotes
from release.guard_input import guard_input
from release.quotes import haystack
from tools.contract import EvidenceKind


def legal_references(run_id: str, evidence: Evidence) -> list[EvidenceView]:
    """Return the calls a repaired draft may cite, in the index's order."""
    return [view for view in evidence.values() if view.is_legal(run_id)]


def repairable(draft: DiagnosisDraft, violations: Sequence[GuardViolation], run_id: str, evidence: Evidence) -> bool:
    """Say whether dropping and relinking could save the conclusion; a repair call is spent only then (R90).

    It cannot without a call that found logs or rows, without an OBSERVATION or INFERENCE (kinds stay), or when the
    conclusion quotes what no legal call holds (statements stay).
    """
    if draft.conclusion is None or not violations:
        return False
    legal = legal_references(run_id, evidence)
    carrying = [view for view in legal if view.found and view.kind is EvidenceKind.LOG_OR_DATABASE]
    if not carrying or not any(analysis.kind in CARRYING_KINDS for analysis in draft.analyses):
        return False
    kinds = {analysis.kind for analysis in draft.analyses}
    return not unfound_quotes(draft.conclusion.statement, [haystack(view, kind) for view in legal for kind in kinds])


def repair_input(
    draft: DiagnosisDraft,
    violations: Sequence[GuardViolation],
    run_id: str,
    evidence: Evidence,
    max_bytes: int = MAX_GUARD_INPUT_BYTES,
) -> str:
    """Return the data block of the repair call: the draft, its violations and the legal references (R90).

    JSON `{"draft", "violations": [{"code", "analysis_id"}], "observations": [{"tool_call_id", "results",
    "evidence_status", "scope", "shortened_for_review", "result"}]}` of at most `max_bytes` UTF-8 bytes.
    """
    head = {
        "draft": draft.model_dump(mode="json"),
        "violations": [violation.model_dump(mode="json") for violation in violations],
    }
    return guard_input(head, legal_references(run_id, evidence), draft, max_bytes)


def accept_repair(original: DiagnosisDraft, text: str) -> DiagnosisDraft | RepairRejected:
    """Take a repaired draft if it only drops or relinks, else say why not (R90).

    Every analysis is one of the original's by kind and verbatim statement, no more often than there; its analysis_id
    and tool_call_ids may change. The conclusion is the original's verbatim or null. Limitations are always the
    original's: a repair has no say in them.
    """
    repaired = parse_draft(text)
    if not isinstance(repaired, DiagnosisDraft):
        return RepairRejected.UNPARSABLE
    before = Counter((analysis.kind, analysis.statement) for analysis in original.analyses)
    after = Counter((analysis.kind, analysis.statement) for analysis in repaired.analyses)
    if after - before:
        return RepairRejected.REPAIR_CHANGED_STATEMENT
    if repaired.conclusion is not None:
        allowed = original.conclusion.statement if original.conclusion is not None else None
        if repaired.conclusion.statement != allowed:
            return RepairRejected.REPAIR_CHANGED_STATEMENT
    return repaired.model_copy(update={"limitations": original.limitations})
