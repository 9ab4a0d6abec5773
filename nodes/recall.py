"""A model's answer that was archived before the process died is used again: nothing is asked or paid twice (R67, R154).

An answer belongs to its component, its round and the very words it was given to: prompt, messages, tools, form. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel

from nodes.ports import ModelCallFailed, ModelFailureKind, ModelReply, RequestedCall, TokenUsage
from tools.evidence_tool import EvidenceTool

ASKED = "asked"
"""Key of the digests in an archived answer."""

Answer = tuple[ModelReply | None, ModelCallFailed | None]
"""What one attempt came to: exactly one of both."""


def asked(
    messages: Sequence[BaseMessage], tools: Iterable[EvidenceTool] = (), output: type[BaseModel] | None = None
) -> dict[str, str]:
    """Return digests of what a model is shown: its prompt, the other messages, its tools, the form of its output.

    They are apart so that a replay can say which of them has changed.
    """
    shown = [(tool.name, tool.description, _schema(tool.envelope)) for tool in tools]
    return {
        "prompt": digest_of([each for each in messages if isinstance(each, SystemMessage)]),
        "messages": digest_of([each for each in messages if not isinstance(each, SystemMessage)]),
        "tools": sha256(json.dumps(shown).encode()).hexdigest(),
        "output": sha256((_schema(output) if output else "").encode()).hexdigest(),
    }


def digest_of(messages: Iterable[BaseMessage]) -> str:
    """Return a digest of messages: who says what, and which calls; in what order a result has its keys tells nothing."""
    digest = sha256()
    for message in messages:
        calls, content = getattr(message, "tool_calls", None), message.content
        if isinstance(message, ToolMessage | HumanMessage) and isinstance(content, str):
            content = _in_key_order(content)
        said = json.dumps([message.type, content, calls], sort_keys=True, default=str)
        digest.update(said.encode())
    return digest.hexdigest()


@lru_cache(maxsize=256)
def _in_key_order(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


@lru_cache(maxsize=64)
def _schema(model: type[BaseModel]) -> str:
    return json.dumps(model.model_json_schema(), sort_keys=True)


def recalled(archived: Mapping[str, Any] | None, digests: Mapping[str, str]) -> Answer | None:
    """Return the archived attempt; None where there is none for what is asked."""
    if archived is None:
        return None
    if archived["failure"] == ModelFailureKind.CUT_OFF:
        # Whatever it was shown: its round is spent (R110).
        return None, ModelCallFailed(ModelFailureKind.CUT_OFF)
    if archived.get(ASKED) != digests:
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
