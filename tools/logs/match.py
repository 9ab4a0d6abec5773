"""Matching a parsed query against events, and the prefilter that finds candidates in raw bytes. Pure.

Plain words match as `grep -i` does, anywhere in the event, also inside longer words; a word of digits only matches
whole numbers (`500` is not in `15003`). Quoted text is literal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import re2

from tools.logs.events import EventView, value_text
from tools.logs.keys import FILE_KEY
from tools.logs.levels import canonical_level, raw_patterns
from tools.logs.query import And, Everything, FieldTerm, Node, Not, Or, Term

Predicate = Callable[[EventView], bool]
LEVEL_KEYS = frozenset({"level", "severity", "loglevel", "lvl", "log.level", "levelname"})
_DERIVED_KEYS = frozenset({"service", "instance"})
_MESSAGE_KEYS = frozenset({"message", "msg"})


def compile_predicate(node: Node) -> Predicate:
    """Turn a query into a function from event to bool."""
    if isinstance(node, Everything):
        return lambda event: True
    if isinstance(node, Term):
        return _contains(node)
    if isinstance(node, FieldTerm):
        return _field(node)
    if isinstance(node, Not):
        inner = compile_predicate(node.item)
        return lambda event: not inner(event)
    parts = tuple(compile_predicate(item) for item in node.items)
    if isinstance(node, And):
        return lambda event: all(part(event) for part in parts)
    return lambda event: any(part(event) for part in parts)


def _plain(term: Term) -> str | None:
    """Return the lower-cased literal when the term has no inner wildcard and no whole-number rule, else None."""
    inner = [part for part in term.parts if part]
    if len(inner) > 1 or (not term.quoted and inner and is_whole_number(term)):
        return None
    return inner[0].lower() if inner else ""


def is_whole_number(term: Term) -> bool:
    """Say whether the term is written in digits only (with or without wildcards), so that it matches whole numbers."""
    return not term.quoted and all(part.isascii() and (part.isdigit() or not part) for part in term.parts)


def _text_pattern(term: Term) -> str:
    """Write the term as an RE2 pattern over lower-cased text; bounded by non-digits where it is a whole number."""
    body = r"\S*".join(re2.escape(part.lower()) for part in term.parts)
    if not is_whole_number(term):
        return body
    return ("" if not term.parts[0] else r"(?:^|[^0-9])") + body + ("" if not term.parts[-1] else r"(?:[^0-9]|$)")


def _contains(term: Term) -> Predicate:
    literal = _plain(term)
    if literal is not None:
        return lambda event: literal in event.search_text
    compiled = re2.compile(_text_pattern(term).encode())
    return lambda event: compiled.search(event.search_bytes) is not None


def value_matcher(term: Term) -> Callable[[str], bool]:
    """Return a function that matches a value on its own: with wildcards the whole value, else a part of it."""
    if len(term.parts) > 1:
        whole = re2.compile((r"(?s)" + r".*".join(re2.escape(part.lower()) for part in term.parts)).encode())
        return lambda text: whole.fullmatch(text.lower().encode("utf-8", "replace")) is not None
    literal = _plain(term)
    if literal is not None:
        return lambda text: literal in text.lower()
    part = re2.compile(_text_pattern(term).encode())
    return lambda text: part.search(text.lower().encode("utf-8", "replace")) is not None


def _field(node: FieldTerm) -> Predicate:
    key, matches = node.key.lower(), value_matcher(node.value)
    level = canonical_level(node.value.parts[0]) if key in LEVEL_KEYS and len(node.value.parts) == 1 else None
    literal = node.literal.lower()
    pair = re2.compile(_pair_pattern(key, node.value).encode())

    def predicate(event: EventView) -> bool:
        if key in LEVEL_KEYS and event.level is not None:
            return event.level == level if level else matches(event.level)
        if event.labels and key in event.labels:  # what the store says settles it
            return matches(event.labels[key])
        if any(matches(value_text(value)) for value in _values(event, key)):
            return True
        if literal in event.search_text:
            return True
        return not event.fields and pair.search(event.search_bytes) is not None

    return predicate


def _values(event: EventView, key: str) -> list[Any]:
    found = [value for name, value in event.fields.items() if name == key or name.endswith("." + key)]
    if key in _DERIVED_KEYS:
        derived = event.service if key == "service" else event.instance
        found += [derived] if derived else []
    if key in _MESSAGE_KEYS:
        found.append(event.message)
    return found


def _pair_pattern(key: str, value: Term) -> str:
    """Write `key=value`, `key: value` and `"key":"value"` in plain text as an RE2 pattern over lower-cased text."""
    body = r"\S*".join(re2.escape(part.lower()) for part in value.parts)
    if len(value.parts) > 1:  # the whole value must fit the wildcards
        lead = "[\"']?"
        tail = "" if not value.parts[-1] else r"(?:[\s,;&\"']|$)"
    elif is_whole_number(value):
        lead = r"""(?:(?:[^\s,;&]*?[^\s,;&0-9])?|"(?:[^"\n]*?[^"\n0-9])?|'(?:[^'\n]*?[^'\n0-9])?)"""
        tail = r"(?:[^0-9]|$)"
    else:
        lead, tail = r"""(?:[^\s,;&]*?|"[^"\n]*?|'[^'\n]*?)""", ""
    return rf"(?:^|[^\w.]){re2.escape(key)}[\"']?\s?[:=]\s{{0,3}}{lead}{body}{tail}"


def prefilter(node: Node) -> Any:
    """Return an RE2 pattern over raw bytes that hits inside every matching event, or None when none can."""
    pattern = _prefilter(node)
    if pattern is None:
        return None
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes as they are: files hold broken UTF-8 too
    options.case_sensitive = False
    return re2.compile(pattern, options)


def _prefilter(node: Node) -> bytes | None:
    if isinstance(node, Term):
        return _raw_literal(max(node.parts, key=len))
    if isinstance(node, FieldTerm):
        if node.key.lower() in LEVEL_KEYS:
            return level_pattern(node.value)
        # A file's own name stands in no line of it.
        return None if node.key.lower() == FILE_KEY else _raw_literal(max(node.value.parts, key=len))
    if isinstance(node, And):
        found = [pattern for item in node.items if (pattern := _prefilter(item)) is not None]
        return max(found, key=len, default=None)
    if isinstance(node, Or):
        parts = [_prefilter(item) for item in node.items]
        known = [part for part in parts if part is not None]
        return b"(?:" + b"|".join(known) + b")" if len(known) == len(parts) else None
    return None


def level_pattern(value: Term) -> bytes | None:
    """Hit whatever may say that an event has a level: its names, numbers and signs."""
    level = canonical_level(value.parts[0]) if len(value.parts) == 1 else None
    if level is None:
        return None
    return b"(?:" + b"|".join(raw_patterns(level)) + b")"


UNCHANGED_RUN = re.compile(r"[^\s\"'\\/<>&\x00-\x1f]+")
"""What JSON and colour codes leave as it is."""


def _raw_literal(text: str) -> bytes | None:
    """Write the longest stretch that JSON or colour codes do not respell; other characters also as JSON escapes."""
    runs = UNCHANGED_RUN.findall(text)
    if not runs:
        return None
    return b"".join(_raw_char(char) for char in max(runs, key=len))


def _raw_char(char: str) -> bytes:
    if char.isascii():
        return re.escape(char).encode()
    forms = {form.encode("utf-8", "replace") for form in (char, char.lower(), char.upper())}
    forms |= {_json_escape(form) for form in (char, char.lower(), char.upper())}
    return b"(?:" + b"|".join(b"".join(rb"\x%02x" % byte for byte in form) for form in sorted(forms)) + b")"


def _json_escape(text: str) -> bytes:
    units = text.encode("utf-16-be", "surrogatepass")
    return b"".join(b"\\u%02x%02x" % (units[at], units[at + 1]) for at in range(0, len(units), 2))
