"""What the system may say about itself: names and descriptions of the catalogue, no addresses (R55)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.catalog import Catalog


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
    """The catalogue as the router and the system chat see it."""

    catalog: Catalog

    async def __call__(self) -> Mapping[str, Any]:
        """Return topics, datasources with tables, and knowledge folders."""
        view = catalog_view(self.catalog)
        return {name: view[name] for name in ("topics", "datasources", "knowledge")}
