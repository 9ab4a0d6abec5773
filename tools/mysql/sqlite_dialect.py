"""From an accepted MySQL text to SQLite's (R123): functions keep their names, what means otherwise is refused. Pure.

The parser variant here knows no functions, so that none is renamed or has its arguments reordered on the way.
"""

from __future__ import annotations

from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.parsers.mysql import MySQLParser

from tools.mysql.lexical import GateRefusal, Kind, tokenize
from tools.mysql.sqlite_functions import KNOWN_FUNCTIONS, NOW_NAMES
from tools.mysql.sqlite_shape import collate, name_columns, unwrap_unions


class NotInSqlite(Exception):
    """The text uses something that SQLite has not or means otherwise."""


class _PlainMySQL(MySQL):
    """MySQL whose functions stay what they are called."""

    class Parser(MySQLParser):
        """Parser without named function classes."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}


_NO_PAREN: dict[type[exp.Expr], str] = {
    exp.CurrentTimestamp: "NOW",
    exp.CurrentDate: "CURDATE",
    exp.CurrentTime: "CURTIME",
    exp.Localtime: "NOW",
    exp.Localtimestamp: "NOW",
    exp.UtcDate: "UTC_DATE",
    exp.UtcTime: "UTC_TIME",
    exp.UtcTimestamp: "UTC_TIMESTAMP",
}
_SUPPORTED_FUNCS = (
    exp.Cast, exp.Case, exp.If, exp.Substring, exp.Trim, exp.And, exp.Or, exp.Exists, exp.Anonymous, exp.RegexpLike,
)  # fmt: skip
_OTHER_NAMES = {"SUBSTRING": "SUBSTR", "MID": "SUBSTR", "LEFT": "MYSQL_LEFT", "RIGHT": "MYSQL_RIGHT"}
_CASTS = {
    exp.DataType.Type.DATETIME: "TIMESTAMP",
    exp.DataType.Type.TIMESTAMP: "TIMESTAMP",
    exp.DataType.Type.TIMESTAMPTZ: "TIMESTAMP",
    exp.DataType.Type.DATE: "DATE",
    exp.DataType.Type.BIGINT: "MYSQL_SIGNED",
    exp.DataType.Type.INT: "MYSQL_SIGNED",
    exp.DataType.Type.UBIGINT: "MYSQL_UNSIGNED",
    exp.DataType.Type.UINT: "MYSQL_UNSIGNED",
}
_LENGTH_MATTERS = (
    exp.DataType.Type.DATETIME, exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIME,
    exp.DataType.Type.BINARY,
)  # fmt: skip
_TEXTS = (exp.DataType.Type.CHAR, exp.DataType.Type.NCHAR)
_UNIT_FIRST = ("TIMESTAMPDIFF", "TIMESTAMPADD")


def to_sqlite(sql: str) -> str:
    """Translate a text that passed the gate; its n-th `?` becomes `:p<n>`. Raises NotInSqlite."""
    try:
        tree = sqlglot.parse_one(_named_placeholders(sql), dialect=_PlainMySQL)
        if not isinstance(tree, exp.Select | exp.Union | exp.Subquery):
            raise NotInSqlite
        if tree.find(exp.Collate, exp.BitwiseNot):
            raise NotInSqlite
        name_columns(tree, sql, tokenize(sql))
        tree = unwrap_unions(tree.transform(_translate))
        for function in tree.find_all(exp.Func):
            if not isinstance(function, _SUPPORTED_FUNCS):
                raise NotInSqlite
            if isinstance(function, exp.Anonymous) and str(function.this).upper() not in KNOWN_FUNCTIONS:
                raise NotInSqlite
        if tree.find(exp.Interval, exp.JSONValue, exp.Rollup, exp.Any, exp.All, exp.MatchAgainst):
            raise NotInSqlite
        collate(tree)
        return tree.sql(dialect="sqlite", unsupported_level=ErrorLevel.RAISE)
    except (GateRefusal, SqlglotError, RecursionError):
        raise NotInSqlite from None


def _named_placeholders(sql: str) -> str:
    parts, position = [], 0
    for index, token in enumerate(token for token in tokenize(sql) if token.kind is Kind.PARAM):
        parts += [sql[position : token.start], f":p{index}"]
        position = token.end
    return "".join([*parts, sql[position:]])


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _shift(name: str, start: exp.Expr, interval: exp.Interval) -> exp.Expr:
    if interval.this is None or interval.unit is None:
        raise NotInSqlite
    return _call(name, start, interval.this, exp.Literal.string(interval.unit.name))


def _translate(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Add | exp.Sub):
        if isinstance(node.expression, exp.Interval):
            return _shift("MYSQL_ADD" if isinstance(node, exp.Add) else "MYSQL_SUB", node.this, node.expression)
        if isinstance(node, exp.Add) and isinstance(node.this, exp.Interval):
            return _shift("MYSQL_ADD", node.expression, node.this)
    if isinstance(node, exp.Anonymous):
        return _translate_call(node)
    if isinstance(node, exp.GroupConcat):
        return _group_concat(node)
    if isinstance(node, exp.Extract):
        return _call("MYSQL_PART", exp.Literal.string(node.name), node.expression)
    if isinstance(node, exp.Ceil | exp.Floor):
        return _call("CEIL" if isinstance(node, exp.Ceil) else "FLOOR", node.this)
    if isinstance(node, exp.StrPosition):
        return _call("LOCATE", node.args["substr"], node.this)
    if isinstance(node, exp.Trim) and (node.args.get("position") or node.expression):
        raise NotInSqlite
    if isinstance(node, exp.Xor):
        return _call("MYSQL_XOR", node.this, node.expression)
    if isinstance(node, exp.BitwiseXor):
        return _call("MYSQL_BITXOR", node.this, node.expression)
    if isinstance(node, exp.Cast):
        return _translate_cast(node)
    if isinstance(node, exp.From) and isinstance(node.this, exp.Table) and _is_dual(node.this):
        return exp.From(this=exp.select("1").subquery("dual"))
    name = _NO_PAREN.get(type(node))
    return _call(name) if name else node


def _translate_cast(node: exp.Cast) -> exp.Expr:
    kind = node.to.this
    if kind in _TEXTS and node.to.expressions:
        return _call("MYSQL_LEFT", exp.cast(node.this, "CHAR", dialect="mysql"), node.to.expressions[0].this)
    if kind in _LENGTH_MATTERS and node.to.expressions:
        raise NotInSqlite
    name = _CASTS.get(kind)
    return _call(name, node.this) if name else node


def _is_dual(table: exp.Table) -> bool:
    return table.name.lower() == "dual" and not table.db and not table.this.args.get("quoted")


def _translate_call(node: exp.Anonymous) -> exp.Expr:
    name, arguments = str(node.this).upper(), node.expressions
    if name in ("DATE_ADD", "ADDDATE", "DATE_SUB", "SUBDATE") and len(arguments) == 2:
        target = "MYSQL_ADD" if name in ("DATE_ADD", "ADDDATE") else "MYSQL_SUB"
        if isinstance(arguments[1], exp.Interval):
            return _shift(target, arguments[0], arguments[1])
        return _call(target, *arguments, exp.Literal.string("DAY"))
    if name in _UNIT_FIRST and arguments and isinstance(arguments[0], exp.Column | exp.Var):
        return _call(name, exp.Literal.string(arguments[0].name), *arguments[1:])
    if name == "JSON_UNQUOTE" and len(arguments) == 1 and arguments[0].name.upper() == "JSON_EXTRACT":
        return _call("MYSQL_JSON_TEXT", *arguments[0].expressions)
    if name in NOW_NAMES and any(not isinstance(argument, exp.Literal) for argument in arguments):
        raise NotInSqlite
    other = _OTHER_NAMES.get(name)
    return _call(other, *arguments) if other else node


def _group_concat(node: exp.GroupConcat) -> exp.Expr:
    value, separator = node.this, node.args.get("separator")
    key: exp.Expr | None = None
    descending = False
    if isinstance(value, exp.Order):
        if len(value.expressions) != 1:
            raise NotInSqlite
        key, descending = value.expressions[0].this, bool(value.expressions[0].args.get("desc"))
        value = value.this
    distinct = isinstance(value, exp.Distinct)
    if isinstance(value, exp.Distinct):
        if len(value.expressions) != 1:
            raise NotInSqlite
        value = value.expressions[0]
    flags = [exp.Literal.number(int(flag)) for flag in (distinct, descending)]
    return _call(
        "MYSQL_GROUP_CONCAT", flags[0], separator or exp.Literal.string(","), flags[1], value, key or exp.null()
    )
