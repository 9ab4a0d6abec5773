"""Contract types that nodes hand to each other through the state (R6)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from graph.contract import BudgetDimension, BudgetLimits, RequestErrorCode, ViolationType
from tools.contract import InformationGain, InvalidInput, Scope

LANGUAGES = ("zh", "en")
"""Languages of prompts and fixed texts."""


class NodeModel(BaseModel):
    """Base of every record here: immutable, unknown keys refused (R6)."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RunSettings(NodeModel):
    """What is fixed when a Run starts (R2). Times are seconds since the epoch."""

    run_id: str
    started_at: float
    now: float
    at_given: bool
    model: str | None = None
    language: str = "zh"
    forked_from: str | None = None
    limits: BudgetLimits = Field(default_factory=BudgetLimits)


class RequestedCall(NodeModel):
    """One tool call of the last assistant message, in order; `arguments` is None when they are no JSON object."""

    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any] | None


class Evaluation(NodeModel):
    """An accepted `previous_observation`; unlike the model's own it is read back from the state, where enums are text."""

    tool_call_id: str
    information_gain: InformationGain


class CallInHand(NodeModel):
    """The one call that is being handled; `evaluation` is what it says of the pending result, if anything is pending."""

    tool_call_id: str
    tool_name: str
    evaluation: Evaluation | None = None
    input: dict[str, Any] | None = None
    scope: Scope | None = None
    observation: dict[str, Any] | None = None

    @property
    def evaluation_applied(self) -> bool:
        """Whether the call's evaluation was consumed: `dedup_scope` always does, and no call before it keeps one (R37)."""
        return self.evaluation is not None


class Rejection(NodeModel):
    """Why the call in hand gets an answer that is no observation (R42)."""

    error_code: RequestErrorCode
    violation_type: ViolationType | None = None
    missing_field: str | None = None
    expected_previous_tool_call_id: str | None = None
    invalid_input: InvalidInput | None = None
    duplicate_of_tool_call_id: str | None = None
    available_tools: list[str] = Field(default_factory=list)


class EndCause(StrEnum):
    """Why collection is over."""

    DRAFT = "DRAFT"
    OUTPUT_FAILURE = "OUTPUT_FAILURE"
    STOPPED = "STOPPED"
    BUDGET = "BUDGET"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    FAULT = "FAULT"


class CollectionEnd(NodeModel):
    """The end of collection; `fault` is a stable code of what failed, never its text."""

    cause: EndCause
    dimension: BudgetDimension | None = None
    fault: str | None = Field(default=None, max_length=64)
