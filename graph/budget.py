"""The Run's budget over five dimensions, with a reserve for the guards (R117). Pure frozen values."""

from __future__ import annotations

from pydantic import Field

from graph.contract import BudgetDimension, GraphModel
from graph.contract import BudgetLimits as BudgetLimits


class RunBudget(GraphModel):
    """What a Run has used so far. `started_at` is seconds since the epoch."""

    limits: BudgetLimits = Field(default_factory=BudgetLimits)
    started_at: float
    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    observation_bytes: int = 0

    def crossed_before_agent_call(self, now: float) -> BudgetDimension | None:
        """Dimension that forbids another model call of the Diagnosis Agent; the reserve is not its to use."""
        limits = self.limits
        return self._crossed_model(
            now,
            limits.model_calls - limits.reserve_model_calls,
            limits.tokens - limits.reserve_tokens,
            limits.wall_seconds - limits.reserve_seconds,
        )

    def crossed_before_guard_call(self, now: float) -> BudgetDimension | None:
        """Dimension that forbids another model call of a guard; guards may use the reserve."""
        return self._crossed_model(now, self.limits.model_calls, self.limits.tokens, self.limits.wall_seconds)

    def crossed_before_tool(self, now: float) -> BudgetDimension | None:
        """Dimension that forbids another tool execution (R37 step 5)."""
        if self.tool_calls >= self.limits.tool_calls:
            return BudgetDimension.TOOL_CALLS
        if self.observation_bytes >= self.limits.observation_bytes:
            return BudgetDimension.OBSERVATION_BYTES
        if now - self.started_at >= self.limits.wall_seconds - self.limits.reserve_seconds:
            return BudgetDimension.WALL_TIME
        return None

    def seconds_left(self, now: float, *, for_guard: bool = False) -> float:
        """Wall time left, never negative; without the reserve unless a guard asks."""
        reserve = 0.0 if for_guard else self.limits.reserve_seconds
        return max(0.0, self.limits.wall_seconds - reserve - (now - self.started_at))

    def with_model_call(self, total_tokens: int | None) -> RunBudget:
        """Count one attempt; unknown usage adds no tokens and shows as a gap in the ledger (R116)."""
        return self.model_copy(
            update={"model_calls": self.model_calls + 1, "tokens": self.tokens + (total_tokens or 0)}
        )

    def with_tool_call(self) -> RunBudget:
        """Count one execution."""
        return self.model_copy(update={"tool_calls": self.tool_calls + 1})

    def with_observation(self, size: int) -> RunBudget:
        """Count the UTF-8 bytes of one observation."""
        return self.model_copy(update={"observation_bytes": self.observation_bytes + size})

    def _crossed_model(self, now: float, calls: int, tokens: int, seconds: float) -> BudgetDimension | None:
        if self.model_calls >= calls:
            return BudgetDimension.MODEL_CALLS
        if self.tokens >= tokens:
            return BudgetDimension.TOKENS
        if now - self.started_at >= seconds:
            return BudgetDimension.WALL_TIME
        return None
