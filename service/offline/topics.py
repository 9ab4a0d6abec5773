"""Which log topic to read next: overlap of its name and description with the question, then references. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.offline.bound_tools import Named
from service.offline.reading import NOTEWORTHY, Line, documents
from service.offline.terms import KIND_WORDS, STOP_WORDS, Question, split_name
from service.offline.transcript import Exchange

RELATED = 1.0
"""Score from which a topic is related to the question."""


def stem(topic: str) -> str:
    """A topic's name without words such as `logs`."""
    parts = topic.lower().split("-")
    kept = [part for part in parts if part not in {"logs", "log", "events", "state"}]
    return "-".join(kept) or topic.lower()


def choose_topic(
    question: Question,
    topics: Sequence[Named],
    visited: Sequence[str],
    found: Exchange | None,
    seen: Sequence[Line],
    *,
    only_related: bool,
) -> tuple[str, float] | None:
    """The best topic not read yet and how related it is; ties keep the catalogue's order. None: no such one is left."""
    scored = [
        (relatedness(topic, question, found, seen), -index, topic.name)
        for index, topic in enumerate(topics)
        if topic.name not in visited
    ]
    if not scored:
        return None
    score, _, name = max(scored)
    return None if only_related and score < RELATED else (name, score)


def relatedness(topic: Named, question: Question, found: Exchange | None, seen: Sequence[Line]) -> float:
    """2 per shared part of the name, 1 per shared word of the description, a little for kinds and references."""
    asked = {part for term in question.terms for part in split_name(term)} - STOP_WORDS
    telling_parts, kinds = asked - KIND_WORDS, set(question.kinds) | (asked & KIND_WORDS)
    name, text = set(split_name(topic.name)), set(split_name(topic.description))
    score = 2.0 * len(name & telling_parts) + 1.0 * len((text - name) & telling_parts)
    score += 0.2 * len({word.rstrip("s") for word in name | text} & {kind.rstrip("s") for kind in kinds})
    core = stem(topic.name)
    if found is not None and any(_names(str(doc.get("content") or "").lower(), core) for doc in documents(found)):
        score += 1.0
    if any(_mentions(line.text.lower(), core) for line in seen if line.score >= NOTEWORTHY):
        score += 1.0
    return score


def _mentions(text: str, core: str) -> bool:
    """True when a line holds the topic's name as a word of its own, not as a part of a package or a host."""
    return re.search(rf"(?<![\w.]){re.escape(core)}(?![\w.])", text) is not None


def _names(text: str, core: str) -> bool:
    """True when a document names the topic's thing; a plain word must stand in backticks to be a name."""
    return core in text if any(char in core for char in "-_.") else f"`{core}`" in text
