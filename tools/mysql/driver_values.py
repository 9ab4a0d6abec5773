"""How the driver's bytes become values (R124): the server's own text wherever Python's type would lose something. Pure.

DECIMAL keeps its digits; dates and times are what the server shows, so that zero dates, `838:59:59` and declared
fractions survive and the text can be used in the next query; BIT is a number; a geometry is WKT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pymysql.constants import FIELD_TYPE
from pymysql.converters import conversions

from tools.mysql.geometry import geometry_text

_SERVER_TEXT = (
    FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL, FIELD_TYPE.DATE, FIELD_TYPE.NEWDATE, FIELD_TYPE.DATETIME,
    FIELD_TYPE.TIMESTAMP, FIELD_TYPE.TIME,
)  # fmt: skip


def _bits(data: bytes | str) -> int | str:
    return int.from_bytes(data, "big") if isinstance(data, bytes) else data


def _geometry(data: bytes | str) -> bytes | str:
    text = geometry_text(data) if isinstance(data, bytes) else None
    return data if text is None else text


def driver_conversions() -> dict[Any, Callable[..., Any]]:
    """Return the driver's table of converters: by Python type for parameters, by column type for results."""
    table: dict[Any, Callable[..., Any]] = {key: value for key, value in conversions.items() if key not in _SERVER_TEXT}
    table[FIELD_TYPE.BIT] = _bits
    table[FIELD_TYPE.GEOMETRY] = _geometry
    return table
