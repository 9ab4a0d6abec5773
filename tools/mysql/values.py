"""Database values as JSON without loss of meaning, and the bounds of a raw result (R124). Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

MAX_ROWS = 50
"""Rows of one raw result; one more is fetched to know whether there were more."""

MAX_CELL_BYTES = 2 * 1024
MAX_RESULT_BYTES = 64 * 1024
MAX_COLUMNS = 256
MAX_COLUMN_NAME_CHARS = 64

JsonScalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A bounded raw result; `truncated` when rows, bytes of a cell or columns were left out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[JsonScalar, ...], ...]
    truncated: bool


def to_json(value: Any) -> JsonScalar:
    """Turn a driver's value into a JSON scalar.

    Decimal: text with all digits. Date and time: ISO 8601. TIME: `[-]HH:MM:SS[.ffffff]`, also beyond 24 hours. Bytes:
    `hex:` and the digits. Infinite and undefined floats: their name. Zero dates arrive as text and stay so.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return "hex:" + bytes(value[: MAX_CELL_BYTES + 1]).hex()
    if isinstance(value, set | frozenset):
        return ",".join(sorted(str(item) for item in value))
    return str(value)


def _duration(value: timedelta) -> str:
    micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    seconds, micros = divmod(micros, 1_000_000)
    text = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{micros:06d}" if micros else text


def cut_utf8(text: str, limit: int) -> str:
    """Return the longest start of `text` that takes at most `limit` bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= limit else data[:limit].decode("utf-8", "ignore")


@dataclass(slots=True)
class ResultBuilder:
    """Takes rows one by one and stops at the bounds, so that a large result is never held whole."""

    columns: Sequence[str]
    _rows: list[tuple[JsonScalar, ...]] = field(default_factory=list)
    _bytes: int = 0
    _truncated: bool = False

    def add(self, row: Sequence[Any]) -> bool:
        """Add a driver's row; False when the result is full and this row was left out."""
        if len(self._rows) >= MAX_ROWS:
            self._truncated = True
            return False
        cells = tuple(self._cell(value) for value in row[:MAX_COLUMNS])
        size = sum(len(cell.encode("utf-8", "replace")) if isinstance(cell, str) else 8 for cell in cells)
        if self._bytes + size > MAX_RESULT_BYTES and self._rows:
            self._truncated = True
            return False
        self._bytes += size
        self._rows.append(cells)
        return True

    def _cell(self, value: Any) -> JsonScalar:
        cell = to_json(value)
        if isinstance(cell, str):
            bounded = cut_utf8(cell, MAX_CELL_BYTES)
            self._truncated |= bounded != cell
            return bounded
        return cell

    def build(self) -> QueryResult:
        """Return what was taken."""
        names = tuple(str(name)[:MAX_COLUMN_NAME_CHARS] for name in self.columns[:MAX_COLUMNS])
        return QueryResult(names, tuple(self._rows), self._truncated or len(self.columns) > MAX_COLUMNS)
