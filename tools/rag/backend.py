"""What answers a knowledge search: the embedded index here, a vector store behind the same protocol elsewhere."""

from __future__ import annotations

from typing import Any, Protocol

from tools.rag.request import RagRequest


class RagBackend(Protocol):
    """A knowledge base."""

    async def search(self, request: RagRequest, deadline_seconds: float) -> Any:
        """Return the raw response, JSON data of the shape of R129, within the given time.

        `{documents: [{document_id, title, source, content, score, relevance_level}], relevance_level, total}`, most
        relevant first, at most `top_k` documents, none below REFERENCE. `total` counts the documents that reached a
        level. Raises ToolFailure.
        """
