"""Contract types of routing, knowledge answers and system chat (R6, R76, R95, R97)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from graph.contract import Intent
from release.contract import DocumentRef, NotBlank, ReleaseModel, ReleaseOutcome, StrictModel
from tools.contract import ToolCallId

LOOKUP_ID = "lookup-1"
"""Tool Call ID of the one lookup of a knowledge answer (R72, R95)."""
MAX_CHAT_CHARS = 4_000
"""Characters of a published system chat answer."""


class IntentDecision(StrictModel):
    """Strict output of the router (R97)."""

    intent: Intent


class KnowledgeItem(StrictModel):
    """One statement of a knowledge answer, bound to the lookup's id and to documents it returned (R95)."""

    text: Annotated[str, NotBlank] = Field(
        min_length=1, max_length=1200, description="What the documents say, in plain text."
    )
    tool_call_id: ToolCallId = Field(description="The tool_call_id of the given result.")
    document_ids: list[str] = Field(
        min_length=1, max_length=5, description="document_id of the given documents that say it."
    )


class KnowledgeAnswer(StrictModel):
    """Strict output of the knowledge answer (R95); its contract is not the diagnosis' one (R76)."""

    items: list[KnowledgeItem] = Field(max_length=8, description="Empty when the documents do not answer.")
    not_found: bool = Field(description="true exactly when items is empty.")

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if self.not_found is bool(self.items):
            raise ValueError("not_found: must be true exactly when items is empty")
        return self


class PublishedItem(ReleaseModel):
    """One statement of a published knowledge answer with its citations expanded (R95)."""

    text: str
    tool_call_id: str
    documents: list[DocumentRef]


class PublishedKnowledge(ReleaseModel):
    """A published knowledge answer; `not_found` says that the documents hold no answer (R95)."""

    query: str
    outcome: Literal[ReleaseOutcome.KNOWLEDGE_ANSWER] = ReleaseOutcome.KNOWLEDGE_ANSWER
    items: list[PublishedItem]
    not_found: bool


class PublishedChat(ReleaseModel):
    """A published answer about the system itself: plain text."""

    query: str
    outcome: Literal[ReleaseOutcome.CHAT] = ReleaseOutcome.CHAT
    text: str = Field(max_length=MAX_CHAT_CHARS)
