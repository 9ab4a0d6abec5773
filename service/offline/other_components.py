"""What the offline model says where no diagnosis is asked of it: routing, chat, knowledge answers, guards. Pure.

Guards with this model are lexical and belong to the harness; should they ask anyway, the answer is the cautious one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from graph.contract import Component
from service.offline.blocks import data_block, question_of
from service.offline.quoting import quote_answer
from service.offline.routing import route
from service.offline.talking import talk


def answer(component: Component, messages: Sequence[BaseMessage], language: str) -> str:
    """Return a bounded, valid answer of the component's contract."""
    question = question_of(messages)
    if component is Component.INTENT_ROUTER:
        view, previous = data_block(messages, "system_view"), data_block(messages, "previous_turn")
        return json.dumps({"intent": route(question, view, previous).value})
    if component is Component.SYSTEM_CHAT:
        view, previous = data_block(messages, "system_view"), data_block(messages, "previous_turn")
        return talk(question, view, previous, language)
    if component is Component.KNOWLEDGE_ANSWER:
        return json.dumps(quote_answer(question, data_block(messages, "lookup")), ensure_ascii=False)
    if component is Component.SEMANTIC_GUARD:
        return json.dumps({"verdict": "UNSUPPORTED", "unsupported_analysis_ids": []})
    return json.dumps({"conclusion": None, "analyses": [], "limitations": {"missing_info": [], "unverified": []}})
