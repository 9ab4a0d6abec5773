"""The varying parts of messages: numbers, addresses and hexadecimal ids, and how they are written in a template."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

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
_NUM_KIND, _IP_KIND, _HEX_KIND = 1, 2, 4
_WORDS = {_NUM_KIND: NUM, _IP_KIND: IP, _HEX_KIND: HEX, _NUM_KIND | _HEX_KIND: HEX}
_JOINTS = frozenset(":-/.")
_NAME_ENDS = frozenset("_-#/@.")


def split_slots(line: str) -> tuple[str, list[str]]:
    """Return the fixed text of a line with a MARK for each slot, and the slots' values."""
    parts = _SLOT.split(line.replace(MARK, " ") if MARK in line else line)
    return MARK.join(parts[::2]), parts[1::2]


def _kind(value: str) -> int:
    if value.isdigit():
        return _NUM_KIND
    points = value.count(".")
    if points == 1:
        return _NUM_KIND
    return _IP_KIND if points else _HEX_KIND


@dataclass(slots=True)
class Slot:
    """What one varying part has been. `low` and `high` are numbers as they were written, while all are numbers.

    `last` is the latest value taken in: it need not be taken in again.
    """

    first: str
    last: str = ""
    varies: bool = False
    kinds: int = 0
    low: str = ""
    high: str = ""
    _least: float = 0.0
    _most: float = 0.0

    def add(self, value: str) -> None:
        """Take in a value; it varies from the first other one on."""
        if not self.varies:
            if value == self.first:
                return
            self.varies = True
            self._begin()
        kind = _NUM_KIND if value.isdigit() else _kind(value)
        self.kinds |= kind
        if kind == _NUM_KIND:
            number = float(value)
            if number < self._least:
                self._least, self.low = number, value
            elif number > self._most:
                self._most, self.high = number, value

    def _begin(self) -> None:
        self.kinds = _kind(self.first)
        self.low = self.high = self.first
        self._least = self._most = float(self.first) if self.kinds == _NUM_KIND else 0.0

    @property
    def shown(self) -> str:
        """The value where it is always the same, else the placeholder of its kind."""
        return _WORDS.get(self.kinds, ANY) if self.varies else self.first

    @property
    def range(self) -> tuple[str, str] | None:
        """Least and greatest number, or None where it does not vary or is not always a number."""
        return (self.low, self.high) if self.varies and self.kinds == _NUM_KIND else None


def fill(token: str, values: Sequence[str]) -> str:
    """Put values in the place of the marks."""
    if not values:
        return token
    fixed = token.split(MARK)
    return fixed[0] + "".join(value + text for value, text in zip(values, fixed[1:], strict=True))


def measures(token: str) -> list[bool]:
    """Say of each slot of a token whether it can be a measured number.

    It is none where it ends a name (`user_7`, `#7`, `/7`) or is a part of an address, a date or a clock (`:7:7`).
    """
    found = []
    for at, char in enumerate(token):
        if char == MARK:
            before, after = token[max(0, at - 2) : at], token[at + 1 : at + 3]
            joined = (before[:1] == MARK and before[-1:] in _JOINTS) or (after[1:] == MARK and after[:1] in _JOINTS)
            found.append(not joined and not before[-1:].isalnum() and before[-1:] not in _NAME_ENDS)
    return found
