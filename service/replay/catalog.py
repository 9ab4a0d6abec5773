"""The tools of a recorded Run, from what its bundle tells of the catalogue: they check and project, and reach nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from service.registry import Site, build_tools
from service.replay.bundle import Bundle
from service.replay.text import BundleError
from tools.catalog import Catalog, CatalogError, build_catalog
from tools.evidence_tool import EvidenceTool
from tools.scope import canonical_json

NOWHERE = Path("/nonexistent")


def tools_of(bundle: Bundle) -> Mapping[str, EvidenceTool]:
    """Build the tools over the recorded catalogue; equal catalogues share them. Raises BundleError."""
    view = bundle.settings.get("catalog")
    if view is None:
        raise BundleError(f"run {bundle.run_id}: settings catalog is missing: its tools cannot be built")
    return _tools(canonical_json(view))


@lru_cache(maxsize=64)
def _tools(view: str) -> Mapping[str, EvidenceTool]:
    import json

    return MappingProxyType(build_tools(Site(_catalog(json.loads(view)), NOWHERE, {})))


def _catalog(view: Mapping[str, Any]) -> Catalog:
    data = {
        "topic": [{**each, "path": "recorded"} for each in view["topics"]],
        "datasource": [_datasource(each) for each in view["datasources"]],
        "knowledge": [{**each, "path": "recorded"} for each in view["knowledge"]],
    }
    try:
        return build_catalog(data, NOWHERE, "of the bundle")
    except CatalogError as error:
        raise BundleError(f"settings catalog: {error}") from None


def _datasource(view: Mapping[str, Any]) -> dict[str, Any]:
    where = {"path": "recorded"} if view["kind"] == "sqlite" else {"dsn_env": "RECORDED_DSN"}
    return {name: value for name, value in view.items() if name != "kind"} | where
