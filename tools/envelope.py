"""Base of the concrete agent-facing envelopes (R18, R20, R22). Each tool's `request.py` defines its own class.

Not generic on purpose: every tool writes `input: ItsRequest`, so the schema that reaches the provider holds the
concrete fields.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from tools.contract import PreviousObservation


class AgentToolCall(BaseModel):
    """Common part of RagToolCall, QueryLogsToolCall and MysqlToolCall: `{previous_observation?, input}`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    previous_observation: PreviousObservation | None = Field(
        default=None,
        description=(
            "Your verdict on the latest result. Required when that result has evidence_status EVIDENCE_FOUND and was not "
            "judged yet; leave it out in the first call and after any other answer."
        ),
    )


class BusinessRequest(BaseModel):
    """Base of the tools' business requests: strict types, unknown fields refused (R19, R23)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
