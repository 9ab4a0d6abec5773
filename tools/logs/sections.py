"""Headings of indented lines in text without times (descriptions, configuration): which section a line belongs to."""

from __future__ import annotations

import re

from tools.logs.events import clean
from tools.logs.excerpt import GAP
from tools.masking import mask_text

MAX_SECTION_CHARS = 120
_MAX_HEADING_BYTES = 200
"""A longer line is no heading."""
_MAX_HEADING_CHARS = 60
_MAX_LINES = 400
_INDENT = re.compile(rb"([ \t]*)(- )?")

Headings = tuple[bytes, ...]


class Sections:
    """Headings above the lines of one block. Where lines are asked for in order, each line is looked at about once."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._known: dict[int, tuple[int, Headings]] = {}

    def above(self, line: int) -> Headings:
        """Return the less indented lines above the line that starts at `line`, outermost first; as far as 400 lines up.

        An item of a list (`- name: x`) counts as indented deeper than the line that introduces the list.
        """
        depth = own = _depth(self._data, line) or 0
        found: list[bytes] = []
        at = line
        for _ in range(_MAX_LINES):
            if depth == 0 or at == 0:
                break
            at = self._data.rfind(b"\n", 0, at - 1) + 1
            known = self._known.get(at)
            here = known[0] if known else _depth(self._data, at)
            if here is None or here > depth:
                continue
            if here < depth:
                found.append(self._heading(at))
                depth = here
            if known:
                found.extend(reversed(known[1]))
                break
        headings = tuple(text for text in reversed(found) if text)
        self._known[line] = own, headings
        return headings

    def _heading(self, line: int) -> bytes:
        end = self._data.find(b"\n", line)
        text = self._data[line : len(self._data) if end < 0 else end].strip()
        return text if len(text) <= _MAX_HEADING_BYTES else b""


def _depth(data: bytes, line: int) -> int | None:
    """Return the indentation of a line in characters; None for an empty line."""
    match = _INDENT.match(data, line)
    if match is None or data[match.end() : match.end() + 1] in (b"", b"\n", b"\r"):
        return None
    return len(match[1]) + bool(match[2])


def section_text(headings: Headings) -> str:
    """Write headings as `outer / inner`, secrets masked; the outermost go first when it gets too long."""
    texts = [_short(mask_text(clean(heading.decode("utf-8", "replace")))) for heading in headings]
    texts = [text for text in texts if text]
    while len(texts) > 1 and len(" / ".join(texts)) > MAX_SECTION_CHARS:
        texts.pop(0)
    return " / ".join(texts)


def _short(text: str) -> str:
    flat = " ".join(text.split()).rstrip(" :{[(").removeprefix("- ")
    return flat if len(flat) <= _MAX_HEADING_CHARS else flat[: _MAX_HEADING_CHARS - 1].rstrip() + GAP
