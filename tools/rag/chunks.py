"""A Markdown or text file as pieces that can be shown and searched on their own (item 7, R55). Pure.

A piece follows the headings, holds at most `MAX_CONTENT_CHARS` characters and keeps fenced blocks whole where they fit.
The file's check blocks (fences `logs` and `mysql`) stand in every piece of the file as far as they fit, because whoever
finds a runbook by its symptoms needs the checks that belong to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tools.rag.markdown import Section, document_title, fences, front_matter, heading_path, sections
from tools.scope import collapse_whitespace

MAX_CONTENT_CHARS = 1200
"""Characters of one document's content (R55)."""
MIN_SECTION_ROOM = 400
"""Characters a section keeps beside the file's check blocks."""
MAX_TITLE_CHARS = 120
SMALL_SECTION_CHARS = 300
MERGED_SECTION_CHARS = 600
"""A section under the first size joins its neighbour while both stay under the second: a sentence is no answer."""
CHECK_LANGUAGES = frozenset({"logs", "mysql"})
_SLUG_GAP = re.compile(r"[^\w]+")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One searchable piece: `slug` is unique within its file, `text` what is searched, `content` what is shown."""

    slug: str
    title: str
    text: str
    content: str


def split_document(text: str, name: str, *, markdown: bool = True) -> tuple[Chunk, ...]:
    """Split a file's text into chunks; none for a blank file. `name` is its name without folder and extension."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    matter, body = front_matter(text) if markdown else ("", text)
    parts = sections(body) if markdown else [Section((), body.strip("\n"))]
    title = document_title(matter, parts, name)
    checks = [fence.text for fence in fences(body) if fence.language in CHECK_LANGUAGES] if markdown else []
    if len(body.strip()) <= MAX_CONTENT_CHARS:
        pieces = [Section((), body.strip())] if body.strip() else []
    else:
        pieces = _fit(_merged(parts), _room(checks))
    chunks = (
        Chunk(
            slug=_slug(piece.path[-1] if piece.path else ""),
            title=heading_path(title, piece.path)[:MAX_TITLE_CHARS],
            text=piece.text,
            content=_with_checks(piece.text, checks),
        )
        for piece in pieces
    )
    return tuple(_unique(chunks))


def _merged(parts: Iterable[Section]) -> list[Section]:
    merged: list[Section] = []
    for part in parts:
        last = merged[-1] if merged else None
        if last and len(last.text) < SMALL_SECTION_CHARS and len(last.text) + len(part.text) < MERGED_SECTION_CHARS:
            merged[-1] = Section(_joined(last.path, part.path), f"{last.text}\n\n{part.text}")
        else:
            merged.append(part)
    return merged


def _joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return (*first[:-1], f"{first[-1]} / {second[-1]}") if first and second else first or second


def _room(checks: Sequence[str]) -> int:
    """Say how long a section may be so that the file's checks fit beside it."""
    return max(MIN_SECTION_ROOM, MAX_CONTENT_CHARS - sum(len(check) + 2 for check in checks))


def _with_checks(text: str, checks: Sequence[str]) -> str:
    for check in checks:
        if check not in text and len(text) + 2 + len(check) <= MAX_CONTENT_CHARS:
            text = f"{text}\n\n{check}"
    return text


def _fit(parts: Iterable[Section], room: int) -> list[Section]:
    return [Section(part.path, piece) for part in parts for piece in _pieces(part.text, room)]


def _pieces(text: str, room: int) -> Iterator[str]:
    """Pack the blocks of a section into pieces of at most `room` characters; a fence alone may fill a document."""
    held = ""
    for block in _blocks(text, room):
        if held and len(held) + 2 + len(block) > room:
            yield held
            held = ""
        held = f"{held}\n\n{block}" if held else block
    if held.strip():
        yield held


def _blocks(text: str, room: int) -> Iterator[str]:
    """Yield paragraphs and fences; what does not fit is cut between lines, a line only where it must be."""
    position = 0
    for fence in fences(text):
        yield from _paragraphs(text[position : fence.start], room)
        if len(fence.text) <= MAX_CONTENT_CHARS:
            yield fence.text
        else:
            for part in _lines(fence.inner, room - 12):
                yield f"```text\n{part}\n```"
        position = fence.end
    yield from _paragraphs(text[position:], room)


def _paragraphs(text: str, room: int) -> Iterator[str]:
    for paragraph in re.split(r"\n[ \t]*\n", text):
        stripped = paragraph.strip("\n")
        if stripped.strip():
            yield from [stripped] if len(stripped) <= room else _lines(stripped, room)


def _lines(text: str, room: int) -> Iterator[str]:
    held = ""
    for line in text.split("\n"):
        for piece in [line[i : i + room] for i in range(0, len(line), room)] or [""]:
            if held and len(held) + 1 + len(piece) > room:
                yield held
                held = ""
            held = f"{held}\n{piece}" if held else piece
    if held.strip():
        yield held


def _slug(heading: str) -> str:
    return _SLUG_GAP.sub("-", collapse_whitespace(heading).lower()).strip("-")[:48] or "start"


def _unique(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    seen: set[str] = set()
    for chunk in chunks:
        slug, number = chunk.slug, 1
        while slug in seen:
            number += 1
            slug = f"{chunk.slug}-{number}"
        seen.add(slug)
        yield replace(chunk, slug=slug)
