"""Knowledge backends under one contract: a new one joins by a line in `BACKENDS`."""

from __future__ import annotations

import importlib.util
import itertools
import math
import tempfile
import zlib
from collections.abc import Callable, Mapping
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


def milvus(base: Path, documents: Documents) -> RagBackend:
    """Milvus embedded in this process: one file and a collection for each backend."""
    from langchain_milvus import Milvus

    store = Milvus(
        embedding_function=WordEmbedding(),
        collection_name=f"kb{next(_NUMBERS)}",
        connection_args={"uri": f"{_FOLDER.name}/milvus.db"},
        index_params={"index_type": "FLAT", "metric_type": "COSINE"},
        consistency_level="Strong",
        auto_id=True,
    )
    filled(store, documents)
    return VectorBackend([(entry(), LangChainStore(lambda: store))])


_NUMBERS = itertools.count()
_FOLDER = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
BACKENDS: dict[str, Callable[[Path, Documents], RagBackend]] = {"fts5": fts, "vector": vector, "joined": joined}
if importlib.util.find_spec("langchain_milvus") is not None:  # the extra [milvus]; heavy, so not part of [dev]
    BACKENDS["milvus"] = milvus
