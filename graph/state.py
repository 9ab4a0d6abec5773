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


class DiagnosisState(TypedDict, total=False):
    """Everything a Run carries from node to node.

    `run` holds run_id, started_at, now, at_given, settings; `requested` the calls of the last message; `call` the call in
    hand (tool_call_id, tool_name, evaluation, input, scope, executed, observation); `rejection` why it is not answered with
    an observation; `ended` why collection is over (cause, detail). `step` says what the last node decided and why.
    """

    query: str
    session_id: str | None
    previous_turn: str | None
    run: dict[str, Any]
    step: str
    step_no: int
    turn: int
    messages: Annotated[list[BaseMessage], messages_channel]
    tracker: dict[str, Any]
    tracker_index: Annotated[list[dict[str, Any]], items_channel]
    tracker_scopes: Annotated[list[dict[str, Any]], items_channel]
    budget: dict[str, Any]
    ledger: dict[str, Any]
    requested: list[dict[str, Any]]
    call: dict[str, Any] | None
    rejection: dict[str, Any] | None
    ended: dict[str, Any] | None
    draft: dict[str, Any] | None
    output_failure: dict[str, Any] | None
    snapshot: dict[str, Any] | None
    guard: dict[str, Any] | None
    outcome: dict[str, Any] | None


GROWING = ("index", "scopes")


def load_tracker(state: Mapping[str, Any]) -> DiagnosisProgressTracker:
    """Compose the tracker value from its channels. Raises pydantic.ValidationError on an edited, illegal state."""
    return DiagnosisProgressTracker.model_validate(
        {
            **state["tracker"],
            "index": tuple(state.get("tracker_index") or ()),
            "scopes": tuple(state.get("tracker_scopes") or ()),
        }
    )


def tracker_update(before: DiagnosisProgressTracker, after: DiagnosisProgressTracker) -> dict[str, Any]:
    """Update that moves the channels from `before` to `after`; the growing parts are written as what was added."""
    update: dict[str, Any] = {}
    if before is after:
        return update
    update["tracker"] = after.model_dump(mode="json", exclude=set(GROWING))
    if len(after.index) > len(before.index):
        update["tracker_index"] = [item.model_dump(mode="json") for item in after.index[len(before.index) :]]
    if len(after.scopes) > len(before.scopes):
        update["tracker_scopes"] = [item.model_dump(mode="json") for item in after.scopes[len(before.scopes) :]]
    return update


def load_budget(state: Mapping[str, Any]) -> RunBudget:
    """Read the budget value. Raises pydantic.ValidationError on an edited, illegal state."""
    return RunBudget.model_validate(state["budget"])


def load_ledger(state: Mapping[str, Any]) -> ModelCallLedger:
    """Read the ledger value. Raises pydantic.ValidationError on an edited, illegal state."""
    return ModelCallLedger.model_validate(state["ledger"])


def fresh_run_update(
    run: dict[str, Any], tracker: DiagnosisProgressTracker, budget: RunBudget, messages: list[BaseMessage]
) -> dict[str, Any]:
    """Update that starts a Run on this thread: nothing of an earlier Run's progress stays (R1)."""
    return {
        "run": run,
        "turn": 0,
        "messages": Overwrite(messages),
        "tracker": tracker.model_dump(mode="json", exclude=set(GROWING)),
        "tracker_index": Overwrite([]),
        "tracker_scopes": Overwrite([]),
        "budget": budget.model_dump(mode="json"),
        "ledger": ModelCallLedger().model_dump(mode="json"),
        "requested": [],
        "call": None,
        "rejection": None,
        "ended": None,
        "draft": None,
        "output_failure": None,
        "snapshot": None,
        "guard": None,
        "outcome": None,
    }
