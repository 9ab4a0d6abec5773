"""What every Run archives of its surroundings (R67): what the model sees of catalogue and tools, prompts as hashes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256

from nodes.ports import ArchiveEntry
from nodes.prompts import COMPONENTS, LANGUAGES, prompt
from service.system_view import catalog_view
from tools.catalog import Catalog
from tools.evidence_tool import EvidenceTool


def start_archive(catalog: Catalog, tools: Mapping[str, EvidenceTool]) -> tuple[ArchiveEntry, ...]:
    """Return the settings entries of a Run. Blocking: reads the prompt files, which are kept in memory from then on."""
    return (ArchiveEntry("settings", "catalog", catalog_view(catalog)), tools_entry(tools), prompts_entry())


def tools_entry(tools: Mapping[str, EvidenceTool]) -> ArchiveEntry:
    """Return description and schema of each tool, by wire name."""
    seen = {
        name: {"description": tool.description, "schema": tool.envelope.model_json_schema()}
        for name, tool in tools.items()
    }
    return ArchiveEntry("settings", "tools", seen)


@cache
def prompts_entry() -> ArchiveEntry:
    """Return the SHA-256 of each prompt, by component and language. Blocking at the first call."""
    hashes = {
        f"{component}.{language}": sha256(prompt(component, language).encode()).hexdigest()
        for component in COMPONENTS
        for language in LANGUAGES
    }
    return ArchiveEntry("settings", "prompts", hashes)
