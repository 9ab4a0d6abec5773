"""Which fixed texts say the same thing: those that differ in parameters only. Pure.

Texts are lists of tokens with a MARK for every number, address and id. They are seen together, so what varies in the whole
batch counts, not what came first. A path, a host name, or an id of letters and digits is a parameter wherever it stands.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import chain

from tools.logs.slots import MARK

SIMILARITY = 0.6
"""Least share of equal tokens."""
MAX_DIFFERING_WORDS = 1
"""Texts that differ in more plain words say different things (`certificate expired`, `connection refused`)."""
MAX_CATEGORIES = 4
"""A `key=value` with so few values, each met twice on average, tells kinds of events apart; with more it is a parameter."""
_MAX_PER_BUCKET = 60
_MAX_GROUPS = 1000

_PARAMETER = "\1"
_WORD = re.compile(r"[^\W\d_]{2,}[.,:;!?]?")
_STATE = re.compile(r"\W*(?:[A-Za-z]{2,}(?:ed|ing)|[A-Z][A-Z_]+)\W*")
"""A participle or a word in capitals tells what happened or a state: `opened` and `closed`, `GET` and `POST`."""
_KEY = re.compile(r"([(\['\w.\-]*\w)=(?=.)")
_ID = re.compile(f"[A-Za-z_]{MARK}|{MARK}[A-Za-z_]")
_HOST = re.compile(r"[^\s.,:=]*[A-Za-z][^\s.,:=]*(?:\.[\w\-]+){2,}[\]),:;]*")
_OPENING = "([{<'\""
_MIN_PATH_CHARS, _MIN_SLASHES = 4, 3


def key_of(token: str) -> str:
    """Return `key=` of `key=value`, else nothing."""
    found = _KEY.match(token) if "=" in token else None
    return found[0] if found and MARK not in found[0] else ""


def merge_texts(texts: Sequence[Sequence[str]], counts: Sequence[int]) -> tuple[list[list[int]], list[int]]:
    """Return groups of positions of texts, the first text's first, and what is beyond the bound on groups.

    `counts`: lines of each text.
    """
    general: dict[tuple[str, ...], list[int]] = {}
    form_of = {token: token if token.isalpha() else _general(token) for token in set(chain.from_iterable(texts))}
    for index, tokens in enumerate(texts):
        general.setdefault(tuple(map(form_of.__getitem__, tokens)), []).append(index)
    forms = list(general)
    sizes = [sum(counts[index] for index in members) for members in general.values()]
    members = list(general.values())
    groups, rest = _similar(forms)
    parts = (part for group in groups for part in _by_category(forms, sizes, group))
    return sorted(_members(members, part) for part in parts), _members(members, rest)


def _members(members: Sequence[list[int]], forms: Sequence[int]) -> list[int]:
    return sorted(index for form in forms for index in members[form])


def _general(token: str) -> str:
    key = key_of(token)
    value = token[len(key) :]
    return key + (_PARAMETER if _is_parameter(value.lstrip(_OPENING)) else value)


def _is_parameter(value: str) -> bool:
    if MARK in value and _ID.search(value):
        return True
    slashes = value.count("/")
    if slashes and (slashes >= _MIN_SLASHES or "://" in value or (value[0] == "/" and len(value) >= _MIN_PATH_CHARS)):
        return True
    return value.count(".") > 1 and _HOST.fullmatch(value) is not None


def _similar(forms: Sequence[tuple[str, ...]]) -> tuple[list[list[int]], list[int]]:
    """Group forms of one length that share their first two fixed tokens and most of the others."""
    buckets: defaultdict[tuple[int, str, str], list[tuple[list[str], list[int]]]] = defaultdict(list)
    groups: list[list[int]] = []
    rest: list[int] = []
    for index, form in enumerate(forms):
        bucket = buckets[(len(form), _fixed(form[0]), _fixed(form[1]) if len(form) > 1 else "")]
        shares = [similarity(group[0], form) for group in bucket]
        share = max(shares, default=0.0)
        best = bucket[shares.index(share)] if shares else None
        full = len(bucket) >= _MAX_PER_BUCKET or len(groups) >= _MAX_GROUPS
        if best and share and (share >= SIMILARITY or full):
            best[0][:] = [a if a == b else _PARAMETER for a, b in zip(best[0], form, strict=True)]
            best[1].append(index)
        elif full:
            rest.append(index)
        else:
            bucket.append((list(form), [index]))
            groups.append(bucket[-1][1])
    return groups, rest


def _fixed(token: str) -> str:
    return _PARAMETER if MARK in token or _PARAMETER in token else token


def similarity(template: Sequence[str], form: Sequence[str]) -> float:
    """Return the share of equal tokens, 0 where two differing ones cannot be values of one parameter."""
    differing, words = 0.0, 0
    for left, right in zip(template, form, strict=True):
        if left in (right, _PARAMETER):
            continue
        if right == _PARAMETER:
            differing += 0.5
            continue
        differing += 1
        if _WORD.fullmatch(left) and _WORD.fullmatch(right):
            words += 1
        if words > MAX_DIFFERING_WORDS or _tell_apart(left, right):
            return 0.0
    return 1 - differing / len(form)


def _tell_apart(left: str, right: str) -> bool:
    keys = key_of(left), key_of(right)
    if all(keys) and keys[0] != keys[1]:
        return True
    return _STATE.fullmatch(left) is not None and _STATE.fullmatch(right) is not None


def _by_category(forms: Sequence[tuple[str, ...]], sizes: Sequence[int], group: list[int]) -> list[list[int]]:
    """Part a group by those `key=value` that have few values."""
    parts = [group]
    if len(group) > 1:
        for at, first in enumerate(forms[group[0]]):
            if key_of(first):
                parts = [each for part in parts for each in _parted(part, sizes, lambda form, at=at: forms[form][at])]  # type: ignore[misc]
    return parts


def _parted(part: list[int], sizes: Sequence[int], value: Callable[[int], str]) -> list[list[int]]:
    counts: Counter[str] = Counter()
    members: defaultdict[str, list[int]] = defaultdict(list)
    for form in part:
        counts[value(form)] += sizes[form]
        members[value(form)].append(form)
    few = len(counts) <= MAX_CATEGORIES and counts.total() >= 2 * len(counts)
    if not few or any(MARK in each or _PARAMETER in each or not key_of(each) for each in counts):
        return [part]
    return list(members.values())
