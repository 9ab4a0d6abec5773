"""What SQLite needs changed in the shape of a query so that it means what MySQL means (R123). Pure.

Column names are those that were written, parenthesised parts of a UNION become subqueries, and text is compared,
ordered and grouped under MySQL's rule that neither case nor accents count.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from sqlglot import exp

from tools.mysql.lexical import Kind, Token

COLLATION = "mysql_ci"
_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.In, exp.Between)
_COMPARING = frozenset({"NULLIF", "MIN", "MAX"})
_LIST_ENDS = frozenset({"FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "WINDOW"})


def text_of(value: object) -> str:
    """Return a value as the text that MySQL's text functions see."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def compare_text(one: str, two: str) -> int:
    """Compare as MySQL's default collations do: without case and accents."""
    left, right = folded(one), folded(two)
    return (left > right) - (left < right)


def folded(text: str) -> str:
    """Leave out what MySQL's default collations do not look at: case and accents."""
    if text.isascii():
        return text.lower()
    return "".join(char for char in unicodedata.normalize("NFD", text.casefold()) if not unicodedata.combining(char))


def name_columns(tree: exp.Expr, sql: str, tokens: Sequence[Token]) -> None:
    """Name the columns of the first SELECT as they were written, before translation changes them."""
    query = tree
    while not isinstance(query, exp.Select):
        query = query.this
    written = _written_items(sql, tokens)
    for index, item in enumerate(list(query.expressions)):
        if not isinstance(item, exp.Alias | exp.Column | exp.Star):
            exact = len(written) == len(query.expressions)
            name = written[index] if exact else item.sql(dialect="mysql")
            item.replace(exp.alias_(item.copy(), name[:64], quoted=True))


def _written_items(sql: str, tokens: Sequence[Token]) -> list[str]:
    """Texts of the select list of the first SELECT that is in no WITH."""
    start = _first_select(tokens)
    depth, items, begin = 0, [], start
    for index in range(start, len(tokens)):
        token = tokens[index]
        depth += token.is_op("(") - token.is_op(")")
        ends = depth < 0 or (depth == 0 and token.upper in _LIST_ENDS)
        if ends or (depth == 0 and token.is_op(",")):
            items.append(sql[tokens[begin].start : tokens[index - 1].end])
            begin = index + 1
        if ends:
            return items
    return [*items, sql[tokens[begin].start : tokens[-1].end]]


def _first_select(tokens: Sequence[Token]) -> int:
    depth, opened = 0, 0
    starts_with = next(token.upper for token in tokens if not token.is_op("("))
    for index, token in enumerate(tokens):
        depth += token.is_op("(") - token.is_op(")")
        if token.upper == "WITH":
            opened = depth
        if token.upper == "SELECT" and (starts_with != "WITH" or depth == opened):
            after = index + 1
            return after + (tokens[after].upper in ("DISTINCT", "ALL") and tokens[after].kind is Kind.WORD)
    return len(tokens) - 1


def unwrap_unions(tree: exp.Expr) -> exp.Expr:
    """Write `(SELECT ...)` as a part of a UNION, or as the whole, without parentheses, which SQLite does not have."""
    for part in list(tree.find_all(exp.Subquery)):
        if part.parent is None or isinstance(part.parent, exp.Union) or _whole_of_derived_table(part):
            plain = exp.select("*").from_(
                exp.Subquery(this=part.this.copy(), alias=exp.TableAlias(this=exp.to_identifier("q")))
            )
            for key in ("with_", "order", "limit", "offset"):
                if part.args.get(key) is not None:
                    plain.set(key, part.args[key].copy())
            if part.parent is None:
                return unwrap_unions(plain)
            part.replace(plain)
            return unwrap_unions(tree)
    return tree


def _whole_of_derived_table(part: exp.Subquery) -> bool:
    return isinstance(part.parent, exp.Subquery) and not part.alias and isinstance(part.this, exp.Select | exp.Union)


def collate(tree: exp.Expr) -> None:
    """Put the collation where text is compared, ordered or grouped; numbers do not mind it."""
    for node in list(tree.walk()):
        if _decides(node):
            node.set("this", _collated(node.this))
        elif isinstance(node, exp.Anonymous) and str(node.this).upper() in _COMPARING and node.expressions:
            node.set("expressions", [_collated(node.expressions[0]), *node.expressions[1:]])
        elif isinstance(node, exp.Group):
            node.set("expressions", [_unless_position(item) for item in node.expressions])
        elif isinstance(node, exp.Window):
            node.set("partition_by", [_collated(item) for item in node.args.get("partition_by") or []])
        elif isinstance(node, exp.Distinct) and node.expressions:
            node.set("expressions", [_collated(item) for item in node.expressions])
    for node in list(tree.find_all(exp.Select)):
        if node.args.get("distinct") or _merges(node):
            for item in node.expressions:
                _collate_item(item)


def _decides(node: exp.Expr) -> bool:
    """Say whether the collation of a node's first operand is the one that SQLite compares or orders with."""
    if isinstance(node, _COMPARED):
        return not isinstance(node.this, exp.Tuple | exp.Subquery)
    if isinstance(node, exp.Ordered):
        return not isinstance(node.this, exp.Literal)
    return isinstance(node, exp.Case) and node.this is not None


def _merges(node: exp.Select) -> bool:
    """Say whether a SELECT is the first of a UNION that leaves out duplicates: its collations decide."""
    parent = node.parent
    return isinstance(parent, exp.Union) and parent.this is node and bool(parent.args.get("distinct"))


def _collate_item(item: exp.Expr) -> None:
    if isinstance(item, exp.Alias):
        item.set("this", _collated(item.this))
    elif isinstance(item, exp.Column) and not item.is_star:
        item.replace(exp.alias_(_collated(item.copy()), item.name, quoted=True))


def _unless_position(item: exp.Expr) -> exp.Expr:
    return item if isinstance(item, exp.Literal) else _collated(item)


def _collated(item: exp.Expr) -> exp.Expr:
    if isinstance(item, exp.Collate):
        return item
    return exp.Collate(this=exp.Paren(this=item.copy()), expression=exp.Var(this=COLLATION))
