"""Contract types of the doors (R6): what a finished Run and its steps look like from outside."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class ServiceModel(BaseModel):
    """Base of every record here: immutable, unknown keys refused (R6)."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StepView(ServiceModel):
    """What one node has just decided. `step_no` counts from 1."""

    run_id: str
    node: str
    step: str
    step_no: int = Field(ge=1)


class DiagnosisReport(ServiceModel):
    """The end of a Run.

    `published_result` and `fallback` have the shapes of `release.contract.PublishedResult` and `SafeFallback`, as stored.
    `operator` is for operators only (R55): internal_state, stop_reason, usage, and error_code where there is one.
    """

    run_id: str | None
    status: str
    release_outcome: str
    published_result: dict[str, Any] | None = None
    fallback: dict[str, Any] | None = None
    operator: dict[str, Any] = Field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """JSON data with exactly these keys."""
        return self.model_dump(mode="json")

    @property
    def published(self) -> bool:
        """True when a conclusion or a fallback left the Run."""
        return self.published_result is not None or self.fallback is not None


class StorageError(Exception):
    """Home folder or database cannot be used; one bounded line naming the setting."""
