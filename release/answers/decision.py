"""What leaves a Run that asked for no diagnosis, and how it ends (R94, R95, R97). Pure."""

from __future__ import annotations

from graph.contract import RunState
from release.answers.contract import PublishedChat, PublishedKnowledge
from release.contract import ReleaseErrorCode, ReleaseOutcome, ReleaseReason
from release.decision import ReleaseDecision, nothing_released

_REASONS = {
    ReleaseErrorCode.INTENT_ROUTING_FAILED: ReleaseReason.INTENT_ROUTING_FAILED,
    ReleaseErrorCode.BUDGET_LIMIT_REACHED: ReleaseReason.STOPPED_BUDGET,
    ReleaseErrorCode.ANSWER_REJECTED: ReleaseReason.OUTPUT_REJECTED,
}


def decide_answer(
    published: PublishedChat | PublishedKnowledge | None,
    error: ReleaseErrorCode | None,
    *,
    cancelled: bool = False,
    timed_out: bool = False,
) -> ReleaseDecision:
    """Decide, fail closed: an answer is published only where nothing speaks against it. A cancel wins, then a timeout."""
    if cancelled:
        return nothing_released(RunState.CANCELLED, ReleaseReason.CANCELLED, ReleaseErrorCode.CANCELLED)
    if timed_out:
        return nothing_released(RunState.TIMED_OUT, ReleaseReason.TIMED_OUT, ReleaseErrorCode.RUN_TIMED_OUT)
    if error is not None or published is None:
        code = error or ReleaseErrorCode.ANSWER_FAULT
        state = RunState.BUDGET_EXHAUSTED if code is ReleaseErrorCode.BUDGET_LIMIT_REACHED else RunState.FAILED
        return nothing_released(state, _REASONS.get(code, ReleaseReason.FAULT), code)
    if isinstance(published, PublishedChat):
        outcome, reason = ReleaseOutcome.CHAT, ReleaseReason.CHAT_ANSWERED
    else:
        outcome = ReleaseOutcome.KNOWLEDGE_ANSWER
        reason = ReleaseReason.KNOWLEDGE_NOT_FOUND if published.not_found else ReleaseReason.KNOWLEDGE_ANSWERED
    return ReleaseDecision(outcome=outcome, internal_end=RunState.SUCCESS, reason=reason, published=published)
