"""What a person may set per run (LangGraph `context_schema`): Studio shows it as a form."""

from __future__ import annotations

from copy import copy
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator

from graph.budget import BudgetLimits
from graph.contract import Intent
from graph.tracker import DEFAULT_NO_GAIN_THRESHOLD, DEFAULT_PROTOCOL_VIOLATION_THRESHOLD
from tools.catalog import parse_time


class DiagnosisContext(BaseModel):
    """Settings of one run; every field has a default, thresholds are read once at the start (R2)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = Field(
        default=None,
        max_length=200,
        description="Model to use, e.g. offline or openai:NAME. Empty: the configured one.",
    )
    language: Literal["zh", "en"] | None = Field(
        default=None, description="Language of prompts and fixed texts. Empty: the configured one."
    )
    at: str | None = Field(
        default=None,
        max_length=64,
        description="Time the question is about, RFC 3339 with zone, e.g. 2026-03-01T03:05:00+08:00. Empty: now.",
    )
    intent: Intent | None = Field(
        default=None, description="What a chat's question is about, where that is known. Empty: the router decides."
    )
    no_gain_threshold: int = Field(
        default=DEFAULT_NO_GAIN_THRESHOLD,
        ge=1,
        le=50,
        description="Consecutive results without information gain after which collection stops.",
    )
    protocol_violation_threshold: int = Field(
        default=DEFAULT_PROTOCOL_VIOLATION_THRESHOLD,
        ge=2,
        le=50,
        description="Consecutive protocol violations after which collection stops; the first always gets one repair.",
    )
    budget: BudgetLimits = Field(default_factory=BudgetLimits, description="Totals of the run and the guards' reserve.")

    @field_validator("at")
    @classmethod
    def _at_is_a_time(cls, value: str | None) -> str | None:
        if value is not None:
            parse_time(value)
        return value


def context_schema_with(defaults: DiagnosisContext) -> type[DiagnosisContext]:
    """Return the schema whose defaults are the configured values, so that a form shows and a partial context keeps them."""
    fields: dict[str, Any] = {}
    for name, info in DiagnosisContext.model_fields.items():
        changed = copy(info)
        changed.default, changed.default_factory = getattr(defaults, name), None
        fields[name] = (info.annotation, changed)
    schema: type[DiagnosisContext] = create_model(
        DiagnosisContext.__name__, __base__=DiagnosisContext, __doc__=DiagnosisContext.__doc__, **fields
    )
    return schema
