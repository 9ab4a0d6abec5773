"""What the system may say about itself: names and descriptions of the catalogue, no addresses (R55)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release.bounding import fit_json
from tools.catalog import Catalog
from tools.rag.folder import knowledge_folder
from tools.rag.schema import index_file
from tools.rag.titles import document_titles

MAX_VIEW_BYTES = 24 * 1024
"""UTF-8 JSON bytes of the view: a prompt holds it beside the question."""
MAX_TITLES = 60
"""Titles told of one knowledge folder; the number of documents is told in full."""


def catalog_view(catalog: Catalog) -> dict[str, Any]:
    """What the catalogue says without addresses: no paths, no names of variables."""
    return {
        "now": catalog.now,
        "topics": [{"name": each.name, "description": each.description} for each in catalog.topics],
        "datasources": [
            {
                "name": each.name,
                "description": each.description,
                "kind": "sqlite" if each.path is not None else "server",
                "timezone": each.timezone,
                "tables": each.tables,
            }
            for each in catalog.datasources
        ],
        "knowledge": [{"name": each.name, "description": each.description} for each in catalog.knowledge],
    }


@dataclass(frozen=True, slots=True)
class SystemView:
    """The catalogue as the router and the system chat see it: at most 24 KiB, whatever it names."""

    catalog: Catalog
    index_dir: Path

    async def __call__(self) -> Mapping[str, Any]:
        """Return topics, datasources with tables, knowledge folders, and the documents in them by title."""
        view = catalog_view(self.catalog)
        known = {name: view[name] for name in ("topics", "datasources", "knowledge")}
        documents = await asyncio.to_thread(self._documents)
        fitted, _ = fit_json({**known, "documents": documents}, MAX_VIEW_BYTES)
        return fitted if isinstance(fitted, dict) else {}

    def _documents(self) -> list[dict[str, Any]]:
        found = []
        for entry in self.catalog.folders:
            folder = knowledge_folder(self.catalog, entry)
            index = index_file(self.index_dir, entry.name, folder)
            titles, total = document_titles(entry.name, folder, index, MAX_TITLES)
            found.append({"knowledge": entry.name, "total": total, "titles": titles})
        return found
