"""The embedded knowledge base: one FTS5 index per folder, searched in a worker thread."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from pathlib import Path
from typing import Any

from tools.catalog import Catalog
from tools.contract import RelevanceLevel, ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.rag import schema
from tools.rag.folder import knowledge_folder
from tools.rag.keeper import IndexKeeper
from tools.rag.request import RagRequest
from tools.rag.score import RankedDocument, Thresholds, interleave, rank_documents
from tools.rag.search import IndexMissingError, search_index

RESERVE_SECONDS = 0.5
"""Time kept for the search itself while a first indexing is awaited."""
_log = logging.getLogger(__name__)


class FtsBackend:
    """Searches every knowledge folder of a catalogue; indexes them on first use and again when they may be stale."""

    def __init__(self, catalog: Catalog, index_dir: Path, keeper: IndexKeeper | None = None) -> None:
        self._catalog = catalog
        self._index_dir = index_dir
        self._keeper = keeper or IndexKeeper(catalog, index_dir)

    async def search(self, request: RagRequest, deadline_seconds: float) -> Any:
        """Search (see RagBackend). Raises ToolFailure: TOOL_TIMEOUT, BACKEND_UNAVAILABLE, PARTIAL_RESULT."""
        deadline = time.monotonic() + deadline_seconds
        ready = await self._indexed(deadline_seconds - RESERVE_SECONDS)
        rankings, missing = await asyncio.to_thread(self._search, request.query, deadline)
        documents = interleave(rankings)
        if missing and not documents:
            if not ready:
                raise ToolFailure(ToolErrorCode.TOOL_TIMEOUT)
            raise ToolFailure(ToolErrorCode.PARTIAL_RESULT if rankings else ToolErrorCode.BACKEND_UNAVAILABLE)
        return raw_response(documents, request.top_k)

    async def _indexed(self, seconds: float) -> bool:
        """Wait for the first indexing; later ones go on beside the searches. False when it did not end in time."""
        run = self._keeper.refresh()
        if run is None or self._keeper.ever_finished:
            return True
        waiting = asyncio.wrap_future(run)
        try:
            done, _ = await asyncio.wait([waiting], timeout=max(0.0, seconds))
        finally:
            waiting.cancel()  # the work goes on, but answers no loop that may be closed by then
        return bool(done)

    def _search(self, query: str, deadline: float) -> tuple[list[list[RankedDocument]], int]:
        """Search each folder; returns the rankings of those that answered and the number of those that did not."""
        rankings: list[list[RankedDocument]] = []
        missing = 0
        for entry in self._catalog.folders:
            path = schema.index_file(self._index_dir, entry.name, knowledge_folder(self._catalog, entry))
            try:
                hits = search_index(path, entry.name, query, deadline)
            except TimeoutError:
                raise ToolFailure(ToolErrorCode.TOOL_TIMEOUT) from None
            except IndexMissingError:
                missing += 1
            except (sqlite3.Error, OSError) as error:
                # Texts of such errors hold paths; the type tells an operator enough.
                _log.error("the index of knowledge %s cannot be read: %s", entry.name, type(error).__name__)
                missing += 1
            else:
                rankings.append(rank_documents(hits, Thresholds(entry.high, entry.reference)))
        return rankings, missing


def raw_response(documents: list[RankedDocument], top_k: int) -> dict[str, Any]:
    """Give the best `top_k` documents the shape of R129."""
    shown = documents[:top_k]
    levels = {document.level for document in shown}
    best = next((level.value for level in (RelevanceLevel.HIGH, RelevanceLevel.REFERENCE) if level in levels), None)
    return {
        "documents": [
            {
                "document_id": document.hit.document_id,
                "title": document.hit.title,
                "source": document.hit.source,
                "content": document.hit.content,
                "score": round(document.hit.score, 4),
                "relevance_level": document.level.value,
            }
            for document in shown
        ],
        "relevance_level": best,
        "total": len(documents),
    }
