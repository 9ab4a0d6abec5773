"""Collecting matches over the files of a topic in bounded memory, and turning them into a response."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tools.logs.events import EventCut, EventView
from tools.logs.excerpt import GAP, condense
from tools.logs.levels import level_counts, telling_rank
from tools.logs.pattern_list import response_patterns
from tools.logs.patterns import PatternGrouper, first_line
from tools.logs.request import LogEvent, LogPattern
from tools.logs.sections import Headings, section_text
from tools.logs.select import Candidate, choose
from tools.logs.timestamps import FormatTime
from tools.masking import mask_text

MAX_HITS = 20_000
"""Matches kept for the choice of events; an ordered file is scanned back until it gave so many."""
MAX_UNORDERED_HITS = 200_000
MAX_MESSAGE_CHARS = 4_000
"""Characters of one message in a backend's answer."""
_MAX_LABEL_CHARS = 64
_MAX_KEPT_BYTES = 64 * 1024 * 1024
_MAX_RAW_BYTES = 32 * 1024
_CHEAP_CHARS = 1000
_PRUNE_FROM = 3 * MAX_HITS
_BATCH = 10_000
"""Matches grouped at once."""
_SEGMENT_CHARS = 8 * 1024
_MARGIN_CHARS = 600
_TRIM_CHARS = 300


@dataclass(frozen=True, slots=True)
class Hit:
    """One match: its order (newest first), and what its event is made from.

    `number`: how many matches were met before it. `headings`: see `sections.Sections`.
    """

    order: tuple[float, int, int]
    epoch: float | None
    file: str
    headings: Headings
    rank: int
    number: int
    event: EventView | LogEvent

    @property
    def shown_order(self) -> tuple[float, int, bool, int]:
        """Newest first; where nothing tells a time, from the file's beginning to its end."""
        newest, file, place = self.order
        return newest, file, self.epoch is None, -place if self.epoch is None else place


@dataclass(slots=True)
class Collector:
    """Counts every match and keeps the newest ones, and the newest of every shape of message."""

    needles: Sequence[str]
    total: int = 0
    hits: list[Hit] = field(default_factory=list)
    grouper: PatternGrouper = field(default_factory=PatternGrouper)
    by_level: Counter[str | None] = field(default_factory=Counter)
    _waiting: list[tuple[str, float | None, int]] = field(default_factory=list)
    _shapes: array[int] = field(default_factory=lambda: array("i"))
    _kept_bytes: int = 0

    def add(self, cut: EventCut, view: EventView, file: int, label: str, offset: int, headings: Headings = ()) -> None:
        """Count one match; `offset` is its place in the file numbered `file`, `label` is shown with the event."""
        epoch = None if cut.implied else cut.epoch
        message, level = view.message, view.level
        rank = telling_rank(level, message[:2000])
        self.by_level[level] += 1
        newest = float("inf") if cut.epoch is None else -cut.epoch
        self.hits.append(Hit((newest, file, -offset), epoch, label, headings, rank, self.total, self._keep(view)))
        self.total += 1
        self._waiting.append((first_line(message), epoch, rank))
        if len(self._waiting) >= _BATCH:
            self._group()
        if len(self.hits) >= _PRUNE_FROM:
            self._prune()

    def _keep(self, view: EventView) -> EventView | LogEvent:
        if len(view.raw) > _MAX_RAW_BYTES:
            return build_event(view, None, self.needles)
        if self._kept_bytes > _MAX_KEPT_BYTES:
            event = build_event(view, None, self.needles)
            return event.model_copy(update={"message": condense(mask_text(event.message), _CHEAP_CHARS, self.needles)})
        self._kept_bytes += len(view.raw)
        return EventView(view.raw, view.stamp_end)

    def _group(self) -> None:
        """Give the matches that wait their shapes."""
        if self._waiting:
            self._shapes.extend(self.grouper.add(*zip(*self._waiting, strict=True)))
            self._waiting.clear()

    def _prune(self) -> None:
        self._group()
        self.hits.sort(key=lambda hit: hit.order)
        seen: set[int] = set()
        kept = []
        for index, hit in enumerate(self.hits):
            shape = self._shapes[hit.number]
            if index < MAX_HITS or shape not in seen:
                kept.append(hit)
            seen.add(shape)
        self.hits = kept

    def events(self, limit: int, several: bool, format_time: FormatTime) -> list[LogEvent]:
        """Choose at most `limit` events, newest first, lines without a time in file order.

        `several`: name each event's file.
        """
        self._group()
        self.hits.sort(key=lambda hit: hit.order)
        grouping = self.grouper.grouping
        places = [grouping.places[self._shapes[hit.number]] for hit in self.hits]
        candidates = [
            Candidate(place, hit.rank, grouping.patterns[place].count)
            for place, hit in zip(places, self.hits, strict=True)
        ]
        chosen = sorted((self.hits[index] for index in choose(candidates, limit)), key=lambda hit: hit.shown_order)
        return [self._event(hit, several, format_time) for hit in chosen]

    def _event(self, hit: Hit, several: bool, format_time: FormatTime) -> LogEvent:
        event = hit.event if isinstance(hit.event, LogEvent) else build_event(hit.event, None, self.needles)
        place = {"section": section_text(hit.headings)} if hit.headings else {}
        if several:
            place["file"] = _short(hit.file)
        return event.model_copy(
            update={"timestamp": format_time(hit.epoch), "attributes": {**event.attributes, **place}}
        )

    def patterns(self, format_time: FormatTime) -> list[LogPattern]:
        """Return at most 50 patterns whose counts add up to the total."""
        self._group()
        return response_patterns(self.grouper.grouping.patterns, format_time)

    def levels(self) -> dict[str, int]:
        """Return how many matches stated which level; the counts add up to the total."""
        return level_counts(self.by_level)


def _short(label: str) -> str:
    return label if len(label) <= _MAX_LABEL_CHARS else f"{label[: _MAX_LABEL_CHARS // 2]}{GAP}{label[-30:]}"


def build_event(view: EventView, timestamp: str | None, needles: Sequence[str]) -> LogEvent:
    """Make the response's event; a message beyond 4,000 characters is masked, then condensed."""
    message = view.message
    if len(message) > MAX_MESSAGE_CHARS:
        message = condense(_masked_segments(message, needles), MAX_MESSAGE_CHARS, needles)
    return LogEvent(
        timestamp=timestamp,
        level=view.level,
        service=view.service,
        instance=view.instance,
        message=message,
        attributes=dict(view.attributes),
    )


def _masked_segments(text: str, needles: Sequence[str]) -> str:
    """Mask a long text; of a very long one only its head, its end and the surroundings of a needle.

    Segments are masked with a margin that is dropped afterwards, so that no secret is cut in two and thereby shown.
    """
    if len(text) <= 4 * _SEGMENT_CHARS:
        return mask_text(text)
    lowered = text.lower()
    at = min((at for needle in needles if (at := lowered.find(needle)) >= 0), default=-1)
    parts = [_segment(text, 0, _SEGMENT_CHARS)]
    if _SEGMENT_CHARS < at < len(text) - _SEGMENT_CHARS:
        parts.append(_segment(text, at - _SEGMENT_CHARS // 2, at + _SEGMENT_CHARS // 2))
    parts.append(_segment(text, len(text) - _SEGMENT_CHARS, len(text)))
    joint = f"\n{GAP}\n" if "\n" in text else GAP
    return joint.join(parts)


def _segment(text: str, start: int, end: int) -> str:
    left, right = max(0, start - _MARGIN_CHARS), min(len(text), end + _MARGIN_CHARS)
    part = text[left:right]
    if left > 0:  # the end of a key whose beginning lies outside
        closing = part.find("-----END ")
        if closing >= 0 and not 0 <= part.find("-----BEGIN ") < closing:
            part = part[closing:]
    masked = mask_text(part)
    return masked[_TRIM_CHARS if left > 0 else 0 : len(masked) - (_TRIM_CHARS if right < len(text) else 0)]
