"""The progress tracker (R11-R17, R34-R41, R56-R59): an immutable value; every transition returns a new one."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from graph.contract import CollectionState, DiagnosisStopReason, GraphModel
from tools.contract import InformationGain, ToolCallId

DEFAULT_NO_GAIN_THRESHOLD = 3
DEFAULT_PROTOCOL_VIOLATION_THRESHOLD = 2


class CompletedCall(GraphModel):
    """One call that entered the tool boundary and ended, READY or ERROR (R17).

    `scope_key` covers the tool's name (R45); it is set only where the scope was checked successfully (R12, R38).
    """

    tool_call_id: ToolCallId
    tool_name: str
    canonical_key: str
    scope_key: str | None = None


class DiagnosisProgressTracker(GraphModel):
    """What the harness knows about whether queries still teach anything (R12); no results, no summaries (R13).

    `stop_delivered_turn` is the model turn whose calls were answered with the stop directive. `index` only grows; it holds
    the completed calls in order and, with each, the scope it checked successfully.
    """

    no_gain_threshold: int = Field(default=DEFAULT_NO_GAIN_THRESHOLD, ge=1)
    protocol_violation_threshold: int = Field(default=DEFAULT_PROTOCOL_VIOLATION_THRESHOLD, ge=2)
    consecutive_no_gain: int = Field(default=0, ge=0)
    state: CollectionState = CollectionState.COLLECTING
    stop_reason: DiagnosisStopReason | None = None
    pending_tool_call_id: ToolCallId | None = None
    latest_answered_tool_call_id: ToolCallId | None = None
    consecutive_protocol_violations: int = Field(default=0, ge=0)
    stop_delivered_turn: int | None = None
    index: tuple[CompletedCall, ...] = ()

    @property
    def saturated(self) -> bool:
        """Whether collection is over; there is no way back within a Run (R16)."""
        return self.state is CollectionState.SATURATED

    def with_evaluation(self, gain: InformationGain) -> DiagnosisProgressTracker:
        """Consume the pending evaluation (R37 step 2): GAINED zeroes the count, NO_GAIN adds one.

        Raises ValueError when nothing is pending: the envelope check must have refused the call.
        """
        if self.pending_tool_call_id is None:
            raise ValueError("no result awaits an evaluation")
        consumed = self._with(pending_tool_call_id=None)
        if gain is InformationGain.GAINED:
            return consumed._with(consecutive_no_gain=0)
        return consumed.with_no_gain()

    def with_no_gain(self) -> DiagnosisProgressTracker:
        """Count one NO_GAIN and saturate at the threshold (R37 steps 3, 4 and 6, R40)."""
        counted = self._with(consecutive_no_gain=self.consecutive_no_gain + 1)
        if counted.consecutive_no_gain >= self.no_gain_threshold:
            return counted.stopped(DiagnosisStopReason.INFORMATION_SATURATED)
        return counted

    def with_violation(self) -> DiagnosisProgressTracker:
        """Count one protocol violation (R34, R35); the pending evaluation stays untouched."""
        counted = self._with(consecutive_protocol_violations=self.consecutive_protocol_violations + 1)
        if counted.consecutive_protocol_violations >= self.protocol_violation_threshold:
            return counted.stopped(DiagnosisStopReason.PROGRESS_PROTOCOL_VIOLATED)
        return counted

    def with_protocol_respected(self) -> DiagnosisProgressTracker:
        """Reset the violation count: a message's only call passed the control-field checks (R34)."""
        return self._with(consecutive_protocol_violations=0) if self.consecutive_protocol_violations else self

    def with_completed(self, call: CompletedCall) -> DiagnosisProgressTracker:
        """Append a finished call to the index (R17)."""
        return self._with(index=(*self.index, call))

    def with_pending(self, tool_call_id: str) -> DiagnosisProgressTracker:
        """Let a result await the model's evaluation (R37 step 6)."""
        return self._with(pending_tool_call_id=tool_call_id)

    def with_answered(self, tool_call_id: str) -> DiagnosisProgressTracker:
        """Remember the latest answered call (R12, R27)."""
        return self._with(latest_answered_tool_call_id=tool_call_id)

    def with_stop_delivered(self, turn: int) -> DiagnosisProgressTracker:
        """Remember that the stop directive was delivered in `turn` (R57)."""
        return self if self.stop_delivered_turn is not None else self._with(stop_delivered_turn=turn)

    def stopped(self, reason: DiagnosisStopReason) -> DiagnosisProgressTracker:
        """End collection; the first reason wins (R15, R16)."""
        return self._with(state=CollectionState.SATURATED, stop_reason=self.stop_reason or reason)

    def stop_was_delivered_before(self, turn: int) -> bool:
        """Whether a tool request in `turn` comes after the directive (R57)."""
        return self.stop_delivered_turn is not None and self.stop_delivered_turn < turn

    def duplicate_of(self, scope_key: str) -> str | None:
        """Tool Call ID of the earlier successful call with this scope, if any (R45)."""
        return next((call.tool_call_id for call in self.index if call.scope_key == scope_key), None)

    def _with(self, **changes: Any) -> DiagnosisProgressTracker:
        # model_copy skips validation; every caller above passes values of the field's own type.
        return self.model_copy(update=changes)
