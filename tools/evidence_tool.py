"""What an evidence tool is to the harness: five parts behind one protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from tools.contract import ControlView, EvidenceKind, EvidenceStatus, InvalidInput, RelevanceLevel, Scope, ToolErrorCode


class ToolFailure(Exception):
    """A tool ran and failed. Only the stable code leaves the boundary; the cause stays in the operator's log (R51)."""

    def __init__(self, code: ToolErrorCode) -> None:
        super().__init__(code.value)
        self.code = code


class ObservationContractViolation(Exception):
    """A result does not fit the tool's observation contract (R42, R53)."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a backend may know about the Run: its clock, nothing of its control state.

    `now` is seconds since the epoch. `deadline_seconds` is the time the boundary allows this call.
    """

    now: float
    at_given: bool
    """True when the question fixed the time (`--at`); then the catalogue's own `now` does not apply."""
    deadline_seconds: float


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a finished call yields.

    `raw_response` is JSON data as the backend gave it. `agent_result` is JSON data: the business response, bounded as R55
    says and with secrets masked; everything a model may quote is in it.
    """

    raw_response: Any
    agent_result: dict[str, Any]
    evidence_status: EvidenceStatus
    returned_count: int
    truncated: bool
    relevance_level: RelevanceLevel | None = None


@dataclass(frozen=True, slots=True)
class FactView:
    """One excerpt the snapshot may show of a result (R66): plain text, masked, at most 300 characters."""

    excerpt: str


@runtime_checkable
class EvidenceTool(Protocol):
    """An evidence tool: request, scope, backend, observation, tied together.

    All methods but `run` are pure. Adding a tool means adding an object that satisfies this and one registry line.
    """

    @property
    def name(self) -> str:
        """Wire name the model calls."""

    @property
    def description(self) -> str:
        """What the model reads about the tool; names the catalogue's topics or datasources."""

    @property
    def envelope(self) -> type[BaseModel]:
        """Concrete envelope class with `previous_observation` and `input` (R18, R22)."""

    @property
    def kind(self) -> EvidenceKind:
        """Whether results are log lines and rows, or documents (R71)."""

    @property
    def timeout_seconds(self) -> float:
        """Time one call may take (R55)."""

    def check(self, request: BaseModel) -> InvalidInput | None:
        """Refuse a request whose names or text the catalogue or gate does not allow (R28)."""

    def scope(self, request: BaseModel) -> Scope:
        """Project the request's normalized scope without side effects (R43)."""

    async def run(self, request: BaseModel, context: CallContext) -> ToolOutcome:
        """Execute the request. Raises ToolFailure with a stable code, ObservationContractViolation, or CancelledError."""

    def control(self, agent_result: dict[str, Any], scope: Scope) -> ControlView:
        """Read the control view of a READY result (R50). Raises ObservationContractViolation."""

    def observe(self, tool_call_id: str, scope: Scope, agent_result: dict[str, Any]) -> dict[str, Any]:
        """Serialize the whitelisted model observation (R51, R52), at most 8 KiB of UTF-8 JSON.

        Raises ObservationContractViolation.
        """

    def facts(self, scope: Scope, agent_result: dict[str, Any]) -> tuple[FactView, ...]:
        """Excerpts that may stand as observed facts, most telling first; none for documents (R66, R68)."""
