"""Contract types of the release stage (R6): draft, snapshot, fallback, published result."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
)

from tools.contract import EvidenceStatus, RelevanceLevel, ToolCallId

MAX_DRAFT_BYTES = 32 * 1024
"""UTF-8 bytes of a final model text (R79)."""
MAX_CHECKED = 20
"""Checked scopes of one snapshot (R66)."""
MAX_FACTS = 10
"""Observed facts of one snapshot (R66)."""
MAX_DOCUMENTS = 20
"""Documents of one snapshot, by metadata only (R68)."""
MAX_EXCERPT_CHARS = 300
"""Characters of one fact's excerpt (R66)."""
MAX_PREVIOUS_TURN_BYTES = 2 * 1024
"""UTF-8 bytes of the previous turn as prompts see it (R99)."""
MAX_GUARD_INPUT_BYTES = 40 * 1024
"""UTF-8 bytes one guard call may be shown (R117): a whole draft and 8 KiB of evidence; three fit the reserve of tokens."""


class ReleaseModel(BaseModel):
    """Base of every release record: immutable, unknown keys refused (R6)."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StrictModel(BaseModel):
    """Base of what a model writes: immutable, unknown keys refused, no type coercion (R73, R77)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class AnalysisKind(StrEnum):
    """What an analysis claims to be (R71)."""

    OBSERVATION = "OBSERVATION"
    INFERENCE = "INFERENCE"
    REFERENCE_KNOWLEDGE = "REFERENCE_KNOWLEDGE"
    NEGATIVE_OBSERVATION = "NEGATIVE_OBSERVATION"


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


AnalysisId = Annotated[str, StringConstraints(pattern=r"^A[1-9][0-9]?$")]
Note = Annotated[str, StringConstraints(max_length=200)]
NotBlank = AfterValidator(_not_blank)
"""Refuses a text of whitespace alone; invisible in the schema a provider gets."""


class Conclusion(StrictModel):
    """The root cause as the draft states it, with the analyses that carry it (R73)."""

    statement: Annotated[str, NotBlank] = Field(
        min_length=1,
        max_length=1000,
        description=(
            "The deepest cause the evidence shows, or the answer to a question for facts; no more than the supporting "
            "analyses show. Put between backticks only text that occurs verbatim in a result that one of them cites."
        ),
    )
    supporting_analysis_ids: list[AnalysisId] = Field(
        min_length=1,
        max_length=8,
        description="analysis_id of the analyses that carry it; at least one is an OBSERVATION or an INFERENCE.",
    )


class Analysis(StrictModel):
    """One statement bound to the calls that show it (R71, R73)."""

    analysis_id: AnalysisId = Field(description="A1, A2, and so on; each once.")
    kind: AnalysisKind = Field(
        description=(
            "OBSERVATION: what log events or database rows show. INFERENCE: what follows from them. Both cite only "
            "calls with evidence_status EVIDENCE_FOUND, at least one of them a log or database call. "
            "REFERENCE_KNOWLEDGE: what knowledge documents say; cites only calls that returned documents. "
            "NEGATIVE_OBSERVATION: that nothing matched; cites only calls with evidence_status NO_EVIDENCE and never "
            "states a cause."
        )
    )
    statement: Annotated[str, NotBlank] = Field(
        min_length=1,
        max_length=600,
        description=(
            "One statement. Put between backticks only text that occurs verbatim in a result of its tool_call_ids, "
            "never text put together from several places. A NEGATIVE_OBSERVATION may quote what it searched for."
        ),
    )
    tool_call_ids: list[ToolCallId] = Field(
        min_length=1, max_length=6, description="tool_call_id of the results in this conversation that show it."
    )


class DraftLimitations(StrictModel):
    """What was missing and what stays unverified (R73)."""

    missing_info: list[Note] = Field(
        default_factory=list,
        max_length=8,
        description="What only the user can tell and the investigation needs.",
    )
    unverified: list[Note] = Field(
        default_factory=list, max_length=8, description="What stays open, looked into or not."
    )


class DiagnosisDraft(StrictModel):
    """The model's final answer; `conclusion: null` is a legal end (R73)."""

    conclusion: Conclusion | None = Field(description="null when the evidence carries no such statement: a legal end.")
    analyses: list[Analysis] = Field(max_length=12, description="May be empty.")
    limitations: DraftLimitations


class AgentOutputFailure(StrEnum):
    """Why a final model text was discarded (R79)."""

    EMPTY_OUTPUT = "EMPTY_OUTPUT"
    NOT_JSON = "NOT_JSON"
    SCHEMA_VIOLATION = "SCHEMA_VIOLATION"
    OUTPUT_TOO_LARGE = "OUTPUT_TOO_LARGE"
    INVALID_TOOL_CALL_ID = "INVALID_TOOL_CALL_ID"


class LimitationCode(StrEnum):
    """Stable codes of what limits a snapshot or a published result (R66)."""

    FAULT = "FAULT"
    CANONICAL_RECORD_MISSING = "CANONICAL_RECORD_MISSING"
    CANONICAL_RECORD_EXPIRED = "CANONICAL_RECORD_EXPIRED"
    CANONICAL_RECORD_UNAVAILABLE = "CANONICAL_RECORD_UNAVAILABLE"
    TOOL_ERROR = "TOOL_ERROR"
    RECORD_NOT_OWNED = "RECORD_NOT_OWNED"
    RESULT_TRUNCATED = "RESULT_TRUNCATED"
    STOPPED_INFORMATION_SATURATED = "STOPPED_INFORMATION_SATURATED"
    STOPPED_BUDGET = "STOPPED_BUDGET"
    STOPPED_PROTOCOL = "STOPPED_PROTOCOL"
    SNAPSHOT_TRUNCATED = "SNAPSHOT_TRUNCATED"


class FactKind(StrEnum):
    """Whether a fact shows what was there or that nothing matched (R66)."""

    POSITIVE = "POSITIVE"
    NEGATIVE = "NEGATIVE"


class _OptionalRelevance(ReleaseModel):
    """A scope whose `relevance_level` is absent from the JSON, not null, where documents were not searched (R92)."""

    @model_serializer(mode="wrap")
    def _without_null_relevance(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        if values.get("relevance_level", ...) is None:
            del values["relevance_level"]
        return values


class CheckedScope(_OptionalRelevance):
    """One scope that was checked in this Run (R66). `scope` is the readable normalized form."""

    tool_call_id: ToolCallId
    tool_name: str
    scope: dict[str, Any]
    evidence_status: EvidenceStatus
    returned_count: int = Field(ge=0)
    truncated: bool
    relevance_level: RelevanceLevel | None = None


class ObservedFact(ReleaseModel):
    """A fact verified for this Run, with the call that shows it (R66)."""

    tool_call_id: ToolCallId
    tool_name: str
    kind: FactKind
    scope: dict[str, Any]
    excerpt: str = Field(max_length=300)


class DocumentRef(ReleaseModel):
    """Metadata of a knowledge document, never its content (R74)."""

    document_id: str
    title: str
    source: str
    relevance_level: RelevanceLevel


class ProgressSnapshot(ReleaseModel):
    """Bounded account of what a Run checked and saw (R64-R66); never shown to the model."""

    run_id: str
    checked: list[CheckedScope] = Field(default_factory=list, max_length=20)
    observed_facts: list[ObservedFact] = Field(default_factory=list, max_length=10)
    documents: list[DocumentRef] = Field(default_factory=list, max_length=20)
    limitations: list[LimitationCode] = Field(default_factory=list)


class ReleaseOutcome(StrEnum):
    """What left a Run (R94)."""

    CONCLUSION = "CONCLUSION"
    FALLBACK = "FALLBACK"
    KNOWLEDGE_ANSWER = "KNOWLEDGE_ANSWER"
    CHAT = "CHAT"
    NONE = "NONE"


class FallbackReason(StrEnum):
    """Why no conclusion was published (R92)."""

    MISSING_REQUIRED_CONTEXT = "MISSING_REQUIRED_CONTEXT"
    INSUFFICIENT_EVIDENCE = "INSUFFICIENT_EVIDENCE"


class ProcessStep(_OptionalRelevance):
    """One checked scope as the public fallback shows it (R92)."""

    tool_name: str
    scope: dict[str, Any]
    evidence_status: EvidenceStatus
    returned_count: int
    truncated: bool
    relevance_level: RelevanceLevel | None = None


class FallbackFact(ReleaseModel):
    """One observed fact of the public fallback (R92)."""

    statement: str
    tool_call_id: str


class FallbackLimitations(ReleaseModel):
    """Limits of the public fallback (R92)."""

    missing_info: list[str]
    notes: list[LimitationCode]


class SafeFallback(ReleaseModel):
    """The public fallback JSON (R92); no thresholds, counters or budgets."""

    type: Literal["FALLBACK"] = "FALLBACK"
    reason: FallbackReason
    summary: str
    process: list[ProcessStep]
    observed_facts: list[FallbackFact]
    limitations: FallbackLimitations


class Finding(ReleaseModel):
    """One published statement and the calls that show it (R74)."""

    statement: str
    kind: AnalysisKind
    tool_call_ids: list[str]


class PublishedScope(ReleaseModel):
    """One checked scope of a published result (R74)."""

    tool_name: str
    scope: dict[str, Any]
    evidence_status: EvidenceStatus


class PublishedLimitations(ReleaseModel):
    """What a published result does not cover (R74)."""

    missing_info: list[str] = Field(default_factory=list)
    unverified: list[str] = Field(default_factory=list)
    notes: list[LimitationCode] = Field(default_factory=list)


class PublishedResult(ReleaseModel):
    """The user's result (R74): no raw rows, no log lines beyond what findings state."""

    query: str
    outcome: ReleaseOutcome
    conclusion: str | None
    findings: list[Finding]
    scope: list[PublishedScope]
    limitations: PublishedLimitations
    documents: list[DocumentRef]


class ViolationCode(StrEnum):
    """Codes of the evidence guard (R89) and of references in a draft without conclusion (R88e)."""

    UNKNOWN_TOOL_CALL = "UNKNOWN_TOOL_CALL"
    TOOL_CALL_NOT_READY = "TOOL_CALL_NOT_READY"
    RECORD_UNAVAILABLE = "RECORD_UNAVAILABLE"
    RECORD_NOT_OWNED = "RECORD_NOT_OWNED"
    KIND_NEEDS_EVIDENCE_FOUND = "KIND_NEEDS_EVIDENCE_FOUND"
    KIND_NEEDS_NO_EVIDENCE = "KIND_NEEDS_NO_EVIDENCE"
    KIND_NEEDS_LOG_OR_DATABASE = "KIND_NEEDS_LOG_OR_DATABASE"
    KIND_NEEDS_DOCUMENTS_ONLY = "KIND_NEEDS_DOCUMENTS_ONLY"
    UNKNOWN_SUPPORTING_ANALYSIS = "UNKNOWN_SUPPORTING_ANALYSIS"
    NO_SUPPORTING_EVIDENCE = "NO_SUPPORTING_EVIDENCE"
    DUPLICATE_ANALYSIS_ID = "DUPLICATE_ANALYSIS_ID"
    QUOTE_NOT_FOUND = "QUOTE_NOT_FOUND"
    REPAIR_CHANGED_STATEMENT = "REPAIR_CHANGED_STATEMENT"
    REFERENCE_INVALID = "REFERENCE_INVALID"


class GuardViolation(ReleaseModel):
    """One violation; `analysis_id` is None for the conclusion itself (R89)."""

    code: ViolationCode
    analysis_id: str | None = None


class SemanticVerdict(StrEnum):
    """The semantic guard's answer (R91)."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class SemanticJudgement(StrictModel):
    """Strict output of the semantic guard (R91)."""

    verdict: SemanticVerdict
    unsupported_analysis_ids: list[AnalysisId]


class GuardOutcome(StrEnum):
    """How a guard ended. A guard that could not run is never a guard that said no (R88f, R88g)."""

    NOT_RUN = "NOT_RUN"
    PASSED = "PASSED"
    FAILED = "FAILED"
    TECHNICAL_FAILURE = "TECHNICAL_FAILURE"


class ReleaseStage(StrEnum):
    """Where a Run goes between the end of collection and its release (R81, R82)."""

    GUARD_EVIDENCE = "GUARD_EVIDENCE"
    REPAIR_EVIDENCE = "REPAIR_EVIDENCE"
    GUARD_SEMANTICS = "GUARD_SEMANTICS"
    RELEASE = "RELEASE"


class RepairRejected(StrEnum):
    """Why a repaired draft was not taken (R90)."""

    UNPARSABLE = "UNPARSABLE"
    REPAIR_CHANGED_STATEMENT = "REPAIR_CHANGED_STATEMENT"


class ReleaseReason(StrEnum):
    """Why the release decided as it did; the trace's `reason` of RELEASE_DECIDED (R108)."""

    CONCLUSION_SUPPORTED = "CONCLUSION_SUPPORTED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    FAULT = "FAULT"
    OUTPUT_REJECTED = "OUTPUT_REJECTED"
    STOPPED_INFORMATION_SATURATED = "STOPPED_INFORMATION_SATURATED"
    STOPPED_BUDGET = "STOPPED_BUDGET"
    STOPPED_PROTOCOL = "STOPPED_PROTOCOL"
    NO_DRAFT = "NO_DRAFT"
    MISSING_REQUIRED_CONTEXT = "MISSING_REQUIRED_CONTEXT"
    NO_CONCLUSION = "NO_CONCLUSION"
    EVIDENCE_REJECTED = "EVIDENCE_REJECTED"
    SEMANTICS_REJECTED = "SEMANTICS_REJECTED"
    GUARD_UNAVAILABLE = "GUARD_UNAVAILABLE"
    KNOWLEDGE_ANSWERED = "KNOWLEDGE_ANSWERED"
    KNOWLEDGE_NOT_FOUND = "KNOWLEDGE_NOT_FOUND"
    CHAT_ANSWERED = "CHAT_ANSWERED"
    INTENT_ROUTING_FAILED = "INTENT_ROUTING_FAILED"


class ReleaseErrorCode(StrEnum):
    """Stable code of a Run that published nothing (R78, R84, R87, R94)."""

    CANCELLED = "CANCELLED"
    RUN_TIMED_OUT = "RUN_TIMED_OUT"
    DIAGNOSIS_FAULT = "DIAGNOSIS_FAULT"
    AGENT_OUTPUT_REJECTED = "AGENT_OUTPUT_REJECTED"
    PROGRESS_PROTOCOL_VIOLATED = "PROGRESS_PROTOCOL_VIOLATED"
    GUARD_UNAVAILABLE = "GUARD_UNAVAILABLE"
    INTENT_ROUTING_FAILED = "INTENT_ROUTING_FAILED"
    BUDGET_LIMIT_REACHED = "BUDGET_LIMIT_REACHED"
    KNOWLEDGE_LOOKUP_FAILED = "KNOWLEDGE_LOOKUP_FAILED"
    ANSWER_FAULT = "ANSWER_FAULT"
    ANSWER_REJECTED = "ANSWER_REJECTED"
