"""What a component of the chat answered, before it is released. Pure."""

from __future__ import annotations

from typing import Any

from graph.contract import TraceEventType
from nodes.contract import CollectionEnd, EndCause, NodeModel
from nodes.events import event
from nodes.model_calls import ModelCallOutcome
from nodes.node_run import NodeResult
from release.answers.contract import PublishedChat, PublishedKnowledge
from release.contract import ReleaseErrorCode


class Reply(NodeModel):
    """Exactly one of: a text about the system, a knowledge answer, or why there is none; `end` when the Run was over."""

    chat: PublishedChat | None = None
    knowledge: PublishedKnowledge | None = None
    error: ReleaseErrorCode | None = None
    end: EndCause | None = None

    def update(self) -> dict[str, Any]:
        """Return the update of the state."""
        return {"reply": self.model_dump(mode="json")}


def run_is_over(end: CollectionEnd) -> NodeResult:
    """Answer nothing: the Run was cancelled or ran out of time."""
    return NodeResult(Reply(end=end.cause).update(), f"Answered nothing: the run is {end.cause.value.lower()}.")


def late_answer(outcome: ModelCallOutcome) -> NodeResult:
    """Drop what a model answered after a cancel (R120); what it cost stays counted."""
    late = event(TraceEventType.LATE_RESULT_DROPPED, stage="model")
    return NodeResult(
        Reply(end=EndCause.CANCELLED).update() | outcome.accounts(),
        "The run was cancelled while the model answered: its answer is dropped.",
        [*outcome.events, late],
        archive=outcome.archive,
    )


def why_no_reply(outcome: ModelCallOutcome, otherwise: ReleaseErrorCode) -> ReleaseErrorCode:
    """Tell a budget that forbade the call from an attempt that failed, also where the budget forbade the next one (R60)."""
    if outcome.crossed is not None and outcome.round_ == 0:
        return ReleaseErrorCode.BUDGET_LIMIT_REACHED
    return otherwise
