"""State of the diagnosis graph: readable at every step, plain data but for messages; no payloads, no secrets.

`typing_extensions.TypedDict` on purpose: with `typing.TypedDict` Python 3.11 leaves the server's schemas null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

from langchain_core.messages import BaseMessage
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from graph.budget import RunBudget
from graph.channels import items_channel, messages_channel
from graph.ledger import ModelCallLedger
from graph.tracker import DiagnosisProgressTracker


class DiagnosisInput(TypedDict):
    """What a person fills in: the question, and the session it belongs to."""

    query: str
    session_id: NotRequired[str | None]


class JoiningInput(DiagnosisInput, total=False):
    """What a diagnosis takes over from the chat Run it is a part of."""

    previous_turn: str | None
    run: dict[str, Any]
    step: str
    position: dict[str, int]
    budget: dict[str, Any]
    ledger: dict[str, Any]


class ChatOutput(TypedDict, total=False):
    """What a user of the chat sees (R55): the end of the Run, nothing of the operator's."""

    run_id: str
    intent: str | None
    release_outcome: str | None
    published_result: dict[str, Any] | None
    fallback: dict[str, Any] | None
    error_code: str | None


class ChatState(JoiningInput, ChatOutput, total=False):
    """What a chat Run carries; a diagnosis keeps its own state below it. `reply` is an answer before its release."""

    reply: dict[str, Any] | None


class DiagnosisState(TypedDict, total=False):
    """Everything a Run carries from node to node.

    `run` holds what is fixed for the Run; `requested` the calls of the last message; `call` the call in hand (evaluation,
    input, scope, observation); `rejection` why it is not answered with an observation; `ended` why collection is over.
    `step` says what the last node decided and why; `position` counts model turns and steps.
    """

    query: str
    session_id: str | None
    previous_turn: str | None
    run: dict[str, Any]
    step: str
    position: dict[str, int]
    messages: Annotated[list[BaseMessage], messages_channel]
    tracker: dict[str, Any]
    tracker_index: Annotated[list[dict[str, Any]], items_channel]
    budget: dict[str, Any]
    ledger: dict[str, Any]
    requested: list[dict[str, Any]] | None
    call: dict[str, Any] | None
    rejection: dict[str, Any] | None
    ended: dict[str, Any] | None
    draft: dict[str, Any] | None
    output_failure: dict[str, Any] | None
    snapshot: dict[str, Any] | None
    guard: dict[str, Any] | None
    outcome: dict[str, Any] | None


def load_tracker(state: Mapping[str, Any]) -> DiagnosisProgressTracker:
    """Compose the tracker value from its channels. Raises pydantic.ValidationError on an edited, illegal state."""
    return DiagnosisProgressTracker.model_validate(
        {**state["tracker"], "index": tuple(state.get("tracker_index") or ())}
    )


def tracker_update(before: DiagnosisProgressTracker, after: DiagnosisProgressTracker) -> dict[str, Any]:
    """Update that moves the channels from `before` to `after`; the growing parts are written as what was added."""
    update: dict[str, Any] = {}
    if before is after:
        return update
    update["tracker"] = after.model_dump(mode="json", exclude={"index"})
    if len(after.index) > len(before.index):
        update["tracker_index"] = [item.model_dump(mode="json") for item in after.index[len(before.index) :]]
    return update


def load_budget(state: Mapping[str, Any]) -> RunBudget:
    """Read the budget value; limits and start stand with the run's settings. Raises ValidationError when illegal."""
    run = state["run"]
    return RunBudget.model_validate({**state["budget"], "limits": run["limits"], "started_at": run["started_at"]})


def budget_update(budget: RunBudget) -> dict[str, Any]:
    """Update of what was used; the limits never change within a Run."""
    return {"budget": budget.model_dump(mode="json", exclude={"limits", "started_at"})}


def load_ledger(state: Mapping[str, Any]) -> ModelCallLedger:
    """Read the ledger value. Raises pydantic.ValidationError on an edited, illegal state."""
    return ModelCallLedger.model_validate(state["ledger"])


OF_ONE_RUN = (
    "requested",
    "call",
    "rejection",
    "ended",
    "draft",
    "output_failure",
    "snapshot",
    "guard",
    "outcome",
    "intent",
    "reply",
    "release_outcome",
    "published_result",
    "fallback",
    "error_code",
)
"""Channels that an earlier Run on the same thread may have left behind."""


def fresh_run_update(
    state: Mapping[str, Any], run: dict[str, Any], budget: RunBudget, previous_turn: str | None
) -> dict[str, Any]:
    """Update that starts a Run on this thread: nothing of an earlier Run's progress stays (R1).

    Only what is there is reset: every channel that was ever written costs bytes in each checkpoint.
    """
    left: dict[str, Any] = {name: None for name in OF_ONE_RUN if state.get(name) is not None}
    if previous_turn != state.get("previous_turn"):
        left |= {"previous_turn": previous_turn}
    return {**left, "run": run, **budget_update(budget), "ledger": ModelCallLedger().model_dump(mode="json")}


def fresh_collection_update(
    state: Mapping[str, Any], tracker: DiagnosisProgressTracker, messages: list[BaseMessage]
) -> dict[str, Any]:
    """Update that starts the collection of evidence: an empty index and a conversation of `messages` (R1, R2)."""
    return {
        "messages": Overwrite(messages) if state.get("messages") else messages,
        "tracker": tracker.model_dump(mode="json", exclude={"index"}),
        **({"tracker_index": Overwrite([])} if state.get("tracker_index") else {}),
    }


def cleared(state: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Update that empties those of the named channels that hold something."""
    return {name: None for name in names if state.get(name)}
