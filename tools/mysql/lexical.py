"""The lexical gate (R122): splits a text into tokens that every reader splits alike, or refuses it. Pure.

The grammar is deliberately smaller than MySQL's: wherever readers are known to differ (comments, double quotes,
backslashes, `1.e(`, glued words) the text is refused instead of interpreted.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import Enum

from tools.mysql.contract import MAX_SQL_CHARS, GateRule


class Kind(Enum):
    """Kinds of token."""

    WORD = "word"
    NAME = "name"
    STRING = "string"
    NUMBER = "number"
    PARAM = "param"
    OP = "op"


@dataclass(frozen=True, slots=True)
class Token:
    """One token and its place: `text` is `sql[start:end]`."""

    kind: Kind
    text: str
    start: int
    end: int

    def is_op(self, text: str) -> bool:
        """Say whether this is the operator or punctuation `text`."""
        return self.kind is Kind.OP and self.text == text

    @property
    def upper(self) -> str:
        """The word in upper case; empty for every other kind."""
        return self.text.upper() if self.kind is Kind.WORD else ""


class GateRefusal(Exception):
    """A text broke a rule; carries only the rule."""

    def __init__(self, rule: GateRule) -> None:
        super().__init__(rule.value)
        self.rule = rule


_SPACE = re.compile(r"[ \t\n]+")
_TOKEN = re.compile(
    r"(?P<string>'(?:[^'\\]|'')*+')"
    r"|(?P<name>`[^`\\]++`)"
    r"|(?P<number>[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*+)"
    r"|(?P<param>\?)"
    r"|(?P<op><=>|<=|>=|<>|!=|<<|>>|&&|[()+\-*/%=<>&^~|,.;])"
)
_MARKERS = (
    ("--", GateRule.COMMENT),
    ("#", GateRule.COMMENT),
    ("/*", GateRule.COMMENT),
    ("*/", GateRule.COMMENT),
    ("%s", GateRule.DRIVER_PLACEHOLDER),
    ("||", GateRule.OPERATOR),
    ("->", GateRule.OPERATOR),
    ("==", GateRule.OPERATOR),
    ("**", GateRule.OPERATOR),
)
_VALUES = frozenset({Kind.WORD, Kind.NAME, Kind.STRING, Kind.NUMBER, Kind.PARAM})


def tokenize(sql: str) -> tuple[Token, ...]:
    """Split `sql` into tokens, without the one trailing `;`. Raises GateRefusal naming the first broken rule."""
    if len(sql) > MAX_SQL_CHARS:
        raise GateRefusal(GateRule.TOO_LONG)
    if not all(_printable(char) for char in sql):
        raise GateRefusal(GateRule.CONTROL_CHARACTER)
    tokens: list[Token] = []
    position = _after_space(sql, 0)
    while position < len(sql):
        token = _next_token(sql, position)
        _check_neighbour(tokens[-1] if tokens else None, token)
        tokens.append(token)
        position = _after_space(sql, token.end)
    return _one_statement(tokens)


def _printable(char: str) -> bool:
    # Zs covers the wide spaces of Chinese text; outside literals they fall to NON_ASCII.
    return char in "\t\n" or char.isprintable() or unicodedata.category(char) == "Zs"


def _after_space(sql: str, position: int) -> int:
    match = _SPACE.match(sql, position)
    return match.end() if match else position


def _next_token(sql: str, position: int) -> Token:
    for marker, rule in _MARKERS:
        if sql.startswith(marker, position):
            raise GateRefusal(rule)
    match = _TOKEN.match(sql, position)
    if match is None or match.lastgroup is None:
        raise GateRefusal(_why_no_token(sql, position))
    token = Token(Kind(match.lastgroup), match.group(), match.start(), match.end())
    following = sql[token.end : token.end + 1]
    if token.kind is Kind.NUMBER and following.isascii() and (following.isalnum() or following in ("_", ".", "$")):
        raise GateRefusal(GateRule.NUMBER_FORMAT)
    if token.is_op(".") and following.isdigit():
        raise GateRefusal(GateRule.NUMBER_FORMAT)
    return token


def _why_no_token(sql: str, position: int) -> GateRule:
    char = sql[position]
    if not char.isascii():
        return GateRule.NON_ASCII
    if char in "'`":
        body = sql[position + 1 :]
        if char == "`" and body.startswith("`"):
            return GateRule.NAME_FORMAT
        closing = body.replace("''", "  ").find(char) if char == "'" else body.find(char)
        backslash = body.find("\\")
        return GateRule.BACKSLASH if backslash >= 0 and (closing < 0 or backslash < closing) else GateRule.UNTERMINATED
    return {'"': GateRule.DOUBLE_QUOTE, "\\": GateRule.BACKSLASH, "!": GateRule.OPERATOR}.get(
        char, GateRule.FORBIDDEN_CHARACTER
    )


def _check_neighbour(previous: Token | None, token: Token) -> None:
    touching = previous is not None and previous.end == token.start
    if token.is_op("."):
        if previous is None or not touching or previous.kind not in (Kind.WORD, Kind.NAME):
            raise GateRefusal(GateRule.NAME_FORMAT)
        return
    if previous is None:
        return
    if previous.is_op("."):
        if not touching or not (token.kind in (Kind.WORD, Kind.NAME) or token.is_op("*")):
            raise GateRefusal(GateRule.NAME_FORMAT)
        return
    if previous.kind in _VALUES and token.kind in _VALUES and touching:
        raise GateRefusal(_touching_rule(previous, token))


def _touching_rule(previous: Token, token: Token) -> GateRule:
    if previous.kind is Kind.NAME and token.kind is Kind.NAME:
        return GateRule.NAME_FORMAT
    if previous.kind is Kind.WORD and token.kind is Kind.STRING:
        return GateRule.LITERAL_POSITION
    if Kind.PARAM in (previous.kind, token.kind):
        return GateRule.PLACEHOLDER_POSITION
    return GateRule.SPACING


def _one_statement(tokens: list[Token]) -> tuple[Token, ...]:
    if tokens and tokens[-1].is_op(";"):
        tokens = tokens[:-1]
    if not tokens:
        raise GateRefusal(GateRule.EMPTY)
    if any(token.is_op(";") for token in tokens):
        raise GateRefusal(GateRule.MULTIPLE_STATEMENTS)
    if tokens[-1].is_op("."):
        raise GateRefusal(GateRule.NAME_FORMAT)
    return tuple(tokens)
