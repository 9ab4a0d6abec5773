"""Contract types of the state machine (R6): run state, stop reasons, protocol errors, trace events."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class GraphModel(BaseModel):
    """Base of every record here: immutable, unknown keys refused (R6)."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RunState(StrEnum):
    """Internal state of a Run (R8); the last five are terminal."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"


class PublicStatus(StrEnum):
    """Status that leaves the system (R9)."""

    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class CollectionState(StrEnum):
    """Whether queries may still teach something (R12, R16)."""

    COLLECTING = "COLLECTING"
    SATURATED = "SATURATED"


class DiagnosisStopReason(StrEnum):
    """Why collection stopped (R15); closed, the first reason wins."""

    INFORMATION_SATURATED = "INFORMATION_SATURATED"
    PROGRESS_PROTOCOL_VIOLATED = "PROGRESS_PROTOCOL_VIOLATED"
    BUDGET_LIMIT_REACHED = "BUDGET_LIMIT_REACHED"


class ViolationType(StrEnum):
    """How the model broke the envelope protocol (R33)."""

    MALFORMED_ENVELOPE = "MALFORMED_ENVELOPE"
    MISSING_PREVIOUS_OBSERVATION = "MISSING_PREVIOUS_OBSERVATION"
    MISSING_FIELD = "MISSING_FIELD"
    INVALID_INFORMATION_GAIN = "INVALID_INFORMATION_GAIN"
    PREVIOUS_TOOL_CALL_MISMATCH = "PREVIOUS_TOOL_CALL_MISMATCH"
    UNEXPECTED_PREVIOUS_OBSERVATION = "UNEXPECTED_PREVIOUS_OBSERVATION"
    PARALLEL_TOOL_CALL = "PARALLEL_TOOL_CALL"


class RequestErrorCode(StrEnum):
    """Stable codes of answers that are no observation (R42)."""

    INVALID_PROGRESS_PROTOCOL = "INVALID_PROGRESS_PROTOCOL"
    DUPLICATE_SCOPE = "DUPLICATE_SCOPE"
    INFORMATION_SATURATED = "INFORMATION_SATURATED"
    PROGRESS_PROTOCOL_VIOLATED = "PROGRESS_PROTOCOL_VIOLATED"
    OBSERVATION_CONTRACT_VIOLATION = "OBSERVATION_CONTRACT_VIOLATION"
    INVALID_TOOL_REQUEST = "INVALID_TOOL_REQUEST"
    TOOL_NOT_AVAILABLE = "TOOL_NOT_AVAILABLE"
    COLLECTION_STOPPED = "COLLECTION_STOPPED"


class Component(StrEnum):
    """Who makes a model call (R116)."""

    DIAGNOSIS_AGENT = "DIAGNOSIS_AGENT"
    INTENT_ROUTER = "INTENT_ROUTER"
    SYSTEM_CHAT = "SYSTEM_CHAT"
    KNOWLEDGE_ANSWER = "KNOWLEDGE_ANSWER"
    EVIDENCE_REPAIR = "EVIDENCE_REPAIR"
    SEMANTIC_GUARD = "SEMANTIC_GUARD"


class Intent(StrEnum):
    """What a question is about (R97)."""

    DIAGNOSIS = "DIAGNOSIS"
    KNOWLEDGE_QUERY = "KNOWLEDGE_QUERY"
    SYSTEM_CHAT = "SYSTEM_CHAT"


class BudgetDimension(StrEnum):
    """What a Run may use up (R117)."""

    MODEL_CALLS = "MODEL_CALLS"
    TOOL_CALLS = "TOOL_CALLS"
    TOKENS = "TOKENS"
    OBSERVATION_BYTES = "OBSERVATION_BYTES"
    WALL_TIME = "WALL_TIME"


class BudgetLimits(GraphModel):
    """Totals of one Run and, inside them, what only the guards may use (R117). Seconds, tokens, bytes, calls."""

    model_calls: int = Field(default=24, ge=1, le=1000)
    tool_calls: int = Field(default=16, ge=0, le=1000)
    tokens: int = Field(default=400_000, ge=1)
    observation_bytes: int = Field(default=128 * 1024, ge=1)
    wall_seconds: float = Field(default=240.0, gt=0)
    reserve_model_calls: int = Field(default=3, ge=0)
    reserve_tokens: int = Field(default=60_000, ge=0)
    reserve_seconds: float = Field(default=45.0, ge=0)

    @model_validator(mode="after")
    def _reserve_fits(self) -> Self:
        for reserve, total in (
            ("reserve_model_calls", "model_calls"),
            ("reserve_tokens", "tokens"),
            ("reserve_seconds", "wall_seconds"),
        ):
            if getattr(self, reserve) >= getattr(self, total):
                raise ValueError(f"{reserve} must be smaller than {total}")
        return self


class TraceEventType(StrEnum):
    """Names of trace events (R108)."""

    RUN_STARTED = "RUN_STARTED"
    INTENT_ROUTED = "INTENT_ROUTED"
    MODEL_CALL = "MODEL_CALL"
    TOOL_CALL_COMPLETED = "TOOL_CALL_COMPLETED"
    INFORMATION_GAIN_APPLIED = "INFORMATION_GAIN_APPLIED"
    COLLECTION_SATURATED = "COLLECTION_SATURATED"
    COLLECTION_STOPPED = "COLLECTION_STOPPED"
    TOOL_REQUEST_REJECTED = "TOOL_REQUEST_REJECTED"
    AGENT_OUTPUT_REJECTED = "AGENT_OUTPUT_REJECTED"
    PARALLEL_CALLS_DROPPED = "PARALLEL_CALLS_DROPPED"
    PROGRESS_PROJECTED = "PROGRESS_PROJECTED"
    EVIDENCE_GUARD = "EVIDENCE_GUARD"
    EVIDENCE_REPAIR = "EVIDENCE_REPAIR"
    SEMANTIC_GUARD = "SEMANTIC_GUARD"
    RELEASE_DECIDED = "RELEASE_DECIDED"
    RUN_CANCEL_REQUESTED = "RUN_CANCEL_REQUESTED"
    LATE_RESULT_DROPPED = "LATE_RESULT_DROPPED"
    RUN_ENDED = "RUN_ENDED"


class TraceEvent(GraphModel):
    """One event before the sink gives it a `seq`: a name and whitelisted fields (R108)."""

    type: TraceEventType
    fields: dict[str, Any] = Field(default_factory=dict)
