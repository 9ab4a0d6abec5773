"""The varying parts of messages: numbers, addresses and hexadecimal ids, and how they are written in a template."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TypeVar

from tools.placeholders import ANY, HEX, IP, NUM

MARK = "\0"
"""Stands for one slot in the fixed text of a message; log text is cleaned of it."""
_SLOT = re.compile(
    r"([0-9a-f](?:"
    r"(?<=\b.)(?:(?<=0)x[0-9a-fA-F]+|(?:(?<=[0-9])|(?=[a-f\-]*[0-9]))[0-9a-f]{7,}(?:-[0-9a-f]{4,}){0,4})\b"
    r"|(?<=[0-9])(?:(?<![\d.].)[0-9]{0,2}(?:\.[0-9]{1,3}){3}(?!\.?[0-9])|[0-9]*(?:\.[0-9]+)?)))"
)
"""An id (0x7f, 8 or more hexadecimal digits, a UUID), an IPv4 address, a number. The set of first characters comes first
and is looked back at: that makes the search fast."""
_Written = TypeVar("_Written", str, bytes)
_NUM_KIND, _IP_KIND, _HEX_KIND = 1, 2, 4
_WORDS = {_NUM_KIND: NUM, _IP_KIND: IP, _HEX_KIND: HEX, _NUM_KIND | _HEX_KIND: HEX}
_MAX_KNOWN = 50_000
_JOINTS = frozenset(":-/.")
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_ZEROS_RUN = re.compile(b"00+")
_DIGITS = bytes(code if code in b"0123456789" else 32 for code in range(256))
_RUN = re.compile("[0-9]+")
_NAME_ENDS = frozenset("_-#/@.")


def _kind(value: str) -> int:
    if value.isdigit():
        return _NUM_KIND
    points = value.count(".")
    if points == 1:
        return _NUM_KIND
    return _IP_KIND if points else _HEX_KIND


def shapes_of(lines: Sequence[str]) -> list[bytes]:
    """Return each line as UTF-8 with one 0 for each run of digits: lines of one shape differ in numbers only."""
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    return _ZEROS_RUN.sub(b"0", text.translate(_ZEROS)).split(b"\n")


def digit_runs(lines: Sequence[str]) -> list[bytes]:
    """Return the runs of digits of all lines, one after the other."""
    return "\n".join(lines).encode("utf-8", "replace").translate(_DIGITS).split()


@dataclass(slots=True)
class Slot:
    """What one varying part has been. `low` and `high` are numbers as they were written, while all are numbers.

    `measured`: it may be a measured number, so that they are of interest (see `_measures`).
    """

    first: str
    measured: bool
    varies: bool = False
    kinds: int = field(init=False)
    low: str = field(init=False)
    high: str = field(init=False)

    def __post_init__(self) -> None:
        self.kinds = _NUM_KIND if self.first.isdigit() else _kind(self.first)
        self.low = self.high = self.first

    def add(self, values: Collection[str]) -> None:
        """Take in different values; it varies from the first other one on."""
        if len(values) == 1 and self.first in values:
            return
        self.varies = True
        if self.kinds != _NUM_KIND or not "".join(values).isdigit():
            for value in values:
                self.kinds |= _kind(value)
        self.widen(list(values))

    def add_runs(self, columns: Sequence[Sequence[bytes]]) -> None:
        """Take in values of one form, given as the runs of digits that they are made of."""
        if all(column[0] == column[-1] and column.count(column[0]) == len(column) for column in columns):
            return
        self.varies = True
        if self.measured and self.kinds == _NUM_KIND:
            whole = columns[0] if len(columns) == 1 else list(map(b".".join, zip(*columns, strict=True)))
            self.widen([value.decode() for value in _ends(list(dict.fromkeys(whole)))])

    def widen(self, values: Sequence[str]) -> None:
        """Make the range hold these numbers, where it is of interest and there are only numbers."""
        if self.measured and self.kinds == _NUM_KIND:
            low, high = _ends(values)
            if float(low) < float(self.low):
                self.low = low
            if float(high) > float(self.high):
                self.high = high

    @property
    def shown(self) -> str:
        """The value where it is always the same, else the placeholder of its kind."""
        return _WORDS.get(self.kinds, ANY) if self.varies else self.first

    @property
    def range(self) -> tuple[str, str] | None:
        """Least and greatest number, or None where it does not vary or is not always a number."""
        return (self.low, self.high) if self.measured and self.varies and self.kinds == _NUM_KIND else None


def _ends(values: Sequence[_Written]) -> tuple[_Written, _Written]:
    numbers = list(map(float, values))
    return values[numbers.index(min(numbers))], values[numbers.index(max(numbers))]


class TokenParts(dict[str, tuple[str, Sequence[str]]]):
    """The fixed text of a token with a MARK for each slot, and the slots' values; by token, and found once."""

    def __missing__(self, token: str) -> tuple[str, Sequence[str]]:
        if token.isalpha():
            found: tuple[str, Sequence[str]] = token, ()
        else:
            parts = _SLOT.split(token.replace(MARK, " ") if MARK in token else token)
            found = MARK.join(parts[::2]), parts[1::2]
        if len(self) < _MAX_KNOWN:
            self[token] = found
        return found


def new_slots(fixed: str, values: Sequence[str]) -> tuple[Slot, ...]:
    """Return slots for the values of a token with this fixed text."""
    return tuple(map(Slot, values, _measures(fixed))) if values else ()


def _measures(fixed: str) -> tuple[bool, ...]:
    """Say of each slot of a token whether it can be a measured number.

    It is none where it ends a name (`user_7`, `#7`, `/7`) or is a part of an address, a date or a clock (`:7:7`).
    """
    pieces = fixed.split(MARK)
    if len(pieces) == 2:
        end = pieces[0][-1:]
        return (not (end.isalnum() or end in _NAME_ENDS),)
    joints = [piece in _JOINTS for piece in pieces[1:-1]]
    ends = [piece[-1:] for piece in pieces[:-1]]
    beside = zip([False, *joints], [*joints, False], strict=True)
    return tuple(
        not (before or after or end.isalnum() or end in _NAME_ENDS)
        for (before, after), end in zip(beside, ends, strict=True)
    )


def joined(slots: Sequence[Slot]) -> Slot:
    """Return one slot that has been all that these have been."""
    whole = copy(slots[0])
    for slot in slots[1:]:
        whole.varies = whole.varies or slot.varies or slot.first != whole.first
        whole.kinds |= slot.kinds
        whole.widen((slot.low, slot.high))
    return whole


def runs_of(value: str) -> int:
    """Return how many runs of digits a slot's value has."""
    return 1 if value.isdigit() else len(_RUN.findall(value))


def fill(token: str, values: Sequence[str]) -> str:
    """Put values in the place of the marks."""
    if not values:
        return token
    fixed = token.split(MARK)
    return fixed[0] + "".join(value + text for value, text in zip(values, fixed[1:], strict=True))
