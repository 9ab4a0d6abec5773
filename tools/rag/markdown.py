"""The little of Markdown that splitting needs: front matter, headings and fenced blocks. Pure, never raises."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAX_FRONT_MATTER_LINES = 100
MAX_HEADING_CHARS = 500
"""What is behind belongs to no title. It also bounds the work: the expressions here look at a line more than once."""
_FENCE = re.compile(r"^[ \t>]*(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>.*)$")
_HEADING = re.compile(r"^ {0,3}(?P<level>#{1,6})(?:[ \t]+(?P<text>.*?))?(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r"^ {0,3}(?:=+|-{3,})[ \t]*$")
_NO_PARAGRAPH = re.compile(r"^\s*(?:[-*+>|#]|\d+[.)]|$)|^(?: {4}|\t)")
_MATTER_KEY = re.compile(r"^[A-Za-z_][\w .-]{0,63}[ \t]{0,20}[:=]", re.MULTILINE)
HEADING_JOINT = " > "
"""Stands between a file's title and the headings of a passage."""
_MATTER_TITLE = re.compile(rf"^title[ \t]{{0,20}}[:=](?P<title>.{{1,{MAX_HEADING_CHARS}}})", re.MULTILINE)
_MARKUP = re.compile(r"\{#[^}]*\}|<[^<>]{1,200}>|!?\[(?P<label>[^\]]*)\]\([^)]*\)|[`*]")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what follows up to the next one: the path of headings down to it, and its text with its heading."""

    path: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block: `language` is the first word after the marks, `text` the block with marks, `inner` without."""

    start: int
    end: int
    language: str
    text: str
    inner: str


def front_matter(text: str) -> tuple[str, str]:
    """Separate YAML (`---`) or TOML (`+++`) front matter from the body; ("", text) where there is none."""
    lines = text.lstrip("\ufeff").split("\n")
    mark = lines[0].rstrip()
    if mark not in ("---", "+++"):
        return "", text
    for number, line in enumerate(lines[1 : MAX_FRONT_MATTER_LINES + 1], start=1):
        if line.rstrip() == mark:
            matter = "\n".join(lines[1:number])
            if matter.strip() and not _MATTER_KEY.search(matter):
                break
            return matter, "\n".join(lines[number + 1 :])
    return "", text


def sections(body: str) -> list[Section]:
    """Split a body at its headings, `#` and underlined ones outside fences. Sections without text are left out."""
    found: list[Section] = []
    path: list[tuple[int, str]] = []
    held: list[str] = []

    def close() -> None:
        text = "\n".join(held).strip("\n")
        if text.strip() and not (path and len([line for line in held if line.strip()]) == _heading_lines(held)):
            found.append(Section(tuple(title for _, title in path), text))

    for heading, lines in _headed(body):
        if heading is not None:
            close()
            level, title = heading
            path = [*(entry for entry in path if entry[0] < level), (level, title)]
            held = []
        held += lines
    close()
    return found


def document_title(matter: str, parts: Sequence[Section], name: str) -> str:
    """Choose a file's title: from the front matter, else its first heading, else its name."""
    match = _MATTER_TITLE.search(matter)
    if match:
        title = match["title"].strip("\"' \t\r")
        if title:
            return title
    return next((part.path[0] for part in parts if part.path), "") or name


def heading_path(title: str, path: Sequence[str]) -> str:
    """Join a file's title and a section's headings by HEADING_JOINT, leaving out a heading that only repeats the title."""
    rest = path[1:] if path and _letters(path[0]) == _letters(title) else path
    return HEADING_JOINT.join([title, *(heading for heading in rest if heading)])


def fences(text: str) -> Iterator[Fence]:
    """Yield the fenced blocks of a text in order; an unclosed one reaches to the end."""
    opened: tuple[int, str, str] | None = None
    inner_start = position = 0
    for line in text.split("\n"):
        end = position + len(line)
        match = _FENCE.match(line)
        if opened is None:
            if match and not (match["mark"][0] == "`" and "`" in match["info"]):
                opened = (position, match["mark"], match["info"])
                inner_start = min(end + 1, len(text))
        elif _closes(match, opened[1]):
            yield _fence(text, opened, end, text[inner_start : max(inner_start, position - 1)])
            opened = None
        position = end + 1
    if opened is not None:
        yield _fence(text, opened, len(text), text[inner_start:])


def _fence(text: str, opened: tuple[int, str, str], end: int, inner: str) -> Fence:
    words = opened[2].strip("{} ").split()
    return Fence(opened[0], end, words[0].lower().lstrip(".") if words else "", text[opened[0] : end], inner)


def _closes(match: re.Match[str] | None, mark: str) -> bool:
    return bool(match and match["mark"].startswith(mark) and not match["info"].strip())


def _headed(body: str) -> Iterator[tuple[tuple[int, str] | None, list[str]]]:
    """Yield (heading or None, lines) per run of lines; a heading comes with its own line or lines."""
    mark = ""
    lines = body.split("\n")
    number = 0
    while number < len(lines):
        line = lines[number]
        fence = _FENCE.match(line)
        if mark:
            mark = "" if _closes(fence, mark) else mark
        elif fence and not (fence["mark"][0] == "`" and "`" in fence["info"]):
            mark = fence["mark"]
        elif (heading := _heading(line)) is not None:
            yield (len(heading["level"]), _plain(heading["text"] or "")), [line]
            number += 1
            continue
        elif _underlined(lines, number):
            yield (1 if "=" in lines[number + 1] else 2, _plain(line[:MAX_HEADING_CHARS])), lines[number : number + 2]
            number += 2
            continue
        yield None, [line]
        number += 1


def _heading(line: str) -> re.Match[str] | None:
    return _HEADING.match(line[:MAX_HEADING_CHARS])


def _underlined(lines: list[str], number: int) -> bool:
    return (
        number + 1 < len(lines)
        and _UNDERLINE.match(lines[number + 1]) is not None
        and _NO_PARAGRAPH.match(lines[number]) is None
        and (number == 0 or not lines[number - 1].strip())
    )


def _heading_lines(held: list[str]) -> int:
    """Count the lines that are the heading itself: one, or two for an underlined one, none for a preamble."""
    if not held:
        return 0
    if _heading(held[0]):
        return 1
    return 2 if len(held) > 1 and _UNDERLINE.match(held[1]) else 0


def _plain(text: str) -> str:
    return _MARKUP.sub(lambda match: match["label"] or "", text).strip()


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()
