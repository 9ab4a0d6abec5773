"""The end of a Run by its release: one compare-and-set, and what state and trace say of it (R8, R94, R108)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from graph.contract import DiagnosisStopReason, RunState, TraceEvent, TraceEventType
from nodes.events import event
from nodes.node_run import ACTIVE, NodeResult, NodeRun
from nodes.ports import ArchiveEntry, RunEnd, RunRecord
from nodes.usage import end_fields
from release.contract import ReleaseErrorCode, ReleaseReason
from release.decision import ReleaseDecision, nothing_released


@dataclass(frozen=True, slots=True)
class Ending:
    """What every end of a Run carries beside the decision: the totals, and why collection stopped."""

    run: NodeRun
    usage: dict[str, Any]
    stop_reason: DiagnosisStopReason | None = None

    async def write(self, decision: ReleaseDecision) -> ReleaseDecision | RunRecord:
        """End the Run and return how it ended: an acknowledged cancel wins over every decision (R94).

        Where somebody else ended it meanwhile, e.g. a sweep, the Run as it stands is returned: there is one end (R8).
        """
        ended_at, runs, run_id = self.run.clock.now(), self.run.resources.runs, self.run.run.run_id
        if await runs.transition(run_id, ACTIVE, decision.internal_end, self._run_end(decision, ended_at)):
            return decision
        decision = nothing_released(RunState.CANCELLED, ReleaseReason.CANCELLED, ReleaseErrorCode.CANCELLED)
        still = frozenset({RunState.CANCEL_REQUESTED})
        if await runs.transition(run_id, still, RunState.CANCELLED, self._run_end(decision, ended_at)):
            return decision
        record = await runs.get(run_id)
        return decision if record is None or record.internal_state is RunState.CANCELLED else record

    def result(self, ended: ReleaseDecision | RunRecord, events: Sequence[TraceEvent] = ()) -> NodeResult:
        """Return what the releasing node writes down; of an end that is not its own, only that it came late (R120)."""
        if isinstance(ended, RunRecord):
            late = event(TraceEventType.LATE_RESULT_DROPPED, stage="release")
            step = f"The run had ended meanwhile ({ended.internal_state.value}): nothing is released."
            return NodeResult({"outcome": _as_stored(ended)}, step, [late])
        outcome = self.outcome(ended)
        return NodeResult(
            {"outcome": outcome},
            f"Released {ended.outcome.value}: {ended.reason.value}.",
            [*events, *self.events(ended)],
            archive=[ArchiveEntry("result", "result", outcome)],
        )

    def outcome(self, decision: ReleaseDecision) -> dict[str, Any]:
        """Return the end as the state and the archive keep it."""
        return {
            "release_outcome": decision.outcome.value,
            "internal_state": decision.internal_end.value,
            "reason": decision.reason.value,
            "published_result": _published(decision),
            "fallback": _fallback(decision),
            "error_code": decision.error_code.value if decision.error_code else None,
            "stop_reason": self._stop(),
            "usage": self.usage,
        }

    def events(self, decision: ReleaseDecision) -> list[TraceEvent]:
        """Return the last two events of a Run."""
        decided = event(
            TraceEventType.RELEASE_DECIDED, release_outcome=decision.outcome.value, reason=decision.reason.value
        )
        ended = event(
            TraceEventType.RUN_ENDED,
            internal_state=decision.internal_end.value,
            stop_reason=self._stop(),
            **end_fields(self.usage),
        )
        return [decided, ended]

    def _run_end(self, decision: ReleaseDecision, ended_at: float) -> RunEnd:
        return RunEnd(
            release_outcome=decision.outcome,
            ended_at=ended_at,
            published_result=_published(decision),
            fallback=_fallback(decision),
            stop_reason=self._stop(),
            error_code=decision.error_code.value if decision.error_code else None,
            total_token_count=self.usage["total_tokens"],
            usage=self.usage,
        )

    def _stop(self) -> str | None:
        return self.stop_reason.value if self.stop_reason else None


def decided_before(record: RunRecord | None, decide: Callable[[bool], ReleaseDecision]) -> ReleaseDecision | None:
    """Find the decision that this very execution had written when it was interrupted: there is one end (R8).

    `decide` decides as if the Run were active still; its argument says whether the run timeout has passed.
    """
    if record is None or record.ended_at is None:
        return None
    return next((made for made in map(decide, (False, True)) if _is_end_of(record, made)), None)


def _is_end_of(record: RunRecord, decision: ReleaseDecision) -> bool:
    written = (record.internal_state, record.release_outcome, record.published_result, record.fallback)
    return written == (decision.internal_end, decision.outcome, _published(decision), _fallback(decision))


def _as_stored(record: RunRecord) -> dict[str, Any]:
    timed_out = record.internal_state is RunState.TIMED_OUT
    return {
        "release_outcome": record.release_outcome.value,
        "internal_state": record.internal_state.value,
        "reason": (ReleaseReason.TIMED_OUT if timed_out else ReleaseReason.FAULT).value,
        "published_result": record.published_result,
        "fallback": record.fallback,
        "error_code": record.error_code,
        "stop_reason": record.stop_reason,
        "usage": dict(record.usage),
    }


def _published(decision: ReleaseDecision) -> dict[str, Any] | None:
    return decision.published.model_dump(mode="json") if decision.published else None


def _fallback(decision: ReleaseDecision) -> dict[str, Any] | None:
    return decision.fallback.model_dump(mode="json") if decision.fallback else None
