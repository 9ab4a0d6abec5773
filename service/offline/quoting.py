"""The offline model's knowledge answer: the passages of the found documents that cover most of the question (R95). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from service.offline.terms import CJK_STOP_WORDS, STOP_WORDS, split_name

MAX_ITEMS = 3
MAX_TEXT_CHARS = 700
MAX_PASSAGES = 3
"""Passages quoted of one document."""
LEAST_CHARS = 12
"""A shorter line is a heading or a label, no answer."""
_FENCE = re.compile(r"^```.*?^```\s*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6}\s+", re.MULTILINE)


def quote_answer(question: str, lookup: Mapping[str, Any]) -> dict[str, Any]:
    """Answer with verbatim passages, one item a document, each bound to it; `not_found` when none says anything of it.

    Documents of level HIGH alone are quoted where there are any.
    """
    documents = [each for each in lookup.get("documents") or () if isinstance(each, Mapping)]
    best = [each for each in documents if each.get("relevance_level") == "HIGH"] or documents
    wanted = _terms(question)
    items = [
        {"text": text, "tool_call_id": str(lookup.get("tool_call_id")), "document_ids": [str(each.get("document_id"))]}
        for each in best[:MAX_ITEMS]
        if (text := _quoted(wanted, each))
    ]
    return {"items": items, "not_found": not items}


def _quoted(wanted: frozenset[str], document: Mapping[str, Any]) -> str:
    title, passages = str(document.get("title") or "").strip(), list(_passages(str(document.get("content") or "")))
    if not passages or not wanted & _terms(f"{title} {' '.join(passages)}"):
        return ""
    scores = [len(wanted & _terms(passage)) for passage in passages]
    ranked = sorted(range(len(passages)), key=lambda place: (-scores[place], place))[:MAX_PASSAGES]
    kept: list[int] = []
    room = MAX_TEXT_CHARS - len(title)
    for place in ranked:
        if len(passages[place]) + 1 <= room or not kept:
            kept.append(place)
            room -= len(passages[place]) + 1
    text = "\n".join(passages[place] for place in sorted(kept))
    return f"{title}: {text}"[:MAX_TEXT_CHARS].strip() if title else text[:MAX_TEXT_CHARS].strip()


def _passages(content: str) -> Iterator[str]:
    """Paragraphs and list items of the text, in order, without the machine-readable checks."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+[.)])\s)", _HEADING.sub("\n\n", _FENCE.sub("\n\n", content))):
        passage = " ".join(block.split())
        if len(passage) >= LEAST_CHARS:
            yield passage


def _terms(text: str) -> frozenset[str]:
    ignored: Sequence[Any] = (STOP_WORDS, CJK_STOP_WORDS)
    return frozenset(part for part in split_name(text) if len(part) > 1 and not any(part in each for each in ignored))
