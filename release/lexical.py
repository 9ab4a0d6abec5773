"""Lexical containment: are the checkable words of a statement in its evidence? (R91, offline). Pure.

This is no judgement of meaning: it sees that a number, an identifier or a quote was made up, not that a true number was
put into a false sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from release.evidence import EvidenceView
from release.quotes import Haystack, find_quotes

MIN_COVERAGE = 0.7
"""Share of plain words a statement without any checkable token must have in common with its evidence. Measured on the
430 development rows of BEGIN (Wizard of Wikipedia): best balanced accuracy between 0.7 and 0.8."""

_TOKEN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:\-]*")
_WORD = re.compile(r"[a-z0-9]{3,}")
_CJK = re.compile(r"[\u3400-\u9fff]+")
_CAMEL = re.compile(r"[a-z][A-Z]")
_COMMON = frozenset(
    (
        *("the", "and", "are", "was", "were", "been", "its", "that", "this", "for", "with", "from", "you", "they"),
        *("she", "our", "his", "her", "their", "there", "have", "has", "had", "does", "not", "but", "can", "will"),
        *("would", "about", "which", "who", "what", "when", "also", "very", "really", "just", "like"),
    )
)


def checkable_tokens(statement: str, ignored: frozenset[str] = frozenset()) -> list[str]:
    """Return numbers and identifier-like tokens outside quotes, in order, each once; `ignored` ones left out."""
    prose = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", " ", statement, flags=re.DOTALL)
    tokens = (match.group().rstrip("./:-") for match in _TOKEN.finditer(prose))
    return [token for token in dict.fromkeys(tokens) if token not in ignored and _is_checkable(token)]


def _is_checkable(token: str) -> bool:
    capitals = len(token) >= 3 and token.isupper()
    return any(char.isdigit() for char in token) or "_" in token or capitals or _CAMEL.search(token) is not None


def lexically_contained(statement: str, views: Sequence[EvidenceView], ignored: frozenset[str] = frozenset()) -> bool:
    """Say whether every quote, number and identifier of a statement occurs in the results or scopes of `views`.

    A statement that has none of these must share most of its words with them instead.
    """
    if find_quotes(statement).texts or checkable_tokens(statement, ignored):
        return tokens_contained(statement, views, ignored)
    parts = (part for view in views for part in _everything(view).parts)
    return coverage(statement, " ".join(parts)) >= MIN_COVERAGE


def tokens_contained(statement: str, views: Sequence[EvidenceView], ignored: frozenset[str] = frozenset()) -> bool:
    """Say whether every quote, number and identifier of a statement occurs in `views`; true when there is none."""
    sources = [_everything(view) for view in views]
    quotes, tokens = find_quotes(statement), checkable_tokens(statement, ignored)
    if quotes.broken or not all(any(source.holds(text) for source in sources) for text in quotes.texts):
        return False
    return all(any(source.holds(token, ignore_case=True) for source in sources) for token in tokens)


def coverage(statement: str, evidence: str) -> float:
    """Return the share of a statement's words (Chinese: pairs of characters) that the evidence has, 0 to 1."""
    wanted = _words(statement)
    known = set(_words(evidence))
    return sum(word in known for word in wanted) / len(wanted) if wanted else 0.0


def _words(text: str) -> list[str]:
    words = [word for word in _WORD.findall(text.lower()) if word not in _COMMON]
    runs = _CJK.findall(text)
    return words + [run[at : at + 2] for run in runs for at in range(max(len(run) - 1, 1))]


def _everything(view: EvidenceView) -> Haystack:
    """All a model sees of a call: result, scope, and how many items each list of the result has."""
    counts = " ".join(str(count) for count in _lengths(view.agent_result))
    texts = Haystack.of(view.agent_result).parts + Haystack.of(view.scope).parts
    return Haystack((*texts, counts))


def _lengths(value: Any) -> Iterator[int]:
    if isinstance(value, list | tuple):
        yield len(value)
        for item in value:
            yield from _lengths(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _lengths(item)
