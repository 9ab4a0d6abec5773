"""Contract types of the evidence tools (R6): frozen pydantic records and the enums of R69-R70.

Only the standard library and pydantic are imported here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

TOOL_CALL_ID_PATTERN = r"^[A-Za-z0-9_.:\-]{1,128}$"
"""Characters and length a framework tool call id may have (R72)."""

ToolCallId = Annotated[str, StringConstraints(pattern=TOOL_CALL_ID_PATTERN)]

MAX_OBSERVATION_BYTES = 8 * 1024 - 64
"""UTF-8 bytes a tool's observation may have: 8 KiB whole (R55), less the stop pair that may be added (R56)."""


class ContractModel(BaseModel):
    """Base of every contract record: immutable, unknown keys refused (R6)."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class InvocationStatus(StrEnum):
    """Lifecycle of one call and its projection (R69)."""

    PROJECTING = "PROJECTING"
    READY = "READY"
    ERROR = "ERROR"


class EvidenceStatus(StrEnum):
    """What a result means; orthogonal to `InvocationStatus` (R70)."""

    EVIDENCE_FOUND = "EVIDENCE_FOUND"
    NO_EVIDENCE = "NO_EVIDENCE"
    ERROR = "ERROR"


class RelevanceLevel(StrEnum):
    """Relevance of a knowledge document (R53, R54)."""

    HIGH = "HIGH"
    REFERENCE = "REFERENCE"


class EvidenceKind(StrEnum):
    """What a tool's results are; documents alone are never evidence (R68, R71)."""

    LOG_OR_DATABASE = "LOG_OR_DATABASE"
    DOCUMENTS = "DOCUMENTS"


class InformationGain(StrEnum):
    """The model's binary evaluation of the previous result (R21)."""

    GAINED = "GAINED"
    NO_GAIN = "NO_GAIN"


class PreviousObservation(BaseModel):
    """The model's verdict on the pending result, shared by all envelopes (R20); validated strictly, no coercion (R23)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tool_call_id: str = Field(description="The tool_call_id of the latest result.")
    information_gain: InformationGain = Field(
        description=(
            "GAINED: that result holds new verifiable facts that confirm, exclude or narrow a hypothesis. "
            "NO_GAIN: it is irrelevant, generic or repeats what was known."
        )
    )


class ToolErrorCode(StrEnum):
    """Stable codes of a tool that ran and failed (R51, R126). No driver text ever accompanies them."""

    TOOL_TIMEOUT = "TOOL_TIMEOUT"
    BACKEND_UNAVAILABLE = "BACKEND_UNAVAILABLE"
    BACKEND_ERROR = "BACKEND_ERROR"
    PARTIAL_RESULT = "PARTIAL_RESULT"
    RESULT_TOO_LARGE = "RESULT_TOO_LARGE"
    SQL_REJECTED = "SQL_REJECTED"
    UNKNOWN_DATASOURCE = "UNKNOWN_DATASOURCE"
    UNKNOWN_TOPIC = "UNKNOWN_TOPIC"
    PARAM_COUNT_MISMATCH = "PARAM_COUNT_MISMATCH"
    QUERY_TIMEOUT = "QUERY_TIMEOUT"
    DB_ERROR = "DB_ERROR"
    OBSERVATION_CONTRACT_VIOLATION = "OBSERVATION_CONTRACT_VIOLATION"
    CANONICAL_STORE_UNAVAILABLE = "CANONICAL_STORE_UNAVAILABLE"


class InvalidInput(ContractModel):
    """Why a business request was refused before it ran (R28).

    Names the field, the rule and what is allowed, never the value that was sent.
    """

    field: str = Field(max_length=64)
    rule: str = Field(max_length=64)
    allowed: str = Field(max_length=512)


class Scope(ContractModel):
    """Normalized scope of one request (R43-R47).

    `normalized` is plain JSON data; `key` is the SHA-256 (hex) of its canonical JSON together with the tool's name;
    `summary` is the bounded form the trace may show (R108): no parameters, at most 256 characters.
    """

    tool_name: str
    normalized: dict[str, Any]
    key: str = Field(pattern=r"^[0-9a-f]{64}$")
    summary: str = Field(max_length=256)


class CanonicalRecord(ContractModel):
    """One tool call as the canonical store keeps it (R48-R50, R69-R70).

    `request` is the business request, `raw_response` the backend's answer, `agent_result` the bounded and masked result.
    Times are seconds since the epoch. Legal pairs: PROJECTING/None, READY/EVIDENCE_FOUND, READY/NO_EVIDENCE, ERROR/ERROR.
    """

    run_id: str
    tool_call_id: ToolCallId
    tool_name: str
    status: InvocationStatus
    evidence_status: EvidenceStatus | None = None
    error_code: ToolErrorCode | None = None
    scope: Scope
    request: dict[str, Any]
    raw_response: Any = None
    agent_result: dict[str, Any] | None = None
    created_at: float
    completed_at: float | None = None


class ControlView(ContractModel):
    """What the harness reads of a result (R50); it never reaches the model."""

    status: InvocationStatus
    evidence_status: EvidenceStatus | None
    returned_count: int = Field(ge=0)
    truncated: bool
    relevance_level: RelevanceLevel | None = None
    scope: Scope
    error_code: ToolErrorCode | None = None
