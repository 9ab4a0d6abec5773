"""The varying parts of messages: numbers, addresses and hexadecimal ids, found and compared for many lines at once. Pure.

Lines that differ in digits only have one shape. A shape is a fixed text with a slot for each varying part, and the digits of
its lines stand in columns. All that is done per line is done by few calls for all lines: that makes it fast.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from itertools import chain, islice, repeat
from operator import or_
from typing import TypeVar

from tools.placeholders import ANY, HEX, IP, NUM

MARK = "\0"
"""Stands for one slot in the fixed text of a message; log text is cleaned of it."""
Span = tuple[()] | tuple[str, str] | None
"""What lines of one shape have in a slot: always the same (None), this least and greatest number, or just different values."""
_SLOT = re.compile(
    r"([0-9a-f](?:"
    r"(?<=\b.)(?:(?<=0)x[0-9a-fA-F]+|(?:(?<=[0-9])|(?=[a-f\-]*[0-9]))[0-9a-f]{7,}(?:-[0-9a-f]{4,}){0,4})\b"
    r"|(?<=[0-9])(?:(?<![\d.].)[0-9]{0,2}(?:\.[0-9]{1,3}){3}(?!\.?[0-9])|[0-9]*(?:\.[0-9]+)?)))"
)
"""An id (0x7f, 8 or more hexadecimal digits, a UUID), an IPv4 address, a number. The set of first characters comes first
and is looked back at: that makes the search fast."""
_MEASURED = re.compile(r"\0(?:(?<=[\w#/@.\-].)|(?<=\0:.)|(?=[:\-/.]\0))|(\0)")
_Written = TypeVar("_Written", str, bytes)
_NUM_KIND, _IP_KIND, _HEX_KIND = 1, 2, 4
_WORDS = {_NUM_KIND: NUM, _IP_KIND: IP, _HEX_KIND: HEX, _NUM_KIND | _HEX_KIND: HEX}
_DIGITS, _SPACES = b"0123456789", b"\n\t\v\f\r "
_UNUSED = bytes(range(0xF8, 0xF8 + len(_SPACES)))
"""Bytes that UTF-8 does not have."""
_ZEROS = bytes.maketrans(_DIGITS, b"0" * 10)
_ZEROS_AS_SPACE = bytes.maketrans(b"0" + _SPACES, b" " + _UNUSED)
_OTHERS_AS_SPACE = bytes(code if code in _DIGITS else 32 for code in range(256))
_RUN = re.compile("[0-9]+")


def zeroed(lines: Iterable[str]) -> list[bytes]:
    """Return each line as UTF-8 with each digit as 0."""
    return "\n".join(lines).encode("utf-8", "surrogatepass").translate(_ZEROS).split(b"\n")


def shape_keys(lines: Iterable[bytes]) -> list[bytes]:
    """Return zeroed lines with one 0 for each run of zeros: lines of one shape differ in numbers only."""
    # White space is what `split` collapses, ten times as fast as a regular expression.
    text = b"\n".join([b"", *lines, b""]).translate(_ZEROS_AS_SPACE)
    return b"0".join(text.split()).split(_UNUSED[:1])[1:-1]


def fixed_texts(lines: Collection[str]) -> list[tuple[str, list[str]]]:
    """Return of each line its fixed text with a MARK for each slot, and the slots' values."""
    if not lines:
        return []
    parts = _SLOT.split("\n".join(lines).replace(MARK, " "))
    values = iter(parts[1::2])
    return [(text, list(islice(values, text.count(MARK)))) for text in MARK.join(parts[::2]).split("\n")]


def measured(text: str) -> list[bool]:
    """Say of each slot of a fixed text whether it can be a measured number.

    It is none where it ends a name (`user_7`, `#7`, `/7`) or is a part of an address, a date or a clock (`:7:7`).
    """
    return list(map(bool, _MEASURED.findall(text)))


def digit_runs(lines: Iterable[str]) -> list[bytes]:
    """Return the runs of digits of all lines, one after the other."""
    return "\n".join(lines).encode("utf-8", "replace").translate(_OTHERS_AS_SPACE).split()


def spans_of(values: Sequence[str], numbers: Sequence[bool], runs: Sequence[bytes], width: int) -> list[Span]:
    """Compare lines of one shape, which have `width` runs of digits each.

    `values` of the first line tell which slot has how many; `numbers` are the slots whose least and greatest number counts.
    """
    spans: list[Span] = []
    end = 0
    for value, number in zip(values, numbers, strict=False):
        start = end
        end += 1 if value.isdigit() else len(_RUN.findall(value))
        if not _differ(runs, range(start, end), width):
            spans.append(None)
        elif number and _kind(value) == _NUM_KIND:
            columns = [runs[place::width] for place in range(start, end)]
            low, high = _ends(columns[0] if len(columns) == 1 else list(map(b".".join, zip(*columns, strict=True))))
            spans.append((low.decode(), high.decode()))
        else:
            spans.append(())
    return spans


def _differ(runs: Sequence[bytes], places: Iterable[int], width: int) -> bool:
    for place in places:
        first = runs[place]
        if first != runs[place - width]:  # that of the last line
            return True
        column = runs[place::width]
        if column.count(first) != len(column):
            return True
    return False


def wider(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """Return what two sets of lines of one shape have in their slots."""
    return [_wider(one, other) for one, other in zip(spans, others, strict=True)]


def _wider(one: Span, other: Span) -> Span:
    if one is None or other is None:
        return other if one is None else one
    return _ends([*one, *other]) if one and other else ()


def told(
    rows: Sequence[Sequence[str]], spans: Sequence[Sequence[Span]], numbers: Sequence[bool]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return how each slot is shown, its value or a placeholder, and the range of each measured number that varies.

    `rows` have the values of each shape, `spans` of those whose lines differ.
    """
    shown, ranges = list(rows[0][: len(numbers)]), []
    if not numbers or (len(rows) == 1 and not spans):
        return shown, []
    across: Iterable[tuple[Span, ...]] = zip(*spans, strict=True) if spans else repeat(())
    for at, (number, column, within) in enumerate(zip(numbers, zip(*rows, strict=True), across, strict=False)):
        if within.count(None) == len(within) and column.count(column[0]) == len(column):
            continue
        kinds = _kinds(column)
        shown[at] = _WORDS.get(kinds, ANY)
        if number and kinds == _NUM_KIND:
            ranges.append(_ends([*dict.fromkeys(column), *chain.from_iterable(filter(None, within))]))
    return shown, ranges


def _ends(values: Sequence[_Written]) -> tuple[_Written, _Written]:
    numbers = list(map(float, values))
    return values[numbers.index(min(numbers))], values[numbers.index(max(numbers))]


def _kinds(values: Sequence[str]) -> int:
    if "".join(values).isdigit():
        return _NUM_KIND
    return reduce(or_, map(_kind, values))


def _kind(value: str) -> int:
    if value.isdigit():
        return _NUM_KIND
    points = value.count(".")
    if points == 1:
        return _NUM_KIND
    return _IP_KIND if points else _HEX_KIND


def fill(text: str, values: Sequence[str]) -> str:
    """Put values in the place of the marks."""
    return text.replace("%", "%%").replace(MARK, "%s") % tuple(values)
