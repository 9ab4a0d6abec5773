"""Reads the lines of SHOW GRANTS as MySQL 8 and MariaDB 10 write them (R124). Pure.

Only what decides on privileges is kept: account names, password hashes and TLS demands of a line go no further.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>`(?:[^`]|``)*`|"(?:[^"]|"")*"|'(?:[^'\\]|''|\\.)*')|(?P<mark>[(),.@*])|(?P<word>[^\s`"'(),.@*]+))"""
)
_OBJECT_KINDS = frozenset({"TABLE", "FUNCTION", "PROCEDURE", "PACKAGE", "BODY"})
_PRIVILEGE_WORD = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Privilege:
    """One privilege as granted. `database` None means every one; `table` None every one of the database.

    On the level of a database the name is a LIKE pattern. `columns` narrow the privilege to them. `routine` is True when
    `table` names a stored routine.
    """

    name: str
    database: str | None
    table: str | None = None
    columns: tuple[str, ...] = ()
    routine: bool = False


@dataclass(frozen=True, slots=True)
class GrantLines:
    """What the lines say; `not_understood` counts the lines that could not be read."""

    privileges: tuple[Privilege, ...] = ()
    roles: tuple[str, ...] = ()
    grantees: frozenset[str] = frozenset()
    not_understood: int = 0


class _Unreadable(Exception):
    """A line is not of a known form."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words


def read_grant_lines(lines: Sequence[str]) -> GrantLines:
    """Read the lines of SHOW GRANTS. Never raises: what is not understood is counted.

    Partial revokes of MySQL are passed over, so that more is seen than is granted, never less.
    """
    privileges: list[Privilege] = []
    roles: dict[str, None] = {}
    grantees: set[str] = set()
    not_understood = 0
    for line in lines:
        try:
            granted, names, grantee = _read(_tokens(line))
        except _Unreadable:
            not_understood += 1
            continue
        privileges += granted
        roles |= dict.fromkeys(names)
        grantees |= {grantee} if granted else set()
    return GrantLines(tuple(privileges), tuple(roles), frozenset(grantees), not_understood)


def read_role_names(text: str) -> tuple[tuple[str, str], ...]:
    """Read what CURRENT_ROLE() of MySQL shows, `NONE` or roles, as (name, host). Raises ValueError."""
    if text.strip().upper() == "NONE":
        return ()
    try:
        return tuple((_account(part), part[2].text if len(part) == 3 else "%") for part in _split(_tokens(text), ","))
    except _Unreadable:
        raise ValueError("not a list of roles") from None


def _tokens(line: str) -> list[_Token]:
    tokens, position, end = [], 0, len(line.rstrip())
    while position < end:
        match = _TOKEN.match(line, position)
        if match is None or match.lastgroup is None:
            raise _Unreadable
        text = match.group(match.lastgroup)
        if match.lastgroup == "name":
            text = text[1:-1].replace(text[0] * 2, text[0])
        tokens.append(_Token(match.lastgroup, text))
        position = match.end()
    return tokens


def _read(tokens: list[_Token]) -> tuple[list[Privilege], list[str], str]:
    """Privileges, roles and the name of the grantee of one line."""
    if not tokens:
        raise _Unreadable
    if tokens[0].is_word("REVOKE") or (tokens[0].is_word("SET") and tokens[1:2] and tokens[1].is_word("DEFAULT")):
        return [], [], ""
    if not tokens[0].is_word("GRANT"):
        raise _Unreadable
    body = tokens[1:]
    to = _place(body, "TO")
    if to + 1 == len(body) or body[to + 1].kind == "mark":
        raise _Unreadable
    grantee = body[to + 1].text
    passes_on = _passes_on(body[to + 1 :])
    if body[0].is_word("PROXY"):
        return [Privilege("PROXY", None)], [], grantee
    if not any(token.is_word("ON") for token in body[:to]):
        more = [Privilege("ROLE ADMIN OPTION", None)] if passes_on else []
        return more, [_account(part) for part in _split(body[:to], ",")], grantee
    on = _place(body, "ON")
    database, table, routine = _level(body[on + 1 : to])
    found = [_privilege(part, database, table, routine) for part in _split(body[:on], ",")]
    if passes_on:
        found.append(Privilege("GRANT OPTION", database, table, routine=routine))
    return found, [], grantee


def _place(tokens: Sequence[_Token], word: str) -> int:
    """Place of the first `word` outside parentheses."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token.text == "(") - (token.text == ")") if token.kind == "mark" else 0
        if depth == 0 and token.is_word(word):
            return index
    raise _Unreadable


def _passes_on(tail: Sequence[_Token]) -> bool:
    words = [token.text.upper() if token.kind == "word" else "" for token in tail]
    pairs = list(itertools.pairwise(words))
    return ("GRANT", "OPTION") in pairs or ("ADMIN", "OPTION") in pairs


def _split(tokens: Sequence[_Token], mark: str) -> list[list[_Token]]:
    parts: list[list[_Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")") if token.kind == "mark" else 0
        if depth == 0 and token.kind == "mark" and token.text == mark:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _account(tokens: Sequence[_Token]) -> str:
    """Name of a role, its host left out."""
    if not tokens or tokens[0].kind == "mark":
        raise _Unreadable
    if len(tokens) > 1 and (len(tokens) != 3 or tokens[1].text != "@"):
        raise _Unreadable
    return tokens[0].text


def _level(tokens: list[_Token]) -> tuple[str | None, str | None, bool]:
    kinds = 0
    while len(tokens) - kinds > 3 and tokens[kinds].is_word(*_OBJECT_KINDS):
        kinds += 1
    routine = kinds > 0 and not tokens[0].is_word("TABLE")
    first, *rest = tokens[kinds:] or [_Token("", "")]
    if len(rest) != 2 or rest[0] != _Token("mark", "."):
        raise _Unreadable
    names = [None if token == _Token("mark", "*") else token.text for token in (first, rest[1])]
    if any(token.kind == "mark" and token.text != "*" for token in (first, rest[1])):
        raise _Unreadable
    if names[0] is None and names[1] is not None:
        raise _Unreadable
    return names[0], names[1], routine


def _privilege(tokens: list[_Token], database: str | None, table: str | None, routine: bool) -> Privilege:
    opening = next((index for index, token in enumerate(tokens) if token == _Token("mark", "(")), len(tokens))
    words = tokens[:opening]
    columns = [token.text for token in tokens[opening + 1 : -1] if token.kind != "mark"]
    if not words or not all(token.kind == "word" and _PRIVILEGE_WORD.fullmatch(token.text.upper()) for token in words):
        raise _Unreadable
    if opening < len(tokens) and (not columns or tokens[-1] != _Token("mark", ")")):
        raise _Unreadable
    name = " ".join(token.text.upper() for token in words)
    return Privilege("ALL PRIVILEGES" if name == "ALL" else name, database, table, tuple(columns), routine)
