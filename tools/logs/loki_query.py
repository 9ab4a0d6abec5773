"""The log query language as LogQL: a stream selector with line and label filters. Pure.

A pipeline can only narrow down, filter after filter; it cannot say "in the line or in a label". So a query becomes the
filters that every match passes (`need`), and for NOT those that only matches pass (`enough`). What comes back is matched
again on this side.

A label settles its key: where a stream has the label `app`, `app:x` is about that label and not about the text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tools.logs.levels_wire import LEVELS, meant_levels, numbers, spellings
from tools.logs.loki_labels import Labels
from tools.logs.match import LEVEL_KEYS, UNCHANGED_RUN, is_whole_number, level_pattern
from tools.logs.query import And, FieldTerm, Node, Not, Or, Term

_MAX_RUNS = 4
_MAX_FILTERS = 16


@dataclass(frozen=True, slots=True)
class Line:
    """A regular expression the line must match, or must not."""

    pattern: str
    wanted: bool = True


@dataclass(frozen=True, slots=True)
class Label:
    """A comparison of one label; a label that is absent is empty."""

    name: str
    operator: str
    value: str


@dataclass(frozen=True, slots=True)
class Logic:
    """Comparisons joined by `and` or `or`."""

    word: str
    items: tuple[Label | Logic, ...]


Filter = Line | Label | Logic


def log_query(selector: str, node: Node, labels: Labels) -> str:
    """Write the LogQL query that finds every matching line."""
    filters = _Translator(labels).need(node)[:_MAX_FILTERS]
    lines = [item for item in filters if isinstance(item, Line)]
    logic = [item for item in filters if not isinstance(item, Line)]
    parts = [selector, *(f"{'|~' if item.wanted else '!~'} {_string(item.pattern)}" for item in lines)]
    return " ".join((*parts, *(f"| {_written(item)}" for item in logic)))


def _written(item: Label | Logic) -> str:
    if isinstance(item, Label):
        return f"{item.name}{item.operator}{_string(item.value)}"
    return "(" + f" {item.word} ".join(_written(part) for part in item.items) + ")"


def _string(text: str) -> str:
    """Write a string literal; JSON's escapes are among those of LogQL."""
    return json.dumps(text, ensure_ascii=False)


def _join(word: str, items: Sequence[Label | Logic]) -> Label | Logic:
    return items[0] if len(items) == 1 else Logic(word, tuple(items))


_OPPOSITE = {"=~": "!~", "!~": "=~", "=": "!=", "!=": "="}


def _negated(item: Filter) -> Filter:
    if isinstance(item, Line):
        return Line(item.pattern, not item.wanted)
    return _negated_logic(item)


def _negated_logic(item: Label | Logic) -> Label | Logic:
    if isinstance(item, Label):
        return Label(item.name, _OPPOSITE[item.operator], item.value)
    return Logic("and" if item.word == "or" else "or", tuple(_negated_logic(part) for part in item.items))


@dataclass(frozen=True, slots=True)
class _Translator:
    labels: Labels

    def need(self, node: Node) -> list[Filter]:
        """Return filters that every match passes."""
        if isinstance(node, Term):
            return list(_lines(node))
        if isinstance(node, FieldTerm):
            return self._field(node)
        if isinstance(node, Not):
            return [_negated(item) for item in self.enough(node.item)]
        if isinstance(node, And):
            return [item for part in node.items for item in self.need(part)]
        if isinstance(node, Or):
            return self._either([self.need(part) for part in node.items])
        return []

    def _either(self, parts: list[list[Filter]]) -> list[Filter]:
        """Of alternatives, each with its filters, only what all of them have in one kind can be said."""
        lines = [[item.pattern for item in part if isinstance(item, Line) and item.wanted] for part in parts]
        logic = [[item for item in part if not isinstance(item, Line)] for part in parts]
        said: list[Filter] = []
        if all(lines):
            said.append(Line("|".join(f"(?:{max(patterns, key=len)})" for patterns in lines)))
        if all(logic):
            said.append(_join("or", [items[0] for items in logic]))
        return said

    def enough(self, node: Node) -> list[Filter]:
        """Return filters each of which only matches pass."""
        if isinstance(node, Term):
            return [Line(_told(node.parts[0]))] if _is_word(node) else []
        if isinstance(node, Or):
            return [item for part in node.items for item in self.enough(part)]
        if not isinstance(node, FieldTerm):
            return []
        key = node.key.lower()
        names = self._names(key)
        if key in LEVEL_KEYS:
            levels = meant_levels(node.value)
            return [_first(names, _level_regex(levels), "!~", _level_regex(LEVELS))] if levels and names else []
        return [_first(names, _value_regex(node.value), "=", "")] if names else []

    def _names(self, key: str) -> tuple[str, ...]:
        if key in LEVEL_KEYS:
            return self.labels.level
        if key in ("service", "instance"):
            return self.labels.service if key == "service" else self.labels.instance
        return (self.labels.by_key[key],) if key in self.labels.by_key else ()

    def _field(self, node: FieldTerm) -> list[Filter]:
        key = node.key.lower()
        names = self._names(key)
        if key in LEVEL_KEYS:
            return self._level(names, node.value)
        if names:
            hits: list[Label | Logic] = [Label(name, "=~", _value_regex(node.value)) for name in names]
            return [_join("or", [*hits, _join("and", [Label(name, "=", "") for name in names])])]
        if not any(node.value.parts):
            return list(_lines(Term((node.key.rsplit(".", 1)[-1],), quoted=True)))
        return list(_lines(node.value))

    def _level(self, names: tuple[str, ...], value: Term) -> list[Filter]:
        levels = meant_levels(value)
        if not names:
            pattern = level_pattern(value)
            return [Line(f"(?i){pattern.decode()}")] if pattern is not None else []
        untold = _join("and", [Label(name, "!~", _level_regex(LEVELS)) for name in names])
        return [_join("or", [*(Label(name, "=~", _level_regex(levels)) for name in names if levels), untold])]


def _first(names: tuple[str, ...], regex: str, operator: str, passed_over: str) -> Label | Logic:
    """Say that the first label that counts matches: those before it compare with `passed_over`."""
    ways: list[Label | Logic] = []
    for at, name in enumerate(names):
        before = [Label(earlier, operator, passed_over) for earlier in names[:at]]
        ways.append(_join("and", [*before, Label(name, "=~", regex)]))
    return _join("or", ways)


def _level_regex(levels: tuple[str, ...]) -> str:
    return "(?i)(?:" + "|".join((*spellings(levels), *numbers(levels))) + ")"


def _value_regex(value: Term) -> str:
    """Write a value for a whole label: with wildcards as it is, else as a part of it."""
    body = ".*".join(_escaped(part) for part in value.parts)
    if len(value.parts) > 1:
        return f"(?is){body}"
    if is_whole_number(value):
        return f"(?s)(?:.*[^0-9])?{body}(?:[^0-9].*)?"
    return f"(?is).*{body}.*"


def _lines(term: Term) -> tuple[Line, ...]:
    """Write the stretches of a term that stand in the raw line whatever encodes it."""
    if is_whole_number(term) and len(term.parts) == 1:
        return (Line(f"(?:^|[^0-9]){term.parts[0]}(?:[^0-9]|$)"),)
    runs = dict.fromkeys(run for part in term.parts for run in UNCHANGED_RUN.findall(part))
    kept = sorted(runs, key=len, reverse=True)[:_MAX_RUNS]
    return tuple(Line("(?i)" + "".join(_char(char) for char in run)) for run in kept)


def _char(char: str) -> str:
    """Write a character; beyond ASCII also as a JSON escape."""
    if char.isascii():
        return _escaped(char)
    forms = dict.fromkeys((char, char.lower(), char.upper()))
    return "(?:" + "|".join((*forms, *(_json_escape(form) for form in forms))) + ")"


def _json_escape(text: str) -> str:
    return json.dumps(text)[1:-1].replace("\\", "\\\\")


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char.isascii() and not char.isalnum() and char not in "_ " else char for char in text)


def _is_word(term: Term) -> bool:
    text = term.parts[0]
    word = len(term.parts) == 1 and text.isascii() and text.isalnum() and not text.isdigit()
    return word and text.lower() not in "null"


def _told(word: str) -> str:
    """Write a word that is no part of a JSON key: keys without a value (`"error": null`) are not searched."""
    return rf'(?i){word}[^"]*(?:"\s*(?:[^:\s]|$)|$)'
