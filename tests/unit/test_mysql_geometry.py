"""Spatial values as text and the driver's other conversions (R124)."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysql.constants import FIELD_TYPE

from tools.mysql.driver_values import driver_conversions
from tools.mysql.geometry import geometry_text

POINT = struct.pack("<IBI2d", 0, 1, 1, 1.0, -2.5)


def _wkb(order: str, code: int, body: bytes) -> bytes:
    return struct.pack(f"{order}BI", order == "<", code) + body


def _line(order: str, *points: tuple[float, float]) -> bytes:
    return struct.pack(f"{order}I", len(points)) + b"".join(struct.pack(f"{order}2d", *point) for point in points)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("code", "parts", "text"),
    [
        (2, "line", "LINESTRING(0 0,1.5 2)"),
        (3, "ring", "POLYGON((0 0,1.5 2))"),
        (4, "points", "MULTIPOINT(3 4,3 4)"),
        (7, "points", "GEOMETRYCOLLECTION(POINT(3 4),POINT(3 4))"),
        (7, "none", "GEOMETRYCOLLECTION EMPTY"),
        (5, "lines", "MULTILINESTRING((0 0,1.5 2))"),
        (6, "polygons", "MULTIPOLYGON(((0 0,1.5 2)))"),
    ],
)
def test_r124_every_kind_of_geometry_is_written_as_wkt(order: str, code: int, parts: str, text: str) -> None:
    line = _line(order, (0, 0), (1.5, 2))
    point = _wkb(order, 1, struct.pack(f"{order}2d", 3, 4))
    one, two = struct.pack(f"{order}I", 1), struct.pack(f"{order}I", 2)
    bodies = {
        "line": line, "ring": one + line, "points": two + point * 2, "none": struct.pack(f"{order}I", 0),
        "lines": one + _wkb(order, 2, line), "polygons": one + _wkb(order, 3, one + line),
    }  # fmt: skip
    assert geometry_text(struct.pack("<I", 0) + _wkb(order, code, bodies[parts])) == text


def test_r124_the_reference_system_is_kept() -> None:
    assert geometry_text(POINT) == "POINT(1 -2.5)"
    assert geometry_text(struct.pack("<I", 4326) + POINT[4:]) == "SRID=4326;POINT(1 -2.5)"


@pytest.mark.parametrize(
    "data",
    [b"", POINT[:-1], POINT + b"\0", POINT[:4] + b"\2" + POINT[5:], POINT[:5] + b"\x63\0\0\0" + POINT[9:], b"\0" * 70_000,
     struct.pack("<IBII", 0, 1, 2, 2**32 - 1), struct.pack("<I", 0) + struct.pack("<BII", 1, 7, 1) * 40 + POINT[4:]],
)  # fmt: skip
def test_r124_what_is_no_geometry_stays_bytes(data: bytes) -> None:
    assert geometry_text(data) is None
    assert driver_conversions()[FIELD_TYPE.GEOMETRY](data) == data


@given(st.binary(max_size=200))
def test_r124_no_bytes_raise(data: bytes) -> None:
    assert isinstance(geometry_text(data), str | None)


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_r124_coordinates_keep_every_digit(x: float, y: float) -> None:
    text = geometry_text(struct.pack("<IBI2d", 0, 1, 1, x, y))
    assert text is not None
    assert [float(part) for part in text[6:-1].split(" ")] == [x, y]
    assert not math.isnan(x)


def test_r124_the_driver_keeps_the_servers_text_and_reads_bits_as_numbers() -> None:
    table = driver_conversions()
    for kind in (FIELD_TYPE.NEWDECIMAL, FIELD_TYPE.DATE, FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP, FIELD_TYPE.TIME):
        assert kind not in table
    assert table[FIELD_TYPE.BIT](b"\x01\x01") == 257
    assert table[FIELD_TYPE.LONGLONG]("18446744073709551615") == 2**64 - 1
    assert str in table
