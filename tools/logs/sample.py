"""From the newest candidates a server gave to a response: match them here again, group, choose (R128). Pure.

Servers cannot say everything the query language says. They are asked for what every match must have; what came back is
matched with the same predicate that the files backend uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from tools.catalog import TopicEntry
from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.logs.backend import ParsedQuery
from tools.logs.collect import build_event
from tools.logs.events import MAX_ATTRIBUTE_CHARS, EventView
from tools.logs.levels import level_counts, telling_rank
from tools.logs.match import compile_predicate
from tools.logs.pattern_list import response_patterns
from tools.logs.patterns import Grouping, PatternGrouper
from tools.logs.query import needles
from tools.logs.request import LogEvent, QueryLogsResponse
from tools.logs.scan import Window
from tools.logs.select import Candidate, choose
from tools.logs.timestamps import FormatTime, time_formatter

_ROLES = frozenset({"level", "service", "instance"})


@dataclass(frozen=True, slots=True)
class Found:
    """One candidate; `epoch` in seconds."""

    epoch: float | None
    view: EventView


@dataclass(frozen=True, slots=True)
class Sample:
    """The newest candidates of the window, newest first.

    `more`: the server has older candidates that were not fetched. `matching` is the server's count of matches where it
    can be trusted to count the same thing. `partial`: the server itself says that its answer is not whole.
    """

    found: tuple[Found, ...]
    more: bool
    partial: bool = False
    matching: int | None = None


@dataclass(frozen=True, slots=True)
class _Match:
    found: Found
    rank: int


def make_response(
    topic: TopicEntry, query: ParsedQuery, window: Window, sample: Sample, limit: int
) -> QueryLogsResponse:
    """Make the answer. Raises ToolFailure with PARTIAL_RESULT when nothing matched and not everything was seen."""
    matches = list(_matches(sample.found, query))
    incomplete = sample.partial or sample.more
    if incomplete and not matches:
        raise ToolFailure(ToolErrorCode.PARTIAL_RESULT)
    counted = sample.matching if sample.matching is not None and len(matches) == len(sample.found) else None
    total = max(len(matches), counted or 0)
    format_time = time_formatter(ZoneInfo(topic.timezone))
    grouping, places = _grouped(matches)
    candidates = [
        Candidate(place, match.rank, grouping.patterns[place].count)
        for place, match in zip(places, matches, strict=True)
    ]
    events = [_event(matches[index].found, query, format_time) for index in choose(candidates, limit)]
    return QueryLogsResponse(
        topic=topic.name,
        query=query.text,
        from_=format_time(_searched_from(window, sample, counted)),
        to=format_time(window.end),
        total=total,
        total_is_lower_bound=incomplete,
        returned=len(events),
        truncated=incomplete or total > len(events),
        events=events,
        patterns=response_patterns(grouping.patterns, format_time),
        levels=level_counts(Counter(match.found.view.level for match in matches)),
        notes=_notes(sample),
    )


def _matches(found: Iterable[Found], query: ParsedQuery) -> Iterable[_Match]:
    predicate = compile_predicate(query.node)
    for item in found:
        if predicate(item.view):
            yield _Match(item, telling_rank(item.view.level, item.view.message[:2000]))


def _grouped(matches: Sequence[_Match]) -> tuple[Grouping, list[int]]:
    """Return the patterns, and which of them each match has."""
    grouper = PatternGrouper()
    shapes = grouper.add(
        [match.found.view.message for match in matches],
        [match.found.epoch for match in matches],
        [match.rank for match in matches],
    )
    return grouper.grouping, [grouper.grouping.places[shape] for shape in shapes]


def _searched_from(window: Window, sample: Sample, counted: int | None) -> float:
    """Return how far back was searched: to the oldest candidate when older ones were neither fetched nor counted."""
    if not sample.more or counted is not None:
        return window.start
    return min((item.epoch for item in sample.found if item.epoch is not None), default=window.start)


def _event(found: Found, query: ParsedQuery, format_time: FormatTime) -> LogEvent:
    event = build_event(found.view, format_time(found.epoch), needles(query.node))
    shown = (event.level, event.service, event.instance)
    labels = {
        name: value[:MAX_ATTRIBUTE_CHARS]
        for name, value in (found.view.labels or {}).items()
        if name not in _ROLES and value not in shown
    }
    return event.model_copy(update={"attributes": event.attributes | labels}) if labels else event


def _notes(sample: Sample) -> list[str]:
    told = (
        (sample.partial, "the server's answer was partial"),
        (sample.more, f"only the newest {len(sample.found)} candidates were fetched"),
    )
    return [text for happened, text in told if happened]
