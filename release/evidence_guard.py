"""EvidenceGuard: does every statement stand on calls of this Run that may carry it? Deterministic (R71, R89). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from release.contract import (
    Analysis,
    AnalysisKind,
    Conclusion,
    DiagnosisDraft,
    GuardViolation,
    ViolationCode,
)
from release.evidence import EvidenceView
from release.quotes import Haystack, find_quotes, haystack
from tools.contract import EvidenceKind, EvidenceStatus, InvocationStatus

Evidence = Mapping[str, EvidenceView]
"""The Run's calls by tool_call_id."""

CARRYING_KINDS = frozenset({AnalysisKind.OBSERVATION, AnalysisKind.INFERENCE})
"""Kinds a conclusion may stand on (R89.3, R89.4)."""


def check_evidence(draft: DiagnosisDraft, run_id: str, evidence: Evidence) -> tuple[GuardViolation, ...]:
    """Return every violation of R89 and of the matrix of R71, each once, in the draft's order; empty means passed."""
    found = [violation for analysis in draft.analyses for violation in _check_analysis(analysis, run_id, evidence)]
    ids = [analysis.analysis_id for analysis in draft.analyses]
    found += [_violation(ViolationCode.DUPLICATE_ANALYSIS_ID, each) for each in ids if ids.count(each) > 1]
    if draft.conclusion is not None:
        found += _check_conclusion(draft.conclusion, draft.analyses, run_id, evidence)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class ReferenceCheck:
    """A draft without conclusion, cleared of analyses with false references (R88e)."""

    draft: DiagnosisDraft
    violations: tuple[GuardViolation, ...]

    @property
    def invalid(self) -> bool:
        """True when REFERENCE_INVALID is to be traced."""
        return bool(self.violations)


def check_references(draft: DiagnosisDraft, run_id: str, evidence: Evidence) -> ReferenceCheck:
    """Check the references of a draft without conclusion, and nothing else of it (R82, R88e).

    A reference must be a real READY record of this Run with the right polarity: NEGATIVE_OBSERVATION cites calls that
    matched nothing, every other kind calls that found something. An analysis with a false reference is dropped.
    """
    invalid = [
        any(True for _ in _reference_faults(analysis, run_id, evidence))
        or _polarity_fault(analysis, evidence) is not None
        for analysis in draft.analyses
    ]
    kept = [analysis for analysis, bad in zip(draft.analyses, invalid, strict=True) if not bad]
    dropped = [analysis for analysis, bad in zip(draft.analyses, invalid, strict=True) if bad]
    violations = tuple(_violation(ViolationCode.REFERENCE_INVALID, each.analysis_id) for each in dropped)
    return ReferenceCheck(draft.model_copy(update={"analyses": kept}), tuple(dict.fromkeys(violations)))


def unfound_quotes(statement: str, sources: Sequence[Haystack]) -> bool:
    """Say whether a statement quotes anything that none of the sources holds, or quotes brokenly (R89.6)."""
    quotes = find_quotes(statement)
    return quotes.broken or any(not any(source.holds(text) for source in sources) for text in quotes.texts)


def sources_of(analyses: Iterable[Analysis], run_id: str, evidence: Evidence) -> list[Haystack]:
    """Collect what the calls of some analyses hold, each call as its analysis may quote it."""
    pairs = dict.fromkeys((call, analysis.kind) for analysis in analyses for call in analysis.tool_call_ids)
    views = ((evidence.get(call), kind) for call, kind in pairs)
    return [haystack(view, kind) for view, kind in views if view is not None and view.is_legal(run_id)]


def _check_analysis(analysis: Analysis, run_id: str, evidence: Evidence) -> Iterator[GuardViolation]:
    codes = list(_reference_faults(analysis, run_id, evidence))
    codes += _binding_faults(analysis, evidence)
    if unfound_quotes(analysis.statement, sources_of([analysis], run_id, evidence)):
        codes.append(ViolationCode.QUOTE_NOT_FOUND)
    return (_violation(code, analysis.analysis_id) for code in codes)


def _reference_faults(analysis: Analysis, run_id: str, evidence: Evidence) -> Iterator[ViolationCode]:
    for tool_call_id in analysis.tool_call_ids:
        view = evidence.get(tool_call_id)
        if view is None:
            yield ViolationCode.UNKNOWN_TOOL_CALL
        elif view.status is None:
            yield ViolationCode.RECORD_UNAVAILABLE
        elif view.run_id != run_id:
            yield ViolationCode.RECORD_NOT_OWNED
        elif not view.is_legal(run_id):
            yield ViolationCode.TOOL_CALL_NOT_READY


def _cited(analysis: Analysis, evidence: Evidence) -> list[EvidenceView]:
    """The cited calls that have a result at all; faults of the others are named already."""
    views = (evidence.get(call) for call in analysis.tool_call_ids)
    return [view for view in views if view is not None and view.status is InvocationStatus.READY]


def _polarity_fault(analysis: Analysis, evidence: Evidence) -> ViolationCode | None:
    statuses = {view.evidence_status for view in _cited(analysis, evidence)}
    if analysis.kind is AnalysisKind.NEGATIVE_OBSERVATION:
        return ViolationCode.KIND_NEEDS_NO_EVIDENCE if EvidenceStatus.EVIDENCE_FOUND in statuses else None
    return ViolationCode.KIND_NEEDS_EVIDENCE_FOUND if EvidenceStatus.NO_EVIDENCE in statuses else None


def _binding_faults(analysis: Analysis, evidence: Evidence) -> Iterator[ViolationCode]:
    polarity = _polarity_fault(analysis, evidence)
    if polarity is not None:
        yield polarity
    kinds = {view.kind for view in _cited(analysis, evidence)}
    if analysis.kind in CARRYING_KINDS and EvidenceKind.LOG_OR_DATABASE not in kinds:
        yield ViolationCode.KIND_NEEDS_LOG_OR_DATABASE
    if analysis.kind is AnalysisKind.REFERENCE_KNOWLEDGE and EvidenceKind.LOG_OR_DATABASE in kinds:
        yield ViolationCode.KIND_NEEDS_DOCUMENTS_ONLY


def _check_conclusion(
    conclusion: Conclusion, analyses: Sequence[Analysis], run_id: str, evidence: Evidence
) -> Iterator[GuardViolation]:
    known = {analysis.analysis_id for analysis in analyses}
    supporting = [analysis for analysis in analyses if analysis.analysis_id in conclusion.supporting_analysis_ids]
    if any(each not in known for each in conclusion.supporting_analysis_ids):
        yield _violation(ViolationCode.UNKNOWN_SUPPORTING_ANALYSIS, None)
    if not any(analysis.kind in CARRYING_KINDS for analysis in supporting):
        yield _violation(ViolationCode.NO_SUPPORTING_EVIDENCE, None)
    if unfound_quotes(conclusion.statement, sources_of(supporting, run_id, evidence)):
        yield _violation(ViolationCode.QUOTE_NOT_FOUND, None)


def _violation(code: ViolationCode, analysis_id: str | None) -> GuardViolation:
    return GuardViolation(code=code, analysis_id=analysis_id)
