"""The log query language: a tolerant recursive-descent parser that accepts every text (R128). Pure.

    or    := and (OR and)*            OR, or, ||, |
    and   := not ((AND)? not)*        AND, and, &&
    not   := NOT* primary
    primary := "(" or ")" | "phrase" | word | key:value | key:"phrase" | key:(or)

AND binds tighter than OR. What cannot be an operator or a bracket is text: `[ERROR]`, `/api/v1`, `init()`. Operators
without an operand and unbalanced brackets are ignored; an open quote reaches to the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tools.logs.query import QUOTES, And, Everything, FieldTerm, Node, Not, Or, Term

MAX_DEPTH = 40
"""Brackets nested deeper are ignored, so that no query exhausts the stack."""

_KEY = re.compile(r"@?[^\W\d][\w.\-]{0,63}")
_OPERATORS = {"OR": "OR", "or": "OR", "||": "OR", "|": "OR", "AND": "AND", "and": "AND", "&&": "AND", "NOT": "NOT"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # "(" | ")" | "op" | "term" | "key("
    text: str
    node: Node | None = None


def parse_query(text: str) -> Node:
    """Parse any text; never raises. Empty text and a lone `*` match everything."""
    text = text.encode("utf-8", "replace").decode()  # lone surrogates cannot be searched for
    tokens = list(_tokens(text))
    node = _Parser(tokens).parse()
    if node is not None:
        return node
    words = tuple(Term((token.text,)) for token in tokens if token.kind == "op")
    return _join(And, words) or Everything()


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def parse(self) -> Node | None:
        parts = []
        while self.at < len(self.tokens):
            node = self._or(0)
            if node is not None:
                parts.append(node)
            self.at += 1  # a closing bracket that closes nothing
        return _join(And, tuple(parts))

    def _peek(self) -> _Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _or(self, depth: int) -> Node | None:
        items = []
        while True:
            node = self._and(depth)
            if node is not None:
                items.append(node)
            token = self._peek()
            if token is None or token.kind == ")":
                return _join(Or, tuple(items))
            self.at += 1  # OR

    def _and(self, depth: int) -> Node | None:
        items = []
        while (token := self._peek()) is not None and token.kind != ")" and (token.kind, token.text) != ("op", "OR"):
            if token.kind == "op" and token.text == "AND":
                self.at += 1
                continue
            node = self._not(depth)
            if node is not None:
                items.append(node)
        return _join(And, tuple(items))

    def _not(self, depth: int) -> Node | None:
        negated = False
        while (token := self._peek()) is not None and token.kind == "op" and token.text == "NOT":
            negated = not negated
            self.at += 1
        if token is None or token.kind in (")", "op"):
            return None
        node = self._primary(token, depth)
        return Not(node) if negated and node is not None else node

    def _primary(self, token: _Token, depth: int) -> Node | None:
        self.at += 1
        if token.kind == "term":
            return token.node
        if depth >= MAX_DEPTH:
            return None
        node = self._or(depth + 1)
        if self._peek() is not None:
            self.at += 1  # the closing bracket
        return _with_key(token.text, node) if token.kind == "key(" and node is not None else node


def _join(kind: type[And] | type[Or], items: tuple[Node, ...]) -> Node | None:
    if len(items) <= 1:
        return items[0] if items else None
    return kind(items)


def _with_key(key: str, node: Node) -> Node:
    if isinstance(node, Term):
        return _field(key, node)
    if isinstance(node, Not):
        return Not(_with_key(key, node.item))
    if isinstance(node, And | Or):
        return type(node)(tuple(_with_key(key, item) for item in node.items))
    return node


def _field(key: str, value: Term) -> FieldTerm:
    return FieldTerm(key, value, f"{key}:{'*'.join(value.parts)}")


def _tokens(text: str) -> Iterator[_Token]:
    at, depth = 0, 0
    while at < len(text):
        char = text[at]
        if char.isspace():
            at += 1
        elif char == "(":
            depth += 1
            at += 1
            yield _Token("(", "(")
        elif char == ")":
            at += 1
            if depth:
                depth -= 1
                yield _Token(")", ")")
        elif char in QUOTES:
            token, at = _quoted(text, at)
            yield from token
        elif char == "'" and (end := _closing_apostrophe(text, at)) is not None:
            yield _Token("term", text[at : end + 1], Term((text[at + 1 : end],), quoted=True))
            at = end + 1
        else:
            token, at, opened = _word(text, at, depth > 0)
            depth += opened
            yield from token


def _phrase(text: str, at: int) -> tuple[str, int]:
    """Read the phrase whose opening quote is at `at`; returns it and the position after the closing quote."""
    closing = QUOTES[text[at]]
    out: list[str] = []
    at += 1
    while at < len(text):
        char = text[at]
        if char == "\\" and text[at + 1 : at + 2] in ('"', "\\"):
            out.append(text[at + 1])
            at += 2
            continue
        at += 1
        if char in (closing, '"'):
            break
        out.append(char)
    return "".join(out), at


def _quoted(text: str, at: int) -> tuple[list[_Token], int]:
    content, at = _phrase(text, at)
    if text[at : at + 1] in (":", "=") and _KEY.fullmatch(content):  # pasted JSON: "level":"error"
        value, end = _value(text, at + 1)
        if value is not None:
            return [_Token("term", content, _field(content, value))], end
    if not content.strip():
        return [], at
    return [_Token("term", content, Term((content,), quoted=True))], at


def _closing_apostrophe(text: str, at: int) -> int | None:
    """Find the apostrophe that ends a phrase begun at `at`: one before a space, a bracket or the end."""
    end = text.find("'", at + 1)
    while end != -1:
        if end > at + 1 and (end + 1 == len(text) or text[end + 1].isspace() or text[end + 1] == ")"):
            return end
        end = text.find("'", end + 1)
    return None


def _word_end(text: str, at: int, grouped: bool) -> int:
    """Return where the word at `at` ends; brackets inside a word, as in `init()`, belong to it."""
    inner = 0
    while at < len(text):
        char = text[at]
        if char.isspace() or char in QUOTES:
            break
        if char == "\\" and at + 1 < len(text):
            at += 1
        elif char == "(":
            if text[at - 1] == ":":
                break
            inner += 1
        elif char == ")":
            if inner == 0 and grouped:
                break
            inner = max(0, inner - 1)
        at += 1
    return min(at, len(text))


def _word(text: str, at: int, grouped: bool) -> tuple[list[_Token], int, int]:
    end = _word_end(text, at, grouped)
    word = text[at:end]
    if end == at:  # a bracket directly after a colon that follows no key
        return [], at + 1, 0
    if word in _OPERATORS:
        return [_Token("op", _OPERATORS[word])], end, 0
    key, separator = _split_key(word)
    if key and not word[len(key) + 1 :]:
        if separator == ":" and text[end : end + 1] == "(":
            return [_Token("key(", key)], end + 1, 1
        if text[end : end + 1] in QUOTES:
            value, after = _value(text, end)
            if value is not None:
                return [_Token("term", word, _field(key, value))], after, 0
    node = _word_node(word)
    return ([_Token("term", word, node)] if node is not None else []), end, 0


def _split_key(word: str) -> tuple[str, str]:
    match = _KEY.match(word)
    if match is None or word[match.end() : match.end() + 1] not in (":", "="):
        return "", ""
    return match.group(0), word[match.end()]


def _value(text: str, at: int) -> tuple[Term | None, int]:
    if text[at : at + 1] in QUOTES and at < len(text):
        content, end = _phrase(text, at)
        return (Term((content,), quoted=True) if content else None), end
    end = at
    while end < len(text) and not text[end].isspace() and text[end] not in ',)}"':
        end += 1
    return (_term(text[at:end]) if end > at else None), end


def _word_node(word: str) -> Node | None:
    pieces = [piece for piece in word.split("|") if piece]
    if len(pieces) > 1 and "\\|" not in word:  # as in grep -E: a|b
        nodes = tuple(node for piece in pieces if (node := _word_node(piece)) is not None)
        return _join(Or, nodes)
    trimmed = word.rstrip(",;:") if len(word.rstrip(",;:")) > 0 else word
    if trimmed.endswith(")") and trimmed.count(")") > trimmed.count("("):
        trimmed = trimmed[: -(trimmed.count(")") - trimmed.count("("))] or trimmed
    key, _ = _split_key(trimmed)
    value = trimmed[len(key) + 1 :]
    if key and value and not value.startswith(("//", ":", "=")):
        if not value.strip("*"):
            return FieldTerm(key, Term(("", "")), trimmed)
        return FieldTerm(key, _term(value), trimmed)
    if not trimmed.strip("*") or trimmed == "*:*":
        return Everything()
    return _term(trimmed)


_ESCAPED = re.compile(r"\\([()\[\]{}\":*])")
_STAR = "\ue000"
"""Stands for an escaped `*` while wildcards are split."""


def _term(word: str) -> Term:
    unescaped = _ESCAPED.sub(lambda match: _STAR if match.group(1) == "*" else match.group(1), word)
    parts = [part.replace(_STAR, "*") for part in unescaped.split("*")]
    inner = [part for part in parts[1:-1] if part]
    return Term((parts[0], *inner, parts[-1]) if len(parts) > 1 else (parts[0],))
