"""Knowledge backends under one contract: a new one joins by a line in `BACKENDS`."""

from __future__ import annotations

import itertools
import math
import tempfile
import zlib
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from service.vector_store import LangChainStore
from tools.catalog import Catalog, KnowledgeEntry, build_catalog
from tools.rag.backend import RagBackend
from tools.rag.backend_fts import FtsBackend
from tools.rag.backend_joined import JoinedBackend
from tools.rag.backend_vector import VectorBackend
from tools.rag.tokenize import query_terms

Documents = Mapping[str, str]
"""Path of a document → its text."""
VECTOR_ENTRY: dict[str, Any] = {"store": "stores:make", "score": "cosine", "high": 0.5, "reference": 0.3}


class WordEmbedding(Embeddings):
    """A bag of words, hashed: texts that share words are near, and the same everywhere."""

    size = 1024

    def embed_query(self, text: str) -> list[float]:
        vector = [1e-6] * self.size
        for term in query_terms(text).judged:
            vector[zlib.crc32(term.encode()) % self.size] += 1.0
        length = math.sqrt(sum(value * value for value in vector))
        return [value / length for value in vector]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


def entry(name: str = "kb", **changes: Any) -> KnowledgeEntry:
    return KnowledgeEntry.model_validate({"name": name} | VECTOR_ENTRY | changes)


def filled(store: VectorStore, documents: Documents) -> VectorStore:
    if documents:
        store.add_documents([Document(text, metadata={"source": path}) for path, text in documents.items()])
    return store


def in_memory(documents: Documents) -> LangChainStore:
    return LangChainStore(lambda: filled(InMemoryVectorStore(WordEmbedding()), documents))


def folder_catalog(base: Path, documents: Documents) -> Catalog:
    (base / "docs").mkdir()
    for path, text in documents.items():
        (base / "docs" / path).write_text(text)
    return build_catalog({"knowledge": [{"name": "kb", "path": "docs"}]}, base)


def fts(base: Path, documents: Documents) -> RagBackend:
    return FtsBackend(folder_catalog(base, documents), base / "index")


def vector(base: Path, documents: Documents) -> RagBackend:
    return VectorBackend([(entry(), in_memory(documents))])


def joined(base: Path, documents: Documents) -> RagBackend:
    half = len(documents) // 2
    items = list(documents.items())
    return JoinedBackend([fts(base, dict(items[:half])), vector(base, dict(items[half:]))])


class Searched(StrEnum):
    """How a Milvus collection is searched."""

    DENSE = "dense"
    BM25 = "bm25"
    HYBRID = "hybrid"


FLAT = {"index_type": "FLAT", "metric_type": "COSINE"}
SPARSE = {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "BM25"}


def open_milvus(searched: Searched, collection: str) -> VectorStore:
    """Open a collection of Milvus embedded in this process, in the one file of these tests."""
    from langchain_milvus import BM25BuiltInFunction, Milvus

    class Store(Milvus):
        @staticmethod
        def _as_list(value: Any) -> list[Any]:
            """A list of its own: langchain-milvus 0.4.0 appends to the store's list of fields at every search."""
            return list(Milvus._as_list(value))

    several = {
        Searched.DENSE: {"embedding_function": WordEmbedding(), "index_params": FLAT},
        Searched.BM25: {
            "embedding_function": None,
            "builtin_function": BM25BuiltInFunction(),
            "vector_field": "sparse",
            "index_params": SPARSE,
        },
        Searched.HYBRID: {
            "embedding_function": WordEmbedding(),
            "builtin_function": BM25BuiltInFunction(),
            "vector_field": ["dense", "sparse"],
            "index_params": [FLAT, SPARSE],
        },
    }
    place: dict[str, Any] = {"collection_name": collection, "connection_args": {"uri": f"{_FOLDER.name}/milvus.db"}}
    return Store(**several[searched], **place, consistency_level="Strong", auto_id=True)


def milvus(searched: Searched) -> Callable[[Path, Documents], RagBackend]:
    """A filled collection, opened once more to search it: what a new process does."""

    def make(base: Path, documents: Documents) -> RagBackend:
        collection = _filled_collection(searched, tuple(documents.items()))
        kind = entry() if searched is Searched.DENSE else entry(score="coverage")
        return VectorBackend([(kind, LangChainStore(lambda: open_milvus(searched, collection)))])

    return make


@cache
def _filled_collection(searched: Searched, documents: tuple[tuple[str, str], ...]) -> str:
    collection = f"kb{next(_NUMBERS)}"
    filled(open_milvus(searched, collection), dict(documents))
    return collection


_NUMBERS = itertools.count()
_FOLDER = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
BACKENDS: dict[str, Callable[[Path, Documents], RagBackend]] = {
    "fts5": fts,
    "vector": vector,
    "joined": joined,
    **{f"milvus-{searched}": milvus(searched) for searched in Searched},
}
