"""Scope of a MySQL request (R43-R47): logical datasource, normalized text, parameters with their types. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tools.contract import Scope
from tools.mysql.functions import ALLOWED_FUNCTIONS, FOLDED_WORDS, FOLDED_WORDS_UNLESS_NAMES
from tools.mysql.lexical import GateRefusal, Kind, Token, tokenize
from tools.mysql.request import MysqlQueryRequest
from tools.scope import make_scope

_NAME_FOLLOWS = frozenset({"FROM", "JOIN", "AS"})


def normalize_sql(sql: str) -> str:
    """Fold what cannot change the meaning: whitespace, the trailing `;`, the case of keywords and function names.

    Literals, backticked names and the case of every other word stay as they are: table names may depend on it. A text
    that the lexical gate refuses is only trimmed.
    """
    try:
        tokens = tokenize(sql)
    except GateRefusal:
        # Not every space Python knows: a control character must stay, or a refused text would turn into an allowed one.
        return sql.strip(" \t\n")
    parts: list[str] = []
    for index, token in enumerate(tokens):
        if index and _spaced(tokens, index):
            parts.append(" ")
        parts.append(_folded(tokens, index) if token.kind is Kind.WORD else token.text)
    return "".join(parts)


def _spaced(tokens: Sequence[Token], index: int) -> bool:
    before, token = tokens[index - 1], tokens[index]
    if token.kind is Kind.OP and token.text in (")", ",", "."):
        return False
    if before.is_op("(") or before.is_op("."):
        return False
    return not (token.is_op("(") and before.end == token.start and before.upper in ALLOWED_FUNCTIONS)


def _folded(tokens: Sequence[Token], index: int) -> str:
    token = tokens[index]
    before = tokens[index - 1] if index else None
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    if (before is not None and before.is_op(".")) or (after is not None and after.is_op(".")):
        return token.text
    word = token.upper
    if word in FOLDED_WORDS or (after is not None and after.is_op("(") and word in ALLOWED_FUNCTIONS):
        return word
    names = before is not None and (before.upper in _NAME_FOLLOWS or before.is_op(","))
    return word if word in FOLDED_WORDS_UNLESS_NAMES and not names else token.text


def project_scope(tool_name: str, request: MysqlQueryRequest, tables: Sequence[str]) -> Scope:
    """Project a request's scope. Only the `tables` it reads reach the trace's summary (R104, R108)."""
    normalized = {
        "datasource": request.datasource.strip().lower(),
        "sql": normalize_sql(request.sql),
        "params": list(request.params),
    }
    scope = make_scope(tool_name, normalized, "")
    names = ", ".join(tables) or "no table"
    summary = f"{normalized['datasource'][:64]}: {names[:160]} ({scope.key[:12]})"
    return scope.model_copy(update={"summary": summary})
