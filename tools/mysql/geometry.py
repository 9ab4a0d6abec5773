"""Spatial values as text (R124): the server's bytes of a geometry in the words of WKT. Pure."""

from __future__ import annotations

import struct

MAX_BYTES = 64 * 1024
_NAMES = {1: "POINT", 2: "LINESTRING", 3: "POLYGON", 4: "MULTIPOINT", 5: "MULTILINESTRING", 6: "MULTIPOLYGON"}
_COLLECTION = 7
_MAX_DEPTH = 8


class _Malformed(Exception):
    """The bytes are no geometry."""


def geometry_text(data: bytes) -> str | None:
    """Write the internal format (4 bytes SRID, then WKB) as `POINT(1 2)`, or `SRID=4326;POINT(1 2)` with a system.

    Coordinates are given in the order in which they are stored. None when the bytes are no geometry or over 64 KiB.
    """
    if not 9 <= len(data) <= MAX_BYTES:
        return None
    reader = _Reader(data)
    try:
        reader.order = "<"
        srid = reader.number()
        text = _tagged(reader, 0)
        if reader.position != len(data):
            return None
    except (_Malformed, struct.error, IndexError):
        return None
    return f"SRID={srid};{text}" if srid else text


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0
        self.order = "<"

    def byte_order(self) -> None:
        """Read the byte that says how numbers are written."""
        self.order = {0: ">", 1: "<"}.get(self._data[self.position], "")
        if not self.order:
            raise _Malformed
        self.position += 1

    def number(self) -> int:
        """Read an unsigned integer of 4 bytes."""
        value: int = struct.unpack_from(f"{self.order}I", self._data, self.position)[0]
        self.position += 4
        return value

    def count(self, size: int) -> int:
        """Read how many items of at least `size` bytes follow."""
        value = self.number()
        if value * size > len(self._data) - self.position:
            raise _Malformed
        return value

    def point(self) -> str:
        """Read two coordinates."""
        pair = struct.unpack_from(f"{self.order}2d", self._data, self.position)
        self.position += 16
        return " ".join(repr(value).removesuffix(".0") for value in pair)


def _tagged(reader: _Reader, depth: int) -> str:
    kind, body = _shape(reader, depth)
    return f"{kind}{body}"


def _shape(reader: _Reader, depth: int) -> tuple[str, str]:
    reader.byte_order()
    code = reader.number()
    if depth > _MAX_DEPTH:
        raise _Malformed
    if code == 1:
        return _NAMES[1], f"({reader.point()})"
    if code == 2:
        return _NAMES[2], _points(reader)
    if code == 3:
        return _NAMES[3], _list([_points(reader) for _ in range(reader.count(4))])
    if code in (4, 5, 6):
        parts = [_shape(reader, depth + 1) for _ in range(reader.count(9))]
        if any(kind != _NAMES[code - 3] for kind, _ in parts):
            raise _Malformed
        bodies = [body[1:-1] if code == 4 else body for _, body in parts]
        return _NAMES[code], _list(bodies)
    if code == _COLLECTION:
        return "GEOMETRYCOLLECTION", _list([_tagged(reader, depth + 1) for _ in range(reader.count(9))])
    raise _Malformed


def _points(reader: _Reader) -> str:
    return _list([reader.point() for _ in range(reader.count(16))])


def _list(parts: list[str]) -> str:
    return f"({','.join(parts)})" if parts else " EMPTY"
