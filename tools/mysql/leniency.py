"""What the parser accepts as a tree and the server refuses as a text (R123). Pure; see also `shape_rules.py`."""

from __future__ import annotations

from sqlglot import exp

_UNITS = frozenset(
    {"MICROSECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"}
    | {"SECOND_MICROSECOND", "MINUTE_MICROSECOND", "MINUTE_SECOND", "HOUR_MICROSECOND", "HOUR_SECOND", "HOUR_MINUTE"}
    | {"DAY_MICROSECOND", "DAY_SECOND", "DAY_MINUTE", "DAY_HOUR", "YEAR_MONTH"}
)
_JOINS = {"kind": ("", "INNER", "CROSS", "OUTER"), "side": ("", "LEFT", "RIGHT"), "method": ("", "NATURAL")}


def server_accepts(node: exp.Expr) -> bool:
    """Say whether MySQL and MariaDB have the form that `node` shows."""
    if isinstance(node, exp.Select):
        return bool(node.expressions) and not (node.args.get("offset") and not node.args.get("limit"))
    if isinstance(node, exp.Limit | exp.Offset):
        return _is_row_count(node.expression)
    if isinstance(node, exp.Alias):
        return not isinstance(node.this, exp.Star)
    if isinstance(node, exp.Join):
        return _join_fits(node)
    if isinstance(node, exp.Subquery):
        return _subquery_fits(node)
    if isinstance(node, exp.Interval):
        return _interval_fits(node)
    if isinstance(node, exp.Any | exp.All):
        return isinstance(node.this, exp.Subquery | exp.Select | exp.Union)
    return True


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
    in_from = isinstance(node.parent, exp.From | exp.Join)
    return bool(node.alias) or not in_from


def _interval_fits(node: exp.Interval) -> bool:
    unit = node.args.get("unit")
    if node.this is None or unit is None or unit.name.upper() not in _UNITS:
        return False
    return isinstance(node.parent, exp.Add | exp.Sub | exp.Func | exp.WindowSpec)
