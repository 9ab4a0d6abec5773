r"""Quotes between backticks, and whether a text occurs verbatim in what a call returned (R89.6). Pure.

A model reads a result as JSON text and writes its answer as JSON again, so a quote may reproduce either the value or
its JSON form (`\"` for a quote, `\n` for a line break, `["svc",503]` for a row). Runs of whitespace count as one space.
Nothing else is forgiven: not case, not an elision, not words put together from two places. A quote that begins or ends
with a digit does not match inside a longer number. A template, where placeholders stand for what varies, is no text that
anything returned: of it only the pieces between its placeholders may be quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from release.contract import AnalysisKind
from release.evidence import EvidenceView
from tools.placeholders import verbatim_pieces

FREE_TEXT_FIELDS = frozenset({"query", "sql", "params"})
"""Fields of a request that hold the model's own words (R43). Their echo in a result is no evidence of anything."""
TEMPLATE_FIELD = "template"
"""Field of a result that holds a text with placeholders."""

_SPACE = re.compile(r"\s+")
_FENCE_LANGUAGE = re.compile(r"^[A-Za-z0-9_+.-]*\n")
_PURE_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Quotes:
    """The quotes of one statement. `broken` is True when a backtick stands alone or encloses nothing."""

    texts: tuple[str, ...]
    broken: bool


def find_quotes(statement: str) -> Quotes:
    """Read the quotes of a statement: a run of n backticks to the next run of the same length, as Markdown does."""
    texts: list[str] = []
    broken = False
    runs = [(match.start(), match.end()) for match in re.finditer(r"`+", statement)]
    at = 0
    while at < len(runs):
        start, end = runs[at]
        close = next((j for j in range(at + 1, len(runs)) if runs[j][1] - runs[j][0] == end - start), None)
        if close is None:
            broken = True
            at += 1
            continue
        text = statement[end : runs[close][0]]
        text = _flat(_FENCE_LANGUAGE.sub("", text) if end - start >= 3 else text)
        if text:
            texts.append(text)
        else:
            broken = True
        at = close + 1
    return Quotes(tuple(texts), broken)


@dataclass(frozen=True, slots=True)
class Haystack:
    """Texts of one call that may be quoted, whitespace flattened. `whole` texts match only as a whole."""

    parts: tuple[str, ...]
    whole: frozenset[str] = frozenset()

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Haystack:
        """Take JSON data in both forms: its strings as they are, and its JSON text."""
        return cls(_texts(value))

    def holds(self, text: str, *, ignore_case: bool = False) -> bool:
        """Say whether `text` occurs verbatim."""
        needle = _flat(text)
        if not needle:
            return False
        if ignore_case:
            needle = needle.lower()
        if needle in self.whole:
            return True
        return any(_occurs(needle, part.lower() if ignore_case else part) for part in self.parts)


def haystack(view: EvidenceView, kind: AnalysisKind) -> Haystack:
    """Collect what an analysis of this kind may quote of a call.

    That is its `agent_result`, without the echo of the model's own request. A NEGATIVE_OBSERVATION may quote the whole
    scope it searched (R71). Other kinds may name the scope's topic or datasource, which the catalogue gave.
    """
    if kind is AnalysisKind.NEGATIVE_OBSERVATION:
        return Haystack(_texts(view.agent_result) + _texts(view.scope))
    result = {
        key: value for key, value in view.agent_result.items() if not (key in FREE_TEXT_FIELDS and key in view.scope)
    }
    names = {
        value for key, value in view.scope.items() if isinstance(value, str) and value and key not in FREE_TEXT_FIELDS
    }
    return Haystack(_texts(result), frozenset(_flat(name) for name in names))


def _texts(value: Mapping[str, Any]) -> tuple[str, ...]:
    split = _split_templates(value)
    forms = [
        json.dumps(split, ensure_ascii=False, separators=separators, default=str)
        for separators in ((",", ":"), (", ", ": "))
    ]
    return tuple(_flat(text) for text in dict.fromkeys([*_leaves(split), *forms]) if text)


def _split_templates(value: Any) -> Any:
    """Return JSON data with every template that has placeholders as a list of the pieces between them."""
    if isinstance(value, Mapping):
        return {key: _pieces(item) if key == TEMPLATE_FIELD else _split_templates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_split_templates(item) for item in value]
    return value


def _pieces(item: Any) -> Any:
    if not isinstance(item, str):
        return _split_templates(item)
    pieces = verbatim_pieces(item)
    return item if pieces == [item] else pieces


def _leaves(value: Any) -> Iterator[str]:
    """Yield the strings of JSON data as they are; numbers, keys and structure are in its JSON form."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _each(value.values())
    elif isinstance(value, list | tuple):
        yield from _each(value)


def _each(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        yield from _leaves(value)


def _flat(text: str) -> str:
    return _SPACE.sub(" ", text).strip()


def _occurs(needle: str, text: str) -> bool:
    at = text.find(needle)
    while at >= 0:
        if not _inside_number(needle, text, at):
            return True
        at = text.find(needle, at + 1)
    return False


def _inside_number(needle: str, text: str, at: int) -> bool:
    """Say whether the match at `at` is a part of a longer number, as `50` is in 500 and `5` in 0.5."""
    before, after = text[max(0, at - 2) : at], text[at + len(needle) : at + len(needle) + 2]
    if needle[0].isdigit() and before[-1:].isdigit():
        return True
    if needle[-1].isdigit() and after[:1].isdigit():
        return True
    if not _PURE_NUMBER.fullmatch(needle):
        return False
    decimal_before = before[-1:] == "." and before[:1].isdigit() and len(before) == 2
    return decimal_before or (after[:1] == "." and after[1:].isdigit())
