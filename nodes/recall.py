"""A model's answer that was archived before the process died is used again: nothing is asked or paid twice (R67, R154).

An answer belongs to its component, its round and the very messages it was given to. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from nodes.ports import ModelCallFailed, ModelFailureKind, ModelReply, RequestedCall, TokenUsage

ASKED = "asked"
"""Key of the digest in an archived answer."""

Answer = tuple[ModelReply | None, ModelCallFailed | None]
"""What one attempt came to: exactly one of both."""


def asked(messages: Sequence[BaseMessage]) -> str:
    """Return a digest of what a model is shown."""
    digest = sha256()
    for message in messages:
        calls = getattr(message, "tool_calls", None)
        said = json.dumps([message.type, message.content, calls], sort_keys=True, default=str)
        digest.update(said.encode())
    return digest.hexdigest()


def recalled(archived: Mapping[str, Any] | None, digest: str) -> Answer | None:
    """Return the archived attempt; None where there is none for these messages."""
    if archived is None:
        return None
    if archived["failure"] == ModelFailureKind.CUT_OFF:
        # Whatever it was shown: its round is spent (R110).
        return None, ModelCallFailed(ModelFailureKind.CUT_OFF)
    if archived.get(ASKED) != digest:
        return None
    usage = TokenUsage(*archived["usage"]) if archived.get("usage") else None
    if archived["failure"] is not None:
        kind, answered = ModelFailureKind(archived["failure"]), bool(archived["answered"])
        return None, ModelCallFailed(kind, answered=answered, retry_after=archived["retry_after"], usage=usage)
    reply = ModelReply(
        message=AIMessage.model_validate(archived["message"]),
        calls=tuple(RequestedCall(**call) for call in archived["calls"]),
        text=archived["text"],
        usage=usage,
        dropped_calls=archived["dropped_calls"],
        text_bytes=archived["text_bytes"],
    )
    return reply, None
