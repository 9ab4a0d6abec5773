"""MySQL's aggregates that SQLite lacks: GROUP_CONCAT with its order, standard deviations."""

from __future__ import annotations

import math
import sqlite3
from typing import Any

from tools.mysql.sqlite_shape import compare_text, folded, text_of


class _GroupConcat:
    """MYSQL_GROUP_CONCAT(distinct, separator, descending, value, key): GROUP_CONCAT with its order, NULLs left out."""

    def __init__(self) -> None:
        self._items: list[tuple[Any, str]] = []
        self._options: tuple[Any, Any, Any] = (0, ",", 0)

    def step(self, *arguments: Any) -> None:
        distinct, separator, descending, value, key = arguments
        self._options = (distinct, separator, descending)
        known = distinct and any(compare_text(text, text_of(value)) == 0 for _, text in self._items)
        if value is not None and not known:
            self._items.append((key, text_of(value)))

    def finalize(self) -> str | None:
        _, separator, descending = self._options
        items = sorted(self._items, key=lambda item: _sort_key(item[0]), reverse=bool(descending))
        return text_of(separator).join(text for _, text in items) if items else None


def _sort_key(value: Any) -> tuple[int, float, str]:
    if value is None:
        return (0, 0.0, "")
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, folded(text_of(value)))


class _Deviation:
    """Standard deviation; `sample` divides by n - 1."""

    sample = False

    def __init__(self) -> None:
        self._values: list[float] = []

    def step(self, *arguments: Any) -> None:
        (value,) = arguments
        if value is not None:
            self._values.append(float(value))

    def finalize(self) -> float | None:
        count = len(self._values) - self.sample
        if count < 1:
            return None
        mean = math.fsum(self._values) / len(self._values)
        return math.sqrt(math.fsum((value - mean) ** 2 for value in self._values) / count)


class _SampleDeviation(_Deviation):
    sample = True


AGGREGATES: dict[str, tuple[int, Any]] = {
    "MYSQL_GROUP_CONCAT": (5, _GroupConcat),
    "STD": (1, _Deviation),
    "STDDEV": (1, _Deviation),
    "STDDEV_POP": (1, _Deviation),
    "STDDEV_SAMP": (1, _SampleDeviation),
}


def install_aggregates(connection: sqlite3.Connection) -> None:
    """Give a connection the aggregates."""
    for name, (arity, aggregate) in AGGREGATES.items():
        connection.create_aggregate(name, arity, aggregate)
