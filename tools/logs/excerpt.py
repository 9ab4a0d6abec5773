"""Bounding the text of an event so that what tells most stays: first line, matched text, exceptions. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

GAP = "…"
_MAX_LINES = 400
_FRAME_WEIGHT = 5
_MIN_SHOWN = 40
"""A shorter piece of a line tells nothing."""
_EXCEPTION = re.compile(
    r"^\s*(?:Caused by: |[\w.$]{0,120}(?:[Ee]rror|Exception|Failure|Fault|Panic)(?::|$))|panic:|fatal error:"
)
_FRAME = re.compile(
    r"^\s+(?:at |File \"|\.\.\. \d+ )|^\s{4,}\S|^\s*[\^~]+\s*$|^Traceback|^The above exception|^During handling"
)


def cut_line(text: str, limit: int) -> str:
    """Shorten text to `limit` characters at its end: between words where one ends near, never inside a number."""
    if len(text) <= limit:
        return text
    if limit < 8:
        return text[: max(0, limit)]
    cut = text[: limit - 1]
    space = -1 if text[limit - 1].isspace() else cut.rfind(" ", limit * 3 // 4)
    if space > 0:
        cut = cut[:space]
    elif text[limit - 1].isdigit():
        cut = cut.rstrip("0123456789.") or cut
    return cut.rstrip() + GAP


def _with_needle(text: str, limit: int, needles: Sequence[str]) -> str:
    """Shorten one long line; a needle that its beginning does not show gets whole words around it on a second line."""
    at = _needle_at(text, needles)
    width = limit // 2
    if at < limit - 1 or limit < 2 * _MIN_SHOWN:
        return cut_line(text, limit)
    start = max(0, at - width // 4)
    space = text.find(" ", start, at)
    around = text[space + 1 if space >= 0 else at :]
    return f"{cut_line(text, limit - width)}\n{GAP}{cut_line(around, width - 2)}"


def _needle_at(text: str, needles: Sequence[str]) -> int:
    """Return where the first of the needles stands; -1 when none does."""
    lowered = text.lower()
    return min((at for needle in needles if needle and (at := lowered.find(needle)) >= 0), default=-1)


def condense(text: str, limit: int, needles: Sequence[str] = ()) -> str:
    """Shorten a message of one or many lines to `limit` characters; a cut end and dropped lines leave a `…`.

    Of many lines the first stays, then the last exception, lines with a needle, other exceptions, others, stack frames.
    """
    if len(text) <= limit:
        return text
    lines = text.split("\n")
    if len(lines) > _MAX_LINES:
        lines = _few(lines, needles)
    if len(lines) == 1:
        return _with_needle(text, limit, needles)
    kept: dict[int, str] = {}
    room = limit
    for index in _order(lines, needles):
        cost = len(lines[index]) + 3
        if cost > room:
            if index != 0 and (room < 60 or len(kept) > 2):
                continue
            share = room - 3 if index else max(limit // 3, 40)
            kept[index] = cut_line(lines[index], share)
        else:
            kept[index] = lines[index]
        room -= len(kept[index]) + 3
    return _join(kept, len(lines))[:limit]


def _few(lines: list[str], needles: Sequence[str]) -> list[str]:
    half = _MAX_LINES // 2
    middle = [line for line in lines[half:-half] if _needle_at(line, needles) >= 0 or _EXCEPTION.search(line)]
    return lines[:half] + middle[:half] + lines[-half:]


def _order(lines: list[str], needles: Sequence[str]) -> list[int]:
    exceptions = [index for index, line in enumerate(lines) if _EXCEPTION.search(line)]

    def weight(index: int) -> tuple[int, int]:
        line = lines[index]
        if index == 0:
            return 0, 0
        if exceptions and index == exceptions[-1]:
            return 1, 0
        if _needle_at(line, needles) >= 0 and not _FRAME.match(line):
            return 2, index
        if index in exceptions:
            return 3, -index
        return (_FRAME_WEIGHT, index) if _FRAME.match(line) else (4, index)

    order = sorted((index for index, line in enumerate(lines) if line.strip() not in ("", GAP)), key=weight)
    return [index for index in order if not exceptions or index == 0 or weight(index)[0] < _FRAME_WEIGHT]


def _join(kept: dict[int, str], total: int) -> str:
    out: list[str] = []
    last = -1
    for index in sorted(kept):
        if index > last + 1:
            out.append(GAP)
        out.append(kept[index])
        last = index
    if last < total - 1:
        out.append(GAP)
    return "\n".join(out)
