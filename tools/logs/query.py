"""Syntax tree of the log query language, and what is read off it or off the text. Pure."""

from __future__ import annotations

from dataclasses import dataclass

QUOTES = {'"': '"', "“": "”", "”": "”"}
"""Opening quotes and what closes them; a plain double quote always does."""


@dataclass(frozen=True, slots=True)
class Everything:
    """Matches every event."""


@dataclass(frozen=True, slots=True)
class Term:
    """Text to find. `parts` are joined by wildcards; a quoted term has one part and is taken literally."""

    parts: tuple[str, ...]
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """`key:value`; `literal` is how it was typed, which matches too."""

    key: str
    value: Term
    literal: str


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    item: Node


@dataclass(frozen=True, slots=True)
class And:
    """All of the items."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of the items."""

    items: tuple[Node, ...]


Node = Everything | Term | FieldTerm | Not | And | Or


def needles(node: Node) -> tuple[str, ...]:
    """Return the lower-cased texts whose place in an event is worth showing (negated ones are not)."""
    if isinstance(node, Term):
        longest = max(node.parts, key=len)
        return (longest.lower(),) if longest else ()
    if isinstance(node, FieldTerm):
        return needles(node.value)
    if isinstance(node, And | Or):
        return tuple(text for item in node.items for text in needles(item))
    return ()


def collapse_outside_quotes(text: str) -> str:
    """Trim and collapse whitespace outside double quotes; case and quoted text stay (R47)."""
    out: list[str] = []
    closing = ""
    for char in text:
        if closing:
            closing = "" if char == closing or char == '"' else closing
        elif char in QUOTES:
            closing = QUOTES[char]
        elif char.isspace():
            if out and out[-1] != " ":
                out.append(" ")
            continue
        out.append(char)
    joined = "".join(out)
    return joined if closing else joined.rstrip()
