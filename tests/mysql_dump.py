"""Splits a MySQL dump into statements, as the mysql client does: DELIMITER lines, quotes, comments."""

from __future__ import annotations

import re
from collections.abc import Iterator

_PIECE = re.compile(
    r"""'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*"|`[^`]*`|/\*.*?\*/|(?:--[ \t][^\n]*|--\n|\#[^\n]*)|[^'"`/\-\#;$\n]+|.|\n""",
    re.DOTALL,
)
_DELIMITER = re.compile(r"[ \t]*DELIMITER[ \t]+(\S+)[ \t]*(?:\n|$)", re.IGNORECASE)


def statements(text: str) -> Iterator[str]:
    """Yield the statements of a dump in order; comments that a server would run (`/*!`) stay."""
    delimiter, position, current = ";", 0, ""
    while position < len(text):
        fresh_line = position == 0 or text[position - 1] == "\n"
        match = _DELIMITER.match(text, position) if fresh_line else None
        if match:
            delimiter, position = match.group(1), match.end()
            continue
        if text.startswith(delimiter, position):
            if current.strip():
                yield current.strip()
            current, position = "", position + len(delimiter)
            continue
        piece = _PIECE.match(text, position)
        assert piece is not None
        found = piece.group()
        cut = (
            found.find(delimiter)
            if delimiter not in (";", "$$") and not found.startswith(("'", '"', "`", "/*"))
            else -1
        )
        found = found[:cut] if cut > 0 else found
        position += len(found)
        if not found.startswith(("--", "#")) and not (found.startswith("/*") and not found.startswith("/*!")):
            current += found
    if current.strip():
        yield current.strip()
