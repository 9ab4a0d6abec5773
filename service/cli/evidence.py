"""The lines and rows behind a statement, out of an archived `agent_result`. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

MAX_LINES = 20
MAX_CHARS = 500


def evidence_lines(agent_result: Mapping[str, Any] | None) -> Iterator[str]:
    """Show log events, rows or documents of one call; what has another shape is shown as JSON."""
    if not agent_result:
        yield "-"
        return
    for name, write in (("events", _event), ("rows", None), ("documents", _document)):
        items = agent_result.get(name)
        if not isinstance(items, list):
            continue
        if name == "rows":
            yield " | ".join(str(column) for column in agent_result.get("columns") or [])
        if levels := _levels(agent_result):
            yield levels
        for item in items[:MAX_LINES]:
            yield _cut(write(item) if write and isinstance(item, Mapping) else _row(item))
        if len(items) > MAX_LINES:
            yield f"… {len(items) - MAX_LINES} more"
        if not items:
            yield "(0)"
        return
    yield _cut(json.dumps(agent_result, ensure_ascii=False))


def _levels(agent_result: Mapping[str, Any]) -> str:
    counts = agent_result.get("levels")
    told = counts.items() if isinstance(counts, Mapping) else ()
    return _cut(", ".join(f"{level} {count}" for level, count in told))


def _event(event: Mapping[str, Any]) -> str:
    message = str(event.get("message") or "")
    # Plain-text lines carry level and service themselves.
    parts = [str(event.get(name) or "") for name in ("level", "service", "instance")]
    told = [part for part in parts if part and part.lower() not in message.lower()]
    return " ".join([str(event.get("timestamp") or "-"), *told, message])


def _document(document: Mapping[str, Any]) -> str:
    return f"{document.get('title')} ({document.get('source')}, {document.get('relevance_level')})"


def _row(row: Any) -> str:
    return " | ".join("NULL" if cell is None else str(cell) for cell in row) if isinstance(row, list) else str(row)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…"
