"""Append-only channels. `DeltaChannel` is beta in LangGraph: this is the one place that knows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, RemoveMessage, convert_to_messages
from langgraph.channels.delta import DeltaChannel

SNAPSHOT_EVERY = 400
"""Updates between full snapshots of a channel: above any run's length within the default budget, so growth is linear."""


def append_items(current: list[Any] | None, writes: Sequence[Any]) -> list[Any]:
    """Append every write's items in order; batching-invariant, as DeltaChannel demands."""
    result = list(current or [])
    for write in writes:
        result.extend(write if isinstance(write, list | tuple) else [write])
    return result


def append_messages(current: list[BaseMessage] | None, writes: Sequence[Any]) -> list[BaseMessage]:
    """Append messages; one with a known id replaces that message, a RemoveMessage removes it (edits made in Studio).

    What a server reads of a fork for its page begins with a snapshot in which messages are plain data.
    """
    result = convert_to_messages(current or [])
    for write in writes:
        for message in convert_to_messages(write if isinstance(write, list | tuple) else [write]):
            place = next((i for i, old in enumerate(result) if message.id is not None and old.id == message.id), None)
            if isinstance(message, RemoveMessage):
                if place is not None:
                    del result[place]
            elif place is None:
                result.append(message)
            else:
                result[place] = message
    return result


messages_channel: DeltaChannel[list[BaseMessage]] = DeltaChannel(append_messages, snapshot_frequency=SNAPSHOT_EVERY)
items_channel: DeltaChannel[list[Any]] = DeltaChannel(append_items, snapshot_frequency=SNAPSHOT_EVERY)
