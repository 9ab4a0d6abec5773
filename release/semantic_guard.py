"""SemanticGuard: what its model call sees, how its answer is read, and the offline model's verdict (R91). Pure."""

from __future__ import annotations

from release.bounding import cut_text
from release.contract import (
    MAX_GUARD_INPUT_BYTES,
    Analysis,
    AnalysisKind,
    DiagnosisDraft,
    SemanticJudgement,
    SemanticVerdict,
)
from release.evidence import EvidenceView
from release.evidence_guard import Evidence
from release.guard_input import cited_views, guard_input
from release.lexical import lexically_contained, tokens_contained
from release.strict_json import parse_strict

MAX_QUESTION_CHARS = 1_000
MAX_JUDGEMENT_BYTES = 4 * 1024
"""UTF-8 bytes of a judgement; twelve analysis ids need a few hundred."""


def semantic_input(
    question: str, draft: DiagnosisDraft, evidence: Evidence, max_bytes: int = MAX_GUARD_INPUT_BYTES
) -> str:
    """Return the data block of a semantic guard call: question, statements and the observations they cite (R91).

    JSON `{"question", "conclusion", "analyses", "observations": [{"tool_call_id", "results", "evidence_status", "scope",
    "shortened_for_review", "result"}]}` of at most `max_bytes` UTF-8 bytes; limitations are not judged and not shown.
    """
    head = {"question": cut_text(question, MAX_QUESTION_CHARS)}
    head |= draft.model_dump(mode="json", include={"conclusion", "analyses"})
    return guard_input(head, cited_views(draft, evidence), draft, max_bytes)


def parse_judgement(text: str, draft: DiagnosisDraft) -> SemanticJudgement | None:
    """Read a judgement strictly; None when it is unusable, which counts as a failed attempt (R91, R118).

    Unusable is also what contradicts itself (SUPPORTED with unsupported analyses) and what names analyses the draft
    does not have. UNSUPPORTED without ids is usable: then the conclusion goes beyond analyses that are each supported.
    """
    judgement = parse_strict(text, SemanticJudgement, MAX_JUDGEMENT_BYTES)
    if not isinstance(judgement, SemanticJudgement):
        return None
    named = set(judgement.unsupported_analysis_ids)
    if judgement.verdict is SemanticVerdict.SUPPORTED and named:
        return None
    return judgement if named <= {analysis.analysis_id for analysis in draft.analyses} else None


def lexical_verdict(draft: DiagnosisDraft, evidence: Evidence) -> SemanticJudgement:
    """Judge by lexical containment, for the offline model; the trace says that it was lexical (R91).

    OBSERVATION, INFERENCE and REFERENCE_KNOWLEDGE are held against their own calls. A NEGATIVE_OBSERVATION may use the
    words of the whole draft's evidence for what it rules out, the conclusion those of its supporting analyses.
    """
    ignored = frozenset(call for analysis in draft.analyses for call in analysis.tool_call_ids)
    ignored |= {analysis.analysis_id for analysis in draft.analyses}

    def contained(analysis: Analysis) -> bool:
        if analysis.kind is AnalysisKind.NEGATIVE_OBSERVATION:
            return _nothing_made_up(analysis, draft, evidence, ignored)
        return lexically_contained(analysis.statement, _views([analysis], evidence), ignored)

    unsupported = [analysis.analysis_id for analysis in draft.analyses if not contained(analysis)]
    supported = not unsupported and _conclusion_contained(draft, evidence, ignored)
    verdict = SemanticVerdict.SUPPORTED if supported else SemanticVerdict.UNSUPPORTED
    return SemanticJudgement(verdict=verdict, unsupported_analysis_ids=list(dict.fromkeys(unsupported)))


def _nothing_made_up(analysis: Analysis, draft: DiagnosisDraft, evidence: Evidence, ignored: frozenset[str]) -> bool:
    """The evidence guard proved that nothing matched; here only invented tokens could be wrong."""
    empty = all(not view.found for view in _views([analysis], evidence))
    zero = frozenset({"0"}) if empty else frozenset()
    return empty and tokens_contained(analysis.statement, _views(draft.analyses, evidence), ignored | zero)


def _conclusion_contained(draft: DiagnosisDraft, evidence: Evidence, ignored: frozenset[str]) -> bool:
    if draft.conclusion is None:
        return True
    supporting = [each for each in draft.analyses if each.analysis_id in draft.conclusion.supporting_analysis_ids]
    return lexically_contained(draft.conclusion.statement, _views(supporting, evidence), ignored)


def _views(analyses: list[Analysis], evidence: Evidence) -> list[EvidenceView]:
    calls = dict.fromkeys(call for analysis in analyses for call in analysis.tool_call_ids)
    return [evidence[call] for call in calls if call in evidence]
