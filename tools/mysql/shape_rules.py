"""Rules over the order of tokens (R123): what the parser forgives and the server does not. Pure.

The parser is lenient (`SELECT a, FROM t`, clauses out of order). A text that the server would refuse is refused here, so
that a verdict of the gate means the same before and after the text is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from tools.mysql.contract import GateRule
from tools.mysql.functions import WINDOW_FUNCTIONS
from tools.mysql.lexical import GateRefusal, Kind, Token

_CLAUSES = {"FROM": 1, "WHERE": 2, "GROUP": 3, "HAVING": 4, "ORDER": 5, "LIMIT": 6}
_OPENERS = frozenset(
    {
        "SELECT",
        "FROM",
        "WHERE",
        "ON",
        "AND",
        "OR",
        "XOR",
        "NOT",
        "IN",
        "LIKE",
        "REGEXP",
        "RLIKE",
        "BETWEEN",
        "BY",
        "HAVING",
    }
    | {"LIMIT", "UNION", "JOIN", "AS", "USING", "IS", "DIV", "MOD", "CASE", "WHEN", "THEN", "ELSE", "EXISTS", "WITH"}
    | {"DISTINCT", "INTERVAL", "GROUP", "ORDER", "INNER", "CROSS", "NATURAL", "OUTER", "ALL"}
)
"""Reserved words that something must follow."""

_NOT_AFTER_OPENER = frozenset({*_CLAUSES, "UNION", "ON", "USING", "AS"})
_INFIX = frozenset({"AND", "OR", "XOR", "LIKE", "REGEXP", "RLIKE", "DIV", "BETWEEN", "IN", "IS", "UNION"})
_NEGATED = frozenset({"LIKE", "REGEXP", "RLIKE", "BETWEEN", "IN"})
_AFTER_IS = frozenset({"NULL", "NOT", "TRUE", "FALSE", "UNKNOWN"})
_WITHOUT_ARGUMENTS = frozenset(
    {"NOW", "CURDATE", "CURTIME", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"}
    | {"UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP", "UNIX_TIMESTAMP", "PI", "ROW_NUMBER", "RANK", "DENSE_RANK"}
    | {"PERCENT_RANK", "CUME_DIST", "JSON_OBJECT", "JSON_ARRAY", "OVER", "AS"}
)
_FOLLOWED_BY_PAREN = frozenset({"EXISTS"})
_PAIRS = frozenset({("ASC", "DESC"), ("DESC", "ASC"), ("NULLS", "FIRST"), ("NULLS", "LAST"), ("DISTINCT", "ALL")})


def check_shape(tokens: Sequence[Token]) -> None:
    """Refuse dangling commas and keywords, empty parentheses, clauses out of order. Raises GateRefusal."""
    if not _well_shaped(tokens):
        raise GateRefusal(GateRule.PARSE_ERROR)


def _well_shaped(tokens: Sequence[Token]) -> bool:
    words = [_keyword(tokens, index) for index in range(len(tokens))]
    return (
        all(_step_fits(tokens, words, index) for index in range(len(tokens)))
        and _clauses_in_order(tokens, words)
        and words.count("WHEN") == words.count("THEN")
        and all(_has_window(tokens, index) for index, word in enumerate(words) if word in WINDOW_FUNCTIONS)
    )


def _keyword(tokens: Sequence[Token], index: int) -> str:
    """The word in upper case where it can be a keyword, else empty: names stand beside a dot."""
    beside = [tokens[place] for place in (index - 1, index + 1) if 0 <= place < len(tokens)]
    return "" if any(token.is_op(".") for token in beside) else tokens[index].upper


def _step_fits(tokens: Sequence[Token], words: Sequence[str], index: int) -> bool:
    token, word = tokens[index], words[index]
    last = index + 1 == len(tokens)
    after = None if last else tokens[index + 1]
    next_word = "" if last else words[index + 1]
    closing = after is None or after.is_op(")") or after.is_op(",")
    if token.kind is Kind.OP:
        return _operator_fits(tokens, words, index, closing or next_word in _NOT_AFTER_OPENER)
    if word in ("MOD", "ALL") and after is not None and after.is_op("("):
        return True
    if word in _OPENERS and (closing or next_word in _NOT_AFTER_OPENER):
        return False
    if word in _INFIX and not _has_left_side(tokens, words, index):
        return False
    if word == "IS" and next_word not in _AFTER_IS:
        return False
    if word == "INTERVAL" and after is not None and after.kind in (Kind.STRING, Kind.NUMBER):
        return index + 2 < len(tokens) and bool(tokens[index + 2].upper)
    if word in _FOLLOWED_BY_PAREN and (after is None or not after.is_op("(")):
        return False
    if word == "OVER" and index and tokens[index - 1].is_op(")") and (closing or next_word in _NOT_AFTER_OPENER):
        return False
    return (word, next_word) not in _PAIRS


def _has_left_side(tokens: Sequence[Token], words: Sequence[str], index: int) -> bool:
    """Say whether something stands before an infix word that it can join to what follows."""
    if index == 0:
        return False
    before = words[index - 1]
    if before == "NOT":
        return words[index] in _NEGATED
    return before not in _OPENERS and (tokens[index - 1].kind is not Kind.OP or tokens[index - 1].text in (")", "*"))


def _operator_fits(tokens: Sequence[Token], words: Sequence[str], index: int, ended: bool) -> bool:
    token = tokens[index]
    if token.text == ")":
        return True
    if token.text == "(":
        if index + 1 < len(tokens) and tokens[index + 1].is_op(")"):
            return index > 0 and words[index - 1] in _WITHOUT_ARGUMENTS
        return not (index + 1 < len(tokens) and tokens[index + 1].is_op(","))
    if token.text == ",":
        before = tokens[index - 1] if index else None
        return not ended and before is not None and not before.is_op("(") and words[index - 1] not in _OPENERS
    # A star may end an expression (COUNT(*), SELECT * FROM), every other operator needs its right side.
    return token.text == "*" or not ended


def _clauses_in_order(tokens: Sequence[Token], words: Sequence[str]) -> bool:
    ranks = [0]
    for token, word in zip(tokens, words, strict=True):
        if token.is_op("("):
            ranks.append(0)
        elif token.is_op(")"):
            ranks.pop()
        elif word == "SELECT":
            ranks[-1] = 0
        elif word == "UNION":
            if ranks[-1] >= _CLAUSES["ORDER"]:
                return False
            ranks[-1] = 0
        elif word in _CLAUSES:
            if _CLAUSES[word] <= ranks[-1]:
                return False
            ranks[-1] = _CLAUSES[word]
    return True


def _has_window(tokens: Sequence[Token], index: int) -> bool:
    """Say whether a call of a window function is followed by OVER; a bare word of that name is a column."""
    if index + 1 >= len(tokens) or not tokens[index + 1].is_op("("):
        return True
    depth = 0
    for place in range(index + 1, len(tokens)):
        depth += tokens[place].is_op("(") - tokens[place].is_op(")")
        if depth == 0:
            return place + 1 < len(tokens) and tokens[place + 1].upper == "OVER"
    return False
