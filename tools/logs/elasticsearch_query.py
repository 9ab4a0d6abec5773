"""The log query language as Elasticsearch/OpenSearch query DSL. Pure.

Fields are analysed in ways that are not known here, and an index cannot find text inside words as it stands. So a node
becomes two queries: `upper` finds every matching document and maybe others, `lower` finds matching ones only and maybe
not all. NOT swaps them. What `upper` brings is matched again on this side. None stands for a query that says nothing:
everything for `upper`, nothing for `lower`.

Words become regular expressions over terms, letter by letter in both cases (`query_string` knows no other way to ignore
case on keyword fields), so that parts of words match. `lenient` lets fields of other types pass by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tools.logs.document import Roles
from tools.logs.elasticsearch_text import MAX_RUN_CHARS, both_cases, inside, quoted, run_text, runs_of
from tools.logs.levels_wire import LEVELS, meant_levels, numbers, spellings
from tools.logs.match import LEVEL_KEYS, is_whole_number
from tools.logs.query import And, Everything, FieldTerm, Node, Not, Or, Term

Query = dict[str, Any]
_MAX_RUNS = 4
_MAX_CLAUSES = 16


@dataclass(frozen=True, slots=True)
class Target:
    """Where to look: the fields every word is looked for in, and the fields with a role."""

    search: tuple[str, ...]
    roles: Roles


def search_query(node: Node, target: Target) -> Query | None:
    """Return a query that finds every matching document; None when only the documents themselves can tell."""
    return _Translator(target).upper(node)


def is_tight(node: Node) -> bool:
    """Say whether the server finds exactly what matches, so that its count is the count of matches."""
    if isinstance(node, Term):
        return _is_word(node)
    if isinstance(node, FieldTerm):
        return node.key.lower() in LEVEL_KEYS and bool(meant_levels(node.value))
    if isinstance(node, Not):
        return is_tight(node.item)
    if isinstance(node, And | Or):
        return all(is_tight(item) for item in node.items)
    return True


def _is_word(term: Term) -> bool:
    """Say whether the term is one run of ASCII letters and digits that may stand inside a longer word."""
    text = term.parts[0]
    return (
        len(term.parts) == 1
        and text.isascii()
        and text.isalnum()
        and len(text) <= MAX_RUN_CHARS
        and not is_whole_number(term)
        and not text.isdigit()
    )


@dataclass(frozen=True, slots=True)
class _Translator:
    target: Target

    def upper(self, node: Node) -> Query | None:
        if isinstance(node, Term):
            return _term(node, self.target.search)
        if isinstance(node, FieldTerm):
            return self._field(node)
        if isinstance(node, Not):
            return _must_not(self.lower(node.item))
        if isinstance(node, And):
            return _all([query for item in node.items if (query := self.upper(item)) is not None][:_MAX_CLAUSES])
        if isinstance(node, Or):
            parts = [self.upper(item) for item in node.items]
            return _any([part for part in parts if part is not None]) if None not in parts else None
        return None

    def lower(self, node: Node) -> Query | None:
        if isinstance(node, Everything):
            return {"match_all": {}}
        if isinstance(node, Term):
            return _find(inside(node.parts[0]), self.target.search) if _is_word(node) else None
        if isinstance(node, FieldTerm):
            return self._field_lower(node)
        if isinstance(node, Not):
            return _must_not(self.upper(node.item))
        parts = [self.lower(item) for item in node.items]
        if isinstance(node, And):
            return _all([part for part in parts if part is not None]) if None not in parts else None
        return _any([part for part in parts if part is not None])

    def _field(self, node: FieldTerm) -> Query | None:
        key = node.key.lower()
        if key in LEVEL_KEYS:
            return self._level(node.value)
        anywhere = _term(node.value, self.target.search)
        for role, keys in (("service", self.target.roles.service), ("instance", self.target.roles.instance)):
            if key == role:
                named = _term(node.value, name_spellings(keys))
                return _any([named, _all_of(_must_not(_exists(keys)), anywhere)]) if named is not None else None
        if is_whole_number(node.value) and len(node.value.parts) > 1:
            return _term(node.value, _key_patterns(node.key), by_key=True)
        if not any(node.value.parts):
            return _any([{"exists": {"field": name}} for name in _key_patterns(node.key)])
        return anywhere

    def _level(self, value: Term) -> Query | None:
        """Find the level in its field, or, where that holds no known level, in the text."""
        levels = meant_levels(value)
        words = [inside(name) for name in spellings(levels)] + (["/[iwefIWEF][0-9]{4}/"] if levels else [])
        text = [_find(" OR ".join(words), self.target.search)] if words else []
        literal = _term(value, self.target.search)
        if literal is None:
            return None
        untold = _all_of(_must_not(self._has_level(LEVELS)), _any([*text, literal]))
        return _any([self._has_level(levels), untold]) if levels else untold

    def _has_level(self, levels: tuple[str, ...]) -> Query:
        whole = "|".join(both_cases(name) for name in spellings(levels))
        known = " OR ".join(f'"{number}"' for number in numbers(levels))
        return _find(f"/{whole}/" + (f" OR {known}" if known else ""), name_spellings(self.target.roles.level))

    def _field_lower(self, node: FieldTerm) -> Query | None:
        key = node.key.lower()
        if key in LEVEL_KEYS:
            levels = meant_levels(node.value)
            return self._has_level(levels) if levels else None
        for role, keys in (("service", self.target.roles.service), ("instance", self.target.roles.instance)):
            if key == role and len(keys) == 1 and _is_word(node.value):
                return _find(inside(node.value.parts[0]), keys)
        return None


def name_spellings(keys: Iterable[str]) -> tuple[str, ...]:
    """Return field names as stores spell them: `log_level` is also `logLevel`, `LogLevel` and `Log_level`."""
    names: dict[str, None] = {}
    for key in keys:
        head, *rest = key.split("_")
        camel = head + "".join(part[:1].upper() + part[1:] for part in rest)
        for name in (key, camel, key[:1].upper() + key[1:], camel[:1].upper() + camel[1:]):
            names[name] = None
    return tuple(names)


def _key_patterns(key: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((key, key.lower(), f"*.{key}", f"*.{key.lower()}")))


def _exists(keys: Sequence[str]) -> Query:
    """Tell documents that have one of the fields; a name that is also the head of another one may be an object."""
    leaves = [key for key in keys if not any(other.startswith(f"{key}.") for other in keys)]
    return {"bool": {"should": [{"exists": {"field": name}} for name in name_spellings(leaves)]}}


def _term(term: Term, fields: Sequence[str], by_key: bool = False) -> Query | None:
    """Find every document with the term in one of the fields."""
    runs = [run for part in term.parts for run in runs_of(part)]
    if not runs:
        return None
    kept = sorted(runs, key=len, reverse=True)[:_MAX_RUNS]
    clauses = [_find(run_text(run, term, by_key), fields) for run in kept]
    whole = term.parts[0]
    if len(term.parts) > 1 or runs == [whole]:
        return _all(clauses)
    # Addresses, dates and decimals in fields of their own types are found as a whole only.
    return _any([_all(clauses), _find(quoted(whole), fields)])


def _find(text: str, fields: Sequence[str]) -> Query:
    return {"query_string": {"query": text, "fields": list(fields), "lenient": True, "default_operator": "or"}}


def _all(queries: Sequence[Query]) -> Query | None:
    if len(queries) <= 1:
        return queries[0] if queries else None
    return {"bool": {"filter": list(queries)}}


def _any(queries: Sequence[Query | None]) -> Query | None:
    known = [query for query in queries if query is not None]
    if len(known) <= 1:
        return known[0] if known else None
    return {"bool": {"should": known, "minimum_should_match": 1}}


def _all_of(*queries: Query | None) -> Query | None:
    return _all([query for query in queries if query is not None])


def _must_not(query: Query | None) -> Query | None:
    return None if query is None else {"bool": {"must_not": [query]}}
