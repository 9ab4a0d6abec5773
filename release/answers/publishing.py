"""From what a component wrote to what a user may see: membership, citations, bounds (R95). Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from release.answers.contract import LOOKUP_ID, MAX_CHAT_CHARS, KnowledgeAnswer, PublishedChat, PublishedItem
from release.answers.contract import PublishedKnowledge as PublishedKnowledge
from release.bounding import clean_text, cut_text
from release.contract import DocumentRef
from tools.masking import mask_text


def document_refs(observation: Mapping[str, Any]) -> list[DocumentRef]:
    """Read the metadata of the documents that a lookup's observation shows, in its order."""
    fields = ("document_id", "title", "source", "relevance_level")
    return [
        DocumentRef.model_validate({name: each[name] for name in fields}) for each in observation.get("documents") or ()
    ]


def is_member(answer: KnowledgeAnswer, documents: Sequence[DocumentRef]) -> bool:
    """Whether every item names this Run's lookup, and only documents which that lookup returned (R95)."""
    known = {document.document_id for document in documents}
    return all(item.tool_call_id == LOOKUP_ID and known.issuperset(item.document_ids) for item in answer.items)


def publish_knowledge(query: str, answer: KnowledgeAnswer, documents: Sequence[DocumentRef]) -> PublishedKnowledge:
    """Expand the citations of an answer whose membership was verified: each document once, in the lookup's order."""
    items = [
        PublishedItem(
            text=clean_text(item.text),
            tool_call_id=item.tool_call_id,
            documents=[document for document in documents if document.document_id in item.document_ids],
        )
        for item in answer.items
    ]
    return PublishedKnowledge(query=clean_text(query), items=items, not_found=answer.not_found)


def not_found(query: str) -> PublishedKnowledge:
    """Say that the knowledge base holds no answer."""
    return PublishedKnowledge(query=clean_text(query), items=[], not_found=True)


def publish_chat(query: str, text: str) -> PublishedChat | None:
    """Bound and clean a chat answer: plain text, masked, at most 4,000 characters; None when nothing of it is left."""
    plain = "".join(char for char in clean_text(text) if char in "\n\t" or unicodedata.category(char) not in _UNSEEN)
    plain = cut_text(mask_text(plain).strip(), MAX_CHAT_CHARS)
    return PublishedChat(query=clean_text(query), text=plain) if plain else None


_UNSEEN = frozenset({"Cf", "Co", "Cn"})
"""Invisible and private characters: they could reorder or hide what a terminal shows."""
