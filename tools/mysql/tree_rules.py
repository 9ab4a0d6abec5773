"""Rules over the syntax tree (R123): kinds of node, clauses of SELECT, and which tables are read. Pure.

The list of node kinds is an allow-list: a construct that a later parser version invents stays outside.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import SqlglotError

from tools.mysql.contract import GateRule
from tools.mysql.leniency import is_reserved_name, names_by_string, server_accepts
from tools.mysql.lexical import GateRefusal, Kind, Token

logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # its warnings quote the text

_NODES: tuple[type[exp.Expr], ...] = (
    exp.Select, exp.Union, exp.Subquery, exp.With, exp.CTE, exp.TableAlias, exp.Alias, exp.From, exp.Join, exp.Table,
    exp.Where, exp.Group, exp.Rollup, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.Distinct,
    exp.Window, exp.WindowSpec, exp.Column, exp.Identifier, exp.Star, exp.Literal, exp.Null, exp.Boolean, exp.Placeholder,
    exp.Paren, exp.Tuple, exp.Case, exp.If, exp.In, exp.Between, exp.Like, exp.Escape, exp.Is, exp.Not, exp.Neg,
    exp.Exists, exp.Any, exp.All, exp.Interval, exp.IntervalSpan, exp.Var, exp.DataType, exp.DataTypeParam, exp.Collate,
    exp.And, exp.Or, exp.Xor, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.EQ, exp.NEQ, exp.GT, exp.GTE,
    exp.LT, exp.LTE, exp.NullSafeEQ, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift,
    exp.BitwiseRightShift, exp.BitwiseNot, exp.Func, exp.IgnoreNulls, exp.RespectNulls, exp.CharacterSet,
    exp.JSONPath, exp.JSONPathPart, exp.JSONValue, exp.JSONKeyValue,
)  # fmt: skip
_NEVER: tuple[type[exp.Expr], ...] = (
    exp.UDTF, exp.JSONTable, exp.XMLTable, exp.NextValueFor, exp.CurrentUser, exp.SetOperation, exp.PropertyEQ, exp.Kwarg,
    exp.Dot, exp.SessionParameter, exp.Parameter, exp.Command, exp.DML, exp.DDL, exp.Hint, exp.Lock, exp.Into, exp.Version,
    exp.Slice, exp.JSONExtractScalar, exp.JSONBExtract, exp.Operator, exp.DPipe, exp.Distance,
)  # fmt: skip
_SELECT_PARTS = frozenset(
    {
        "with_",
        "expressions",
        "distinct",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "windows",
        "order",
        "limit",
        "offset",
    }
)
_PARTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Select: _SELECT_PARTS,
    exp.Union: frozenset({"with_", "this", "expression", "distinct", "order", "limit", "offset"}),
    exp.Subquery: frozenset({"with_", "this", "alias", "joins", "order", "limit", "offset"}),
    exp.Table: frozenset({"this", "db", "alias", "joins"}),
    exp.Join: frozenset({"this", "side", "kind", "method", "on", "using"}),
    exp.In: frozenset({"this", "expressions", "query"}),
    exp.With: frozenset({"expressions"}),
    exp.CTE: frozenset({"this", "alias"}),
    exp.Star: frozenset(),
    exp.JSONValue: frozenset({"this", "path"}),
    exp.Column: frozenset({"this", "table", "db"}),
    exp.Distinct: frozenset({"expressions"}),
    exp.DataType: frozenset({"this", "expressions", "kind"}),
    exp.Limit: frozenset({"expression", "offset"}),
    exp.Group: frozenset({"expressions", "rollup"}),
}


def parse(sql: str, tokens: Sequence[Token]) -> exp.Expr:
    """Parse `sql` as one MySQL statement whose words are those of `tokens`. Raises GateRefusal."""
    try:
        read = MySQL().tokenize(sql)
        if not _same_words(tokens, [(word.start, word.end + 1) for word in read if word.text != ";"]):
            raise GateRefusal(GateRule.TOKEN_MISMATCH)
        statements = sqlglot.parse(sql, dialect="mysql")
    except SqlglotError:
        raise GateRefusal(GateRule.PARSE_ERROR) from None
    except RecursionError:
        raise GateRefusal(GateRule.TOO_COMPLEX) from None
    if len(statements) != 1 or statements[0] is None:
        raise GateRefusal(GateRule.MULTIPLE_STATEMENTS)
    if names_by_string(statements[0], {token.start for token in tokens if token.kind is Kind.STRING}):
        raise GateRefusal(GateRule.LITERAL_POSITION)
    return statements[0]


def _same_words(tokens: Sequence[Token], spans: Sequence[tuple[int, int]]) -> bool:
    """Say whether the parser reads the same words; it may join keywords (GROUP BY) and split operators (<<)."""
    starts, ends = {token.start for token in tokens}, {token.end for token in tokens}
    inside = {place: token.end for token in tokens if token.kind is Kind.OP for place in range(token.start, token.end)}
    return all(end <= inside[start] if start in inside else start in starts and end in ends for start, end in spans)


def check_tree(root: exp.Expr, listed: frozenset[str], case_sensitive: bool) -> tuple[str, ...]:
    """Refuse nodes, clauses and tables outside the subset; return the listed tables in order. Raises GateRefusal."""
    if not isinstance(root, exp.Select | exp.Union | exp.Subquery):
        raise GateRefusal(GateRule.NOT_A_SELECT)
    for node in root.walk():
        _check_node(node)
    known = listed if case_sensitive else frozenset(name.lower() for name in listed)
    found: dict[str, None] = {}
    for table in _real_tables(root):
        name = f"{table.db}.{table.name}" if table.args.get("db") else table.name
        dotted = "." in table.name or "." in table.db  # one backticked name, not schema and table
        if dotted or (name if case_sensitive else name.lower()) not in known:
            raise GateRefusal(GateRule.TABLE_NOT_ALLOWED)
        found[name] = None
    return tuple(found)


def _check_node(node: exp.Expr) -> None:
    if not isinstance(node, exp.Union) and isinstance(node, exp.SetOperation):
        raise GateRefusal(GateRule.SET_OPERATION)
    if not isinstance(node, _NODES) or (isinstance(node, _NEVER) and not isinstance(node, exp.Union)):
        raise GateRefusal(GateRule.NODE_NOT_ALLOWED)
    allowed = _PARTS.get(type(node))
    if allowed is not None and any(value and part not in allowed for part, value in node.args.items()):
        raise GateRefusal(GateRule.NODE_NOT_ALLOWED)
    if isinstance(node, exp.DataType) and node.this is exp.DType.ARRAY:
        raise GateRefusal(GateRule.NODE_NOT_ALLOWED)
    if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
        raise GateRefusal(GateRule.NODE_NOT_ALLOWED)
    if isinstance(node, exp.Subquery) and not isinstance(node.this, exp.Select | exp.Union | exp.Subquery | exp.Table):
        raise GateRefusal(GateRule.NODE_NOT_ALLOWED)
    if isinstance(node, exp.CTE) and not isinstance(node.this, exp.Select | exp.Union | exp.Subquery):
        raise GateRefusal(GateRule.NODE_NOT_ALLOWED)
    if is_reserved_name(node):
        raise GateRefusal(GateRule.KEYWORD)
    if not server_accepts(node):
        raise GateRefusal(GateRule.PARSE_ERROR)


def _real_tables(root: exp.Expr) -> Iterator[exp.Table]:
    """Yield the tables that are no common table expression visible at that place.

    A CTE is visible in the statement that its WITH stands before and in the later CTEs of that WITH, not in itself.
    """
    stack: list[tuple[exp.Expr, frozenset[str]]] = [(root, frozenset())]
    while stack:
        node, visible = stack.pop()
        if isinstance(node, exp.Table) and (node.args.get("db") or node.name not in visible):
            yield node
        inner: list[tuple[exp.Expr, frozenset[str]]] = []
        with_ = node.args.get("with_")
        if isinstance(with_, exp.With):
            for cte in with_.expressions:
                inner.append((cte, visible))
                visible |= {cte.alias}
        inner += [(child, visible) for child in _children(node) if child is not with_]
        stack.extend(reversed(inner))


def _children(node: exp.Expr) -> Iterator[exp.Expr]:
    def flat(value: Any) -> Iterator[exp.Expr]:
        if isinstance(value, exp.Expr):
            yield value
        elif isinstance(value, list):
            for item in value:
                yield from flat(item)

    for value in node.args.values():
        yield from flat(value)
