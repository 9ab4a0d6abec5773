"""LangChain vector stores of the catalogue, behind the small protocol that `tools` knows."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tools.catalog import Catalog, CatalogError, KnowledgeEntry
from tools.rag.backend_vector import StoredText

if TYPE_CHECKING:
    from langchain_core.vectorstores import VectorStore


_MILVUS = frozenset({"langchain_milvus", "milvus_lite", "pymilvus"})


class LangChainStore:
    """A LangChain `VectorStore`, made by its function at the first search."""

    def __init__(self, make: Callable[[], VectorStore]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._store: VectorStore | None = None

    async def similarity_search_with_score(self, query: str, k: int) -> Sequence[tuple[StoredText, float]]:
        """Return the nearest documents with the store's own score."""
        store = await asyncio.to_thread(self._opened)
        found = await store.asimilarity_search_with_score(query, k=k)
        return [(StoredText(each.page_content, each.metadata), score) for each, score in found]

    def _opened(self) -> VectorStore:
        with self._lock:
            if self._store is None:
                self._store = self._make()
            return self._store


def open_vector_store(catalog: Catalog, entry: KnowledgeEntry) -> LangChainStore:
    """Find the function that `store` names; it is called at the first search. Raises CatalogError."""
    module, _, name = (entry.store or "").rpartition(":")
    try:
        make: Any = getattr(_module(catalog.base, module), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        extra = "; install the extra: superbizagent[milvus]" if missing in _MILVUS else ""
        raise CatalogError(
            f"knowledge {entry.name}: store: {module} needs {missing[:64] or 'a module'}, which is not installed{extra}"
        ) from None
    except Exception as error:
        # What an import raises may hold paths or keys.
        raise CatalogError(
            f"knowledge {entry.name}: store: {module} has no importable {name} ({type(error).__name__})"
        ) from None
    if not callable(make):
        raise CatalogError(f"knowledge {entry.name}: store: {name} must be a function that returns a VectorStore")
    return LangChainStore(make)


def _module(base: Path, name: str) -> ModuleType:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(Path(name).stem, base / name)
    if spec is None or spec.loader is None:
        raise ImportError
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
