"""The conversation as the planner reads it: question, own calls and what came back (R20, R33, R51). Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

NEUTRAL_ANSWERS = frozenset({"INVALID_PROGRESS_PROTOCOL", "INVALID_TOOL_REQUEST", "TOOL_NOT_AVAILABLE"})
"""Answers that leave a pending evaluation untouched (R28, R35)."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One own tool call and its answer. `input` is the business request, `answer` the observation's JSON object."""

    tool_call_id: str
    tool_name: str
    input: dict[str, Any]
    answer: dict[str, Any]

    @property
    def found(self) -> bool:
        """True when the result holds evidence and waits for an evaluation."""
        return self.answer.get("evidence_status") == "EVIDENCE_FOUND"

    @property
    def empty(self) -> bool:
        """True when the query ran and matched nothing."""
        return self.answer.get("evidence_status") == "NO_EVIDENCE"

    @property
    def error_code(self) -> str:
        """Stable code of a refusal or a tool ERROR, "" otherwise."""
        return str(self.answer.get("error_code") or "")

    @property
    def stop_required(self) -> bool:
        """True when the answer carries the stop directive (R56, R61) or collection ended (R42)."""
        return self.answer.get("stop_required") is True or self.error_code == "COLLECTION_STOPPED"


@dataclass(frozen=True, slots=True)
class Transcript:
    """Everything the offline model knows: no state of its own."""

    system: str
    question: str
    exchanges: tuple[Exchange, ...]
    calls_made: int
    """Tool calls in the whole conversation, earlier turns included: the source of fresh ids."""
    calls_before: int = 0
    """Tool calls of earlier turns."""


def read_transcript(messages: Sequence[BaseMessage]) -> Transcript:
    """Read the latest question and the calls made since. Messages before it belong to earlier turns."""
    start = max((i for i, m in enumerate(messages) if isinstance(m, HumanMessage)), default=-1)
    system = "\n".join(text_of(m) for m in messages if isinstance(m, SystemMessage))
    answers = {m.tool_call_id: _json_object(text_of(m)) for m in messages if isinstance(m, ToolMessage)}
    exchanges: list[Exchange] = []
    calls_made = calls_before = 0
    for index, message in enumerate(messages):
        if not isinstance(message, AIMessage):
            continue
        made = len(message.tool_calls) + len(message.invalid_tool_calls)
        calls_made += made
        if index < start:
            calls_before += made
            continue
        for call in message.tool_calls:
            call_id = call.get("id") or ""
            if call_id in answers:
                request = call["args"].get("input")
                exchanges.append(
                    Exchange(call_id, call["name"], request if isinstance(request, dict) else {}, answers[call_id])
                )
    question = text_of(messages[start]) if start >= 0 else ""
    return Transcript(system, question, tuple(exchanges), calls_made, calls_before)


def pending_call(exchanges: Sequence[Exchange]) -> Exchange | None:
    """Return the latest EVIDENCE_FOUND result that no later call has evaluated (R26); None when nothing is pending."""
    pending: Exchange | None = None
    for exchange in exchanges:
        if exchange.error_code in NEUTRAL_ANSWERS:
            continue
        pending = exchange if exchange.found else None
    return pending


def text_of(message: BaseMessage) -> str:
    """Plain text of a message's content."""
    if isinstance(message.content, str):
        return message.content
    parts = [part if isinstance(part, str) else str(part.get("text", "")) for part in message.content]
    return "".join(parts)


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
