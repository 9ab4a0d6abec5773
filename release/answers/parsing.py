"""Strict reading of what the router and the knowledge answer wrote (R77, R95, R97). Pure; never raises on any text."""

from __future__ import annotations

from graph.contract import Intent
from release.answers.contract import IntentDecision, KnowledgeAnswer
from release.contract import MAX_DRAFT_BYTES, AgentOutputFailure
from release.strict_json import parse_strict


def parse_intent(text: str) -> Intent | None:
    """Read the router's answer; None where it is not exactly `{"intent": …}` with a known intent."""
    parsed = parse_strict(text, IntentDecision, MAX_DRAFT_BYTES)
    return None if isinstance(parsed, AgentOutputFailure) else parsed.intent


def parse_knowledge_answer(text: str) -> KnowledgeAnswer | AgentOutputFailure:
    """Read a knowledge answer, or say why it is refused; `not_found` must agree with `items`."""
    return parse_strict(text, KnowledgeAnswer, MAX_DRAFT_BYTES)
