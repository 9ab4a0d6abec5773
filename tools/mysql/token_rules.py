"""Rules over the token stream (R123): first keyword, words, calls, positions of strings and `?`. Pure.

Function names are judged here and not on the syntax tree: the parser renames, merges and drops what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from tools.mysql.contract import GateRule
from tools.mysql.functions import (
    ALLOWED_FUNCTIONS,
    KEYWORDS_BEFORE_PAREN,
    LOCK_WORDS,
    RESERVED_OUTSIDE_SUBSET,
    SELECT_MODIFIERS,
    WORDS_BEFORE_NUMBER,
    WORDS_BEFORE_STRING,
)
from tools.mysql.lexical import GateRefusal, Kind, Token

MAX_DEPTH = 30
"""Nested parentheses: far beyond what a person writes, far below what a parser's stack bears."""

_COMPARISONS = frozenset({"=", "<", ">", "<=", ">=", "<>", "!="})


def check_tokens(tokens: Sequence[Token]) -> None:
    """Refuse a token stream that leaves the subset. Raises GateRefusal."""
    _check_first(tokens)
    _check_depth(tokens)
    columns = _cte_column_lists(tokens)
    for index, token in enumerate(tokens):
        dotted = index > 0 and tokens[index - 1].is_op(".")
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if following is not None and following.is_op("(") and index not in columns:
            _check_before_paren(tokens, index, dotted)
        if token.kind is Kind.WORD and not dotted:
            _check_word(token, following)
        elif token.kind is Kind.STRING:
            _check_string_position(tokens, index)
        elif token.kind is Kind.NUMBER:
            _check_number_position(tokens, index)
        elif token.kind is Kind.PARAM:
            _check_param_position(tokens, index)


def _check_first(tokens: Sequence[Token]) -> None:
    first = next((token for token in tokens if not token.is_op("(")), None)
    if first is None or first.upper not in ("SELECT", "WITH"):
        raise GateRefusal(GateRule.NOT_A_SELECT)


def _check_depth(tokens: Sequence[Token]) -> None:
    depth = 0
    for token in tokens:
        depth += token.is_op("(") - token.is_op(")")
        if depth > MAX_DEPTH:
            raise GateRefusal(GateRule.TOO_COMPLEX)
        if depth < 0:
            raise GateRefusal(GateRule.PARSE_ERROR)
    if depth:
        raise GateRefusal(GateRule.PARSE_ERROR)


def _check_word(token: Token, following: Token | None) -> None:
    word = token.upper
    calls = following is not None and following.is_op("(")
    if word == "INTO":
        raise GateRefusal(GateRule.INTO_CLAUSE)
    if word in LOCK_WORDS:
        raise GateRefusal(GateRule.LOCK_CLAUSE)
    if word in SELECT_MODIFIERS:
        raise GateRefusal(GateRule.SELECT_MODIFIER)
    if word == "RECURSIVE":
        raise GateRefusal(GateRule.RECURSIVE_CTE)
    if word == "PARTITION" and (following is None or following.upper != "BY"):
        raise GateRefusal(GateRule.PARTITION_CLAUSE)
    if word in ("EXCEPT", "INTERSECT", "MINUS"):
        raise GateRefusal(GateRule.SET_OPERATION)
    if word in RESERVED_OUTSIDE_SUBSET and not (calls and word in ALLOWED_FUNCTIONS):
        raise GateRefusal(GateRule.KEYWORD)


def _check_before_paren(tokens: Sequence[Token], index: int, dotted: bool) -> None:
    token = tokens[index]
    if token.kind is Kind.NAME:
        raise GateRefusal(GateRule.FUNCTION_FORM)
    if token.kind is not Kind.WORD:
        return
    if dotted:
        raise GateRefusal(GateRule.FUNCTION_FORM)
    word = token.upper
    if word in KEYWORDS_BEFORE_PAREN or _is_clause_word(tokens, index):
        return
    if word in ("INTO", "RECURSIVE", "PARTITION") or word in LOCK_WORDS:
        return
    if word not in ALLOWED_FUNCTIONS:
        raise GateRefusal(GateRule.FUNCTION_NOT_ALLOWED)
    if token.end != tokens[index + 1].start:
        # With a space, the server looks for a stored function of that name.
        raise GateRefusal(GateRule.FUNCTION_FORM)


def _is_clause_word(tokens: Sequence[Token], index: int) -> bool:
    """Say whether a word that is no reserved one stands where only its clause can: OVER (, AGAINST (, = ANY (SELECT."""
    word = tokens[index].upper
    previous = tokens[index - 1] if index else None
    if word in ("OVER", "AGAINST"):
        return previous is not None and previous.is_op(")")
    if word in ("ANY", "SOME", "ALL"):
        compared = previous is not None and previous.kind is Kind.OP and previous.text in _COMPARISONS
        return compared and index + 2 < len(tokens) and tokens[index + 2].upper in ("SELECT", "WITH")
    return False


def _check_string_position(tokens: Sequence[Token], index: int) -> None:
    previous = tokens[index - 1]
    if previous.kind is Kind.STRING:
        raise GateRefusal(GateRule.ADJACENT_LITERALS)
    dotted = index > 1 and tokens[index - 2].is_op(".")
    after_word = previous.kind is Kind.WORD and not dotted and previous.upper in WORDS_BEFORE_STRING
    after_operator = previous.kind is Kind.OP and not previous.is_op(")")
    if not (after_word or after_operator):
        raise GateRefusal(GateRule.LITERAL_POSITION)


def _check_number_position(tokens: Sequence[Token], index: int) -> None:
    previous = tokens[index - 1]
    after_word = previous.upper in WORDS_BEFORE_NUMBER and not (index > 1 and tokens[index - 2].is_op("."))
    after_operator = previous.kind is Kind.OP and not previous.is_op(")")
    if not (after_word or after_operator):
        raise GateRefusal(GateRule.PARSE_ERROR)


def _check_param_position(tokens: Sequence[Token], index: int) -> None:
    previous = tokens[index - 1]
    glued = previous.kind in (Kind.STRING, Kind.NAME, Kind.NUMBER, Kind.PARAM) or previous.is_op(")")
    if glued or previous.upper in ("AS", "FROM", "JOIN", "DATE", "TIME", "TIMESTAMP"):
        raise GateRefusal(GateRule.PLACEHOLDER_POSITION)


def _cte_column_lists(tokens: Sequence[Token]) -> frozenset[int]:
    """Places of CTE names followed by a column list: `WITH c (a, b) AS (` and `, c (a) AS (`."""
    found = set()
    for index in range(1, len(tokens) - 1):
        before, token = tokens[index - 1], tokens[index]
        if token.kind not in (Kind.WORD, Kind.NAME) or not tokens[index + 1].is_op("("):
            continue
        if not (before.upper == "WITH" or before.is_op(",")):
            continue
        end = index + 2
        while end < len(tokens) and (tokens[end].kind in (Kind.WORD, Kind.NAME) or tokens[end].is_op(",")):
            end += 1
        tail = tokens[end : end + 3]
        if len(tail) == 3 and tail[0].is_op(")") and tail[1].upper == "AS" and tail[2].is_op("("):
            found.add(index)
    return frozenset(found)
