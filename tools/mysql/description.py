"""What the model reads about the tool: datasources, tables and columns of the catalogue, bounded. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tools.catalog import DatasourceEntry

MAX_DESCRIPTION_CHARS = 6_000
MAX_NAMES_CHARS = 400
MAX_COLUMNS_NAMED = 60

_INTRODUCTION = (
    "Run one read-only MySQL SELECT against a datasource and see up to 20 rows. NOW() is the time of the question in the "
    "datasource's zone. Only the tables below can be read; SHOW, DESCRIBE and EXPLAIN are not available. Aggregate where "
    "you can, bind values with ?. Datasources:"
)
_MORE = "\n(more tables exist that are not listed here)"


def describe(entries: Sequence[DatasourceEntry]) -> str:
    """Return the tool's description, at most 6,000 characters."""
    lines = [_INTRODUCTION]
    length = len(_INTRODUCTION)
    for line in _lines(entries):
        if length + len(line) + 1 + len(_MORE) > MAX_DESCRIPTION_CHARS:
            return "\n".join(lines) + _MORE
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)


def _lines(entries: Sequence[DatasourceEntry]) -> Iterable[str]:
    for entry in entries:
        yield f"- {entry.name} (times in {entry.timezone}): {entry.description}".removesuffix(": ")
        for table, columns in entry.tables.items():
            named = ", ".join(columns[:MAX_COLUMNS_NAMED]) + (", ..." if len(columns) > MAX_COLUMNS_NAMED else "")
            yield f"  - {table} ({named})" if columns else f"  - {table}"


def allowed_names(names: Sequence[str]) -> str:
    """Join names with commas within 400 characters, marking what was left out."""
    text = ""
    for index, name in enumerate(names):
        if len(text) + len(name) + 2 > MAX_NAMES_CHARS:
            return f"{text}, and {len(names) - index} more"
        text = f"{text}, {name}" if text else name
    return text
