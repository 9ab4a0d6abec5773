"""The tool registry: which evidence tools exist, in the order the model sees them. One line a tool.

A builder imports its tool where the catalogue has something for it: SQL parser, index and log reader are no small imports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.catalog import Catalog
from tools.evidence_tool import EvidenceTool


@dataclass(frozen=True, slots=True)
class Site:
    """What a tool is built from: the catalogue, the folder of the knowledge index, the variables that hold secrets."""

    catalog: Catalog
    index_dir: Path
    env: Mapping[str, str]


Builder = Callable[[Site], EvidenceTool | None]


def _rag(site: Site) -> EvidenceTool | None:
    if not site.catalog.knowledge:
        return None
    from service.vector_store import open_vector_store
    from tools.rag.tool import build_rag_tool

    return build_rag_tool(site.catalog, site.index_dir, open_vector_store)


def _logs(site: Site) -> EvidenceTool | None:
    if not site.catalog.topics:
        return None
    from tools.logs.tool import build_logs_tool

    return build_logs_tool(site.catalog, site.env)


def _mysql(site: Site) -> EvidenceTool | None:
    if not site.catalog.datasources:
        return None
    from tools.mysql.tool import build_mysql_tool

    return build_mysql_tool(site.catalog, site.env)


BUILDERS: Mapping[str, Builder] = {"rag": _rag, "logs": _logs, "mysql": _mysql}
"""Short name (as the command line takes it) → builder; None means that the catalogue gives the tool nothing to ask."""


def build_tools(site: Site) -> dict[str, EvidenceTool]:
    """Build every tool the catalogue has something for, by wire name. Raises CatalogError. Touches no network."""
    built = (build(site) for build in BUILDERS.values())
    return {tool.name: tool for tool in built if tool is not None}


def build_tool(name: str, site: Site) -> EvidenceTool | None:
    """Build one tool by short or wire name; None when there is none or the catalogue gives it nothing to ask."""
    if name in BUILDERS:
        return BUILDERS[name](site)
    return build_tools(site).get(name)
