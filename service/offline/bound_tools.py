"""Which bound tool searches runbooks, reads logs or queries a database: told by the fields of its input schema. Pure.

The offline model learns the tools only as any provider would: names, descriptions and JSON Schemas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LISTED = re.compile(
    r"^(?P<indent>\s*)[-*]\s+`?(?P<name>[A-Za-z0-9][A-Za-z0-9_.\-]{0,63})`?\s*(?:\([^()]*\)\s*)?(?:[:：](?P<text>.*))?$"
)


@dataclass(frozen=True, slots=True)
class Named:
    """A topic or datasource as the tool's description lists it; `detail` holds indented lines below it."""

    name: str
    description: str
    detail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundTools:
    """Wire names of the tools that are there ("" where one is missing) and what the descriptions list."""

    search: str = ""
    logs: str = ""
    database: str = ""
    topics: tuple[Named, ...] = ()
    datasources: tuple[Named, ...] = ()
    max_lookback: int = 10080
    events_limited: bool = False
    """True when the log tool takes a `limit` of events."""


def read_tools(tools: Sequence[Mapping[str, Any]]) -> BoundTools:
    """Recognize bound tools (OpenAI-style dicts) by input fields: query+top_k, topic+query, datasource+sql."""
    found = BoundTools()
    for tool in tools:
        function = tool.get("function", tool)
        name, description = str(function.get("name", "")), str(function.get("description", ""))
        fields = input_fields(function.get("parameters") or {})
        if {"datasource", "sql"} <= fields.keys() and not found.database:
            found = _with(found, database=name, datasources=listed(description))
        elif {"topic", "query"} <= fields.keys() and not found.logs:
            bound = fields.get("lookback_minutes", {}).get("maximum")
            found = _with(
                found,
                logs=name,
                topics=listed(description),
                max_lookback=bound if isinstance(bound, int) else found.max_lookback,
                events_limited="limit" in fields,
            )
        elif {"query", "top_k"} <= fields.keys() and not found.search:
            found = _with(found, search=name)
    return found


def input_fields(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Properties of the envelope's `input`, references resolved; empty when the schema has another shape."""
    defs = schema.get("$defs") or schema.get("definitions") or {}
    node: Any = (schema.get("properties") or {}).get("input") or {}
    for _ in range(5):
        if isinstance(node, Mapping) and "$ref" in node:
            node = defs.get(str(node["$ref"]).rsplit("/", 1)[-1], {})
        elif isinstance(node, Mapping) and len(node.get("allOf") or ()) == 1:
            node = node["allOf"][0]
        else:
            break
    properties = node.get("properties") if isinstance(node, Mapping) else None
    if not isinstance(properties, Mapping):
        return {}
    return {key: value if isinstance(value, Mapping) else {} for key, value in properties.items()}


def listed(description: str) -> tuple[Named, ...]:
    """Read lines `- name: description` or `- name (remark): description`; lines indented deeper belong to the entry above."""
    entries: list[Named] = []
    base = 0
    for line in description.splitlines():
        match = _LISTED.match(line)
        indent = len(line) - len(line.lstrip())
        if match and (not entries or indent <= base):
            base = indent
            entries.append(Named(match["name"], (match["text"] or "").strip()))
        elif entries and line.strip() and indent > base:
            last = entries[-1]
            entries[-1] = Named(last.name, last.description, (*last.detail, line.strip()))
    return tuple(entries)


def _with(tools: BoundTools, **changes: Any) -> BoundTools:
    values = {name: getattr(tools, name) for name in BoundTools.__dataclass_fields__}
    return BoundTools(**{**values, **changes})
