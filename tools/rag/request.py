"""The business request of `search_runbooks` and its envelope (R18-R20, R129)."""

from __future__ import annotations

from pydantic import Field

from tools.envelope import AgentToolCall, BusinessRequest

MAX_QUERY_CHARS = 500
MAX_TOP_K = 5


class RagRequest(BusinessRequest):
    """What to look for in the knowledge base."""

    query: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARS,
        description=(
            "What to look for: symptoms, alert names, error messages or component names, in English or Chinese. "
            "Words of the incident work better than a whole sentence."
        ),
    )
    top_k: int = Field(default=3, ge=1, le=MAX_TOP_K, description="How many documents to return, 1 to 5.")


class RagToolCall(AgentToolCall):
    """Search the knowledge base."""

    input: RagRequest = Field(description="The search.")
