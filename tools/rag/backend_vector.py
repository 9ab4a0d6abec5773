"""Knowledge in vector stores behind RagBackend (R129).

A level comes from the cosine that the store returns, or, where its scores only rank (BM25, hybrid search), from the share
of the query's terms that a passage holds (R54).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Protocol
from urllib.parse import urlsplit

from tools.catalog import Catalog, KnowledgeEntry
from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.masking import mask_text
from tools.rag.backend_fts import raw_response
from tools.rag.request import RagRequest
from tools.rag.score import Hit, Thresholds, coverage, interleave, rank_documents
from tools.rag.search import document_id
from tools.rag.tokenize import index_terms, query_terms

NEAREST = 20
"""Passages asked of a store; several may come from one file."""
MAX_CONTENT_CHARS = 4_000
MAX_SOURCE_PARTS = 3
_SLACK = 1e-3
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredText:
    """One passage of a store. Of `metadata`, `source` (a path or URL) and `title` are used."""

    content: str
    metadata: Mapping[str, Any]


class VectorSearch(Protocol):
    """A vector store, as far as it is used here."""

    async def similarity_search_with_score(self, query: str, k: int) -> Sequence[tuple[StoredText, float]]:
        """Return the `k` nearest passages with the store's own score. May raise anything."""


OpenStore = Callable[[Catalog, KnowledgeEntry], VectorSearch]
"""Makes the store of an entry without touching it yet. Raises CatalogError."""


class VectorBackend:
    """Searches every vector store of a catalogue at once."""

    def __init__(self, stores: Sequence[tuple[KnowledgeEntry, VectorSearch]]) -> None:
        self._stores = tuple(stores)

    async def search(self, request: RagRequest, deadline_seconds: float) -> Any:
        """Search (see RagBackend). Raises ToolFailure: TOOL_TIMEOUT, BACKEND_UNAVAILABLE, BACKEND_ERROR, PARTIAL_RESULT."""
        asked = (_asked(entry, store, request.query, deadline_seconds) for entry, store in self._stores)
        answers = await asyncio.gather(*asked)
        rankings = [
            rank_documents(hits, Thresholds(entry.high, entry.reference))
            for (entry, _), hits in zip(self._stores, answers, strict=True)
            if not isinstance(hits, ToolFailure)
        ]
        failures = [answer for answer in answers if isinstance(answer, ToolFailure)]
        documents = interleave(rankings)
        if failures and not documents:
            raise ToolFailure(ToolErrorCode.PARTIAL_RESULT) if rankings else failures[0]
        return raw_response(documents, request.top_k)


async def _asked(entry: KnowledgeEntry, store: VectorSearch, query: str, seconds: float) -> list[Hit] | ToolFailure:
    try:
        return await store_hits(entry, store, query, seconds)
    except ToolFailure as failure:
        return failure


async def store_hits(entry: KnowledgeEntry, store: VectorSearch, query: str, seconds: float) -> list[Hit]:
    """Return what a store finds, best first, with the score (0 to 1) that gives the level. Raises ToolFailure."""
    try:
        async with asyncio.timeout(seconds):
            found = await store.similarity_search_with_score(query, NEAREST)
        hits = _by_coverage(entry, query, found) if entry.score == "coverage" else _by_cosine(entry, found)
    except TimeoutError:
        raise ToolFailure(ToolErrorCode.TOOL_TIMEOUT) from None
    except ToolFailure:
        raise
    except Exception as error:
        # Texts of such errors hold addresses and keys; the type tells an operator enough.
        _log.error("the vector store of knowledge %s failed: %s", entry.name, type(error).__name__)
        raise ToolFailure(ToolErrorCode.BACKEND_UNAVAILABLE) from None
    once = {hit.document_id: hit for hit in hits}  # a text stored twice is one document
    return sorted(once.values(), key=lambda hit: (-hit.rank, hit.document_id))


def _by_coverage(entry: KnowledgeEntry, query: str, found: Sequence[tuple[StoredText, float]]) -> list[Hit]:
    """Keep the store's order. How common a term is in the store is not known here, so all weigh the same."""
    weights = dict.fromkeys(query_terms(query).judged, 1.0)
    return [
        _hit(
            entry,
            text,
            -float(place),
            coverage(weights, set(index_terms(f"{text.metadata.get('title')} {text.content}"))),
        )
        for place, (text, _) in enumerate(found)
    ]


def _by_cosine(entry: KnowledgeEntry, found: Sequence[tuple[StoredText, float]]) -> list[Hit]:
    similar = [(text, _similarity(entry, float(score))) for text, score in found]
    return [_hit(entry, text, score, score) for text, score in similar]


def _similarity(entry: KnowledgeEntry, score: float) -> float:
    similarity = 1 - score if entry.score == "cosine_distance" else score
    if not math.isfinite(similarity) or abs(similarity) > 1 + _SLACK:
        # A level from a score of another kind would be an accident, so there is none.
        _log.error("the vector store of knowledge %s returns scores that are no %s", entry.name, entry.score)
        raise ToolFailure(ToolErrorCode.BACKEND_ERROR)
    return min(1.0, max(0.0, similarity))


def _hit(entry: KnowledgeEntry, text: StoredText, rank: float, score: float) -> Hit:
    content = mask_text(text.content)[:MAX_CONTENT_CHARS]
    # Ids of a store may be random; where a text came from and what it says is what makes it the same.
    whole = f"{text.metadata.get('source')}\n{text.content}"
    slug = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    source = shown_source(text.metadata.get("source")) or slug
    title = text.metadata.get("title")
    return Hit(
        document_id=document_id(entry.name, source, slug),
        title=title if isinstance(title, str) and title else PurePosixPath(source).stem,
        source=source,
        content=content,
        rank=rank,
        score=score,
    )


def shown_source(value: object) -> str:
    """Return a source without host, account, query or leading folders; empty when there is none."""
    if not isinstance(value, str):
        return ""
    try:
        path = urlsplit(value).path if "://" in value else value
    except ValueError:
        return ""
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    absolute = path != value or path.startswith("/") or ":" in (parts or [""])[0]
    return "/".join(parts[-MAX_SOURCE_PARTS:] if absolute else parts)
