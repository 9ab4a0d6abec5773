"""What the parser accepts as a tree and the server refuses as a text (R123). Pure; see also `shape_rules.py`."""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from tools.mysql.functions import FOLDED_WORDS, RESERVED_AS_NAMES

_CLOCKS = frozenset({"UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP"})
_RESERVED = (RESERVED_AS_NAMES | FOLDED_WORDS) - _CLOCKS
_NO_TYPES = frozenset({exp.DType.UDOUBLE, exp.DType.UDECIMAL, exp.DType.TEXT, exp.DType.VARCHAR})
_UNITS = frozenset(
    {"MICROSECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"}
    | {"SECOND_MICROSECOND", "MINUTE_MICROSECOND", "MINUTE_SECOND", "HOUR_MICROSECOND", "HOUR_SECOND", "HOUR_MINUTE"}
    | {"DAY_MICROSECOND", "DAY_SECOND", "DAY_MINUTE", "DAY_HOUR", "YEAR_MONTH"}
)
_JOINS = {"kind": ("", "INNER", "CROSS", "OUTER"), "side": ("", "LEFT", "RIGHT"), "method": ("", "NATURAL")}


def is_reserved_name(node: exp.Expr) -> bool:
    """Say whether `node` is a name that a server takes for a keyword: unquoted, reserved, and not behind a dot."""
    if not isinstance(node, exp.Identifier) or node.args.get("quoted"):
        return False
    if str(node.this).upper() not in _RESERVED:
        return False
    parent = node.parent
    if parent is None or node.arg_key != "this":
        return True
    dual = isinstance(parent, exp.Table) and node.name.upper() == "DUAL"
    return not (dual or parent.args.get("table") or parent.args.get("db"))


def names_by_string(root: exp.Expr, strings: Collection[int]) -> bool:
    """Say whether a string literal, at one of the places `strings`, names something other than a column of a result."""
    return any(
        name.meta.get("start") in strings and not isinstance(name.parent, exp.Alias)
        for name in root.find_all(exp.Identifier)
    )


def _stands_where_allowed(node: exp.Expr) -> bool:
    """Say whether an alias names a column of a SELECT and a query stands in parentheses of its own."""
    parent = node.parent
    if isinstance(node, exp.Alias):
        return isinstance(parent, exp.Select) and node.arg_key == "expressions"
    if not isinstance(node, exp.Select | exp.Union) or parent is None:
        return True
    if isinstance(parent, exp.In):
        return node.arg_key == "query"
    return isinstance(parent, exp.Subquery | exp.CTE | exp.Union | exp.Exists | exp.Any | exp.All)


def server_accepts(node: exp.Expr) -> bool:
    """Say whether MySQL and MariaDB have the form that `node` shows."""
    if not _stands_where_allowed(node):
        return False
    if isinstance(node, exp.Select):
        return bool(node.expressions) and not (node.args.get("offset") and not node.args.get("limit"))
    if isinstance(node, exp.Limit | exp.Offset):
        return _is_row_count(node.expression)
    if isinstance(node, exp.Alias):
        return not node.this.is_star
    if isinstance(node, exp.Star):
        return isinstance(node.parent, exp.Select | exp.Column | exp.Count)
    if isinstance(node, exp.DataTypeParam | exp.DataType):
        return _type_fits(node)
    if isinstance(node, exp.Exists):
        return isinstance(node.this, exp.Select | exp.Union | exp.Subquery)
    if isinstance(node, exp.Join):
        return _join_fits(node)
    if isinstance(node, exp.Subquery):
        return _subquery_fits(node)
    if isinstance(node, exp.Interval):
        return _interval_fits(node)
    if isinstance(node, exp.Extract):
        return node.name.upper() in _UNITS
    if isinstance(node, exp.Any | exp.All):
        return isinstance(node.this, exp.Subquery | exp.Select | exp.Union)
    return True


def _type_fits(node: exp.Expr) -> bool:
    if isinstance(node, exp.DataType):
        lengths = [item.this if isinstance(item, exp.DataTypeParam) else item for item in node.expressions]
        return node.this not in _NO_TYPES and all(_is_row_count(length) for length in lengths)
    return _is_row_count(node.this)


def _is_row_count(value: exp.Expr | None) -> bool:
    if isinstance(value, exp.Literal):
        return not value.is_string and value.name.isdigit()
    return isinstance(value, exp.Placeholder)


def _join_fits(node: exp.Join) -> bool:
    if any(str(node.args.get(part) or "").upper() not in allowed for part, allowed in _JOINS.items()):
        return False
    outer = bool(node.args.get("side")) and not node.args.get("method")
    return not outer or bool(node.args.get("on") or node.args.get("using"))


def _subquery_fits(node: exp.Subquery) -> bool:
    if isinstance(node.this, exp.Table):
        return not node.alias
    if node.alias and isinstance(node.parent, exp.Union):
        return False
    in_from = isinstance(node.parent, exp.From | exp.Join)
    return bool(node.alias) or not in_from


def _interval_fits(node: exp.Interval) -> bool:
    unit = node.args.get("unit")
    if node.this is None or unit is None or unit.name.upper() not in _UNITS:
        return False
    return isinstance(node.parent, exp.Add | exp.Sub | exp.Func | exp.WindowSpec)
