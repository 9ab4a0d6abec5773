"""Bounding a list of patterns so that its counts still add up: like ones are joined, then the rest becomes one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from tools.logs.levels import telling_rank
from tools.logs.patterns import PatternCount
from tools.logs.request import LogPattern, PatternValues
from tools.logs.timestamps import FormatTime
from tools.masking import MASK
from tools.placeholders import ANY, OTHER

MAX_PATTERNS = 50
"""Patterns in a backend's answer."""
MIN_JOINED_TOKENS = 4
"""Shorter templates that differ in one token have too little in common to be joined."""
_MAX_COMPARED = 300

Fits = Callable[[Sequence[LogPattern]], bool]


def response_patterns(patterns: Iterable[PatternCount], format_time: FormatTime) -> list[LogPattern]:
    """Return at most 50 patterns, trouble first, then frequent ones; their counts add up to that of all."""
    ranked = sorted(patterns, key=lambda item: (-item.rank, -item.count, -(item.last or 0.0), item.tokens))
    return bounded([_listed(item, format_time) for item in ranked], lambda listed: len(listed) <= MAX_PATTERNS)


def _listed(item: PatternCount, format_time: FormatTime) -> LogPattern:
    template, values = item.template, item.values
    return LogPattern(
        template=template,
        count=item.count,
        first=format_time(item.first),
        last=format_time(item.last),
        # Numbers of a template that holds a secret may be of the secret.
        values=PatternValues(min=values[0], max=values[1]) if values and MASK not in template else None,
    )


def bounded(patterns: Sequence[LogPattern], fits: Fits) -> list[LogPattern]:
    """Return patterns (most telling first) that fit, their counts adding up to the same sum.

    Templates that differ in one token are joined first, the largest families before others; then those that do not fit
    become one last entry `<other patterns>`, which is there even if nothing fits.
    """
    items = [pattern for pattern in patterns if pattern.template != OTHER]
    rest = [pattern for pattern in patterns if pattern.template == OTHER]
    if not fits([*items, *rest]):
        items = _join_alike(items, lambda joined: fits([*joined, *rest]))
    if not rest and fits(items):
        return items
    kept: list[LogPattern] = []
    for at, item in enumerate(items):
        left_out = [*rest, *items[at + 1 :]]
        if fits([*kept, item, *([_joined(left_out, OTHER)] if left_out else [])]):
            kept.append(item)
        else:
            rest.append(item)
    return [*kept, _joined(rest, OTHER)] if rest else kept


def _join_alike(patterns: list[LogPattern], enough: Fits) -> list[LogPattern]:
    """Join families of templates that differ in one token, until it is enough."""
    joined: dict[int, LogPattern | None] = dict(enumerate(patterns))
    taken: set[int] = set()
    for (_, at, _), members in _families(patterns[:_MAX_COMPARED]):
        free = [index for index in members if index not in taken]
        if len(free) < 2:
            continue
        taken.update(free)
        tokens = patterns[free[0]].template.split()
        tokens[at] = ANY
        joined |= dict.fromkeys(free[1:])
        joined[free[0]] = _joined([patterns[index] for index in free], " ".join(tokens))
        if enough([item for item in joined.values() if item]):
            break
    return [item for item in joined.values() if item]


def _families(patterns: Sequence[LogPattern]) -> list[tuple[tuple[int, int, str], list[int]]]:
    """Return groups of positions whose templates are equal but for one token and promise as much, largest first."""
    found: dict[tuple[int, int, str], list[int]] = {}
    for index, pattern in enumerate(patterns):
        tokens = pattern.template.split()
        if len(tokens) < MIN_JOINED_TOKENS:
            continue
        rank = telling_rank(None, pattern.template)
        for at in range(len(tokens)):
            key = (rank, at, " ".join([*tokens[:at], *tokens[at + 1 :]]))
            found.setdefault(key, []).append(index)
    return sorted(
        ((key, members) for key, members in found.items() if len(members) > 1), key=lambda item: -len(item[1])
    )


def _joined(patterns: Sequence[LogPattern], template: str) -> LogPattern:
    ranges = [pattern.values for pattern in patterns if pattern.values]
    values = None
    if template != OTHER and len(ranges) == len(patterns):
        least, most = min((item.min for item in ranges), key=float), max((item.max for item in ranges), key=float)
        values = PatternValues(min=least, max=most)
    return LogPattern(
        template=template,
        count=sum(pattern.count for pattern in patterns),
        first=min(_told(pattern.first for pattern in patterns), key=_moment, default=None),
        last=max(_told(pattern.last for pattern in patterns), key=_moment, default=None),
        values=values,
    )


def _told(times: Iterable[str | None]) -> list[str]:
    return [time for time in times if time]


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0
