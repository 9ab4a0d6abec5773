"""Which output columns of a query show secrets, aliases included (R55). Pure.

A column is masked by its own name or when what it computes reads a secret-sounding name, directly or through the
aliases of derived tables, CTEs and UNION arms, or looks for such a name inside of a text: by a path into JSON, or by a
text function. Where positions cannot be told, everything is masked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tools.masking import is_secret_name, says_secret


def secret_positions(sql: str, columns: Sequence[str], params: Sequence[object] = ()) -> frozenset[int]:
    """Return the positions in `columns` to mask; all of them when an accepted text cannot be analysed.

    A secret-sounding text among `params` may be any of the placeholders.
    """
    everything = frozenset(range(len(columns)))
    try:
        root = _filled(sqlglot.parse_one(sql, dialect="mysql"), params)
        if _hides_names(root):
            return everything
        tainted = _tainted_names(root)
        found = {index for index, name in enumerate(columns) if _secret(name, tainted)}
        for select in _arms(root):
            stars = _has_star(select)
            marked = [index for index, item in enumerate(select.expressions) if _reads_secret(item, tainted)]
            if stars and marked:
                return everything
            found.update(marked)
    except (SqlglotError, RecursionError):
        return everything
    return frozenset(found) & everything


def _secret(name: str, tainted: frozenset[str]) -> bool:
    return is_secret_name(name) or name.lower() in tainted


def _reads_secret(item: exp.Expr, tainted: frozenset[str]) -> bool:
    return any(_secret(column.name, tainted) for column in item.find_all(exp.Column)) or _looks_for_secret(item)


def _looks_for_secret(item: exp.Expr) -> bool:
    """Say whether the item reads a value by a secret-sounding name, or by a path that does not tell the name."""
    for read in item.find_all(exp.JSONExtract, exp.JSONValue):
        paths = [read.args.get("expression") or read.args.get("path"), *(read.args.get("expressions") or [])]
        if not all(isinstance(path, exp.JSONPath | exp.Literal | exp.Placeholder) for path in paths):
            return True
    texts = [text.name for text in item.find_all(exp.Literal) if text.is_string and isinstance(text.parent, exp.Func)]
    texts += [path.sql(dialect="mysql").strip("'") for path in item.find_all(exp.JSONPath)]
    return any(says_secret(text) or _any_name(text) for text in texts)


def _any_name(path: str) -> bool:
    return path.startswith("$") and "*" in path.replace("[*]", "")


def _filled(root: exp.Expr, params: Sequence[object]) -> exp.Expr:
    """Put the first telling parameter in the place of every placeholder."""
    telling = next((each for each in params if isinstance(each, str) and (says_secret(each) or _any_name(each))), None)
    if telling is not None:
        for place in list(root.find_all(exp.Placeholder)):
            place.replace(exp.Literal.string(telling))
    return root


def _arms(root: exp.Expr) -> Iterator[exp.Select]:
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Select):
            yield node
        elif isinstance(node, exp.SetOperation):
            stack += [node.expression, node.this]
        elif isinstance(node, exp.Subquery):
            stack.append(node.this)


def _has_star(select: exp.Select) -> bool:
    return any(
        isinstance(item, exp.Star) or (isinstance(item, exp.Column) and item.is_star) for item in select.expressions
    )


def _hides_names(root: exp.Expr) -> bool:
    """Say whether a `*` brings columns under names that are not theirs: a later UNION arm, or a list of new names."""
    for operation in root.find_all(exp.SetOperation):
        if any(_has_star(arm) for arm in list(_arms(operation))[1:]):
            return True
    return any(
        outer.columns and outer.parent is not None and any(map(_has_star, outer.parent.find_all(exp.Select)))
        for outer in root.find_all(exp.TableAlias)
    )


def _tainted_by_position(root: exp.Expr, names: frozenset[str]) -> Iterator[str]:
    """Yield the names a UNION gives to columns in which any of its arms reads a secret: the first arm names them."""
    for operation in root.find_all(exp.SetOperation):
        first, *others = list(_arms(operation))
        for arm in others:
            for named, item in zip(first.expressions, arm.expressions, strict=False):
                if _reads_secret(item, names):
                    yield named.alias_or_name.lower()


def _tainted_names(root: exp.Expr) -> frozenset[str]:
    """Aliases that carry a secret, to a fixed point; each round follows one more level of nesting."""
    names: frozenset[str] = frozenset()
    while True:
        more = set(names)
        for alias in root.find_all(exp.Alias):
            if _reads_secret(alias.this, names):
                more.add(alias.alias.lower())
        more.update(name for name in _tainted_by_position(root, names) if name)
        for outer in root.find_all(exp.TableAlias):
            if outer.columns and outer.parent is not None and _reads_secret(outer.parent, names):
                more.update(column.name.lower() for column in outer.columns)
        if len(more) == len(names):
            return names
        names = frozenset(more)
