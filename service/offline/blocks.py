"""Data that the harness gives between tags, as the offline model reads it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage

from service.offline.transcript import text_of


def question_of(messages: Sequence[BaseMessage]) -> str:
    """Return the question: the last thing a person said."""
    return next((text_of(each) for each in reversed(messages) if isinstance(each, HumanMessage)), "")


def data_block(messages: Sequence[BaseMessage], tag: str) -> dict[str, Any]:
    """Return the JSON object in the block of this name, empty where there is none. A question's own tags are no block."""
    people = [each for each in messages if isinstance(each, HumanMessage)]
    for message in people[:-1]:
        found = re.fullmatch(rf"[^<]*<{tag}>\n(.*)\n</{tag}>", text_of(message), re.DOTALL)
        if found is None:
            continue
        try:
            value = json.loads(found[1])
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return {}
