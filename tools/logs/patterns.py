"""Grouping messages into patterns. What varies becomes a placeholder, what is the same in all of them stays as it was written.

A message is only given its shape, its text with every number as 0, when it is added. The rest is done for a whole batch, when
patterns are asked for: a shape becomes a fixed text with a slot for every number, address and id, like texts become one
pattern (`pattern_merge`), and the slots take in the values of all lines. Pure but for the grouper's own tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import chain

from tools.logs.excerpt import GAP
from tools.logs.pattern_merge import key_of, merge_texts
from tools.logs.slots import Slot, TokenParts, digit_runs, fill, joined, new_slots, runs_of, shapes_of
from tools.masking import mask_text
from tools.placeholders import ANY, OTHER

MAX_TEMPLATE_CHARS = 400
_CUT_END_CHARS = 160
"""Left out at the end of a cut line: half a secret is not recognised as one."""
_MAX_TOKENS = 60
_MAX_SHAPES = 20_000
_MAX_LINES = 20_000
"""Different lines kept until their values are taken in."""


@dataclass(slots=True)
class PatternCount:
    """One pattern. `rank` is the highest telling rank of its events (see `levels.telling_rank`).

    `tokens` hold a mark for each slot, `slots` has one tuple per token. `cut` is None where the tokens are the whole
    first line, else how many characters to leave out at their end.
    """

    tokens: list[str]
    slots: list[tuple[Slot, ...]]
    cut: int | None = None
    count: int = 0
    first: float | None = None
    last: float | None = None
    rank: int = 0

    @property
    def template(self) -> str:
        """The pattern as text: placeholders for what varies, secrets masked; a lone event's own first line."""
        parts = list(zip(self.tokens, self.slots, strict=True))
        shown = [fill(token, [slot.shown for slot in slots]) if slots else token for token, slots in parts]
        written = [fill(token, [slot.first for slot in slots]) if slots else token for token, slots in parts]
        text = " ".join(_masked(shown, written))
        return text if self.cut is None else f"{text[: max(0, len(text) - self.cut)].rstrip()} {GAP}"

    @property
    def values(self) -> tuple[str, str] | None:
        """Least and greatest value of the one measured number that varies, as written; None where it is not one."""
        ranges = [slot.range for slots in self.slots for slot in slots if slot.range]
        if len(ranges) > 1:
            ranges = [found for found in ranges if "." in found[0] + found[1]]
        return ranges[0] if len(ranges) == 1 else None


def _masked(shown: list[str], written: list[str]) -> list[str]:
    """Mask secrets in a template. They are looked for in a line as written: placeholders inside would hide them."""
    line = " ".join(written)
    masked = mask_text(line)
    if masked == line:
        return shown
    tokens = masked.split(" ")
    steps = SequenceMatcher(None, written, tokens, autojunk=False).get_opcodes()
    parts = (shown[a:b] if kind == "equal" else tokens[c:d] for kind, a, b, c, d in steps)
    return list(chain.from_iterable(parts))


@dataclass(frozen=True, slots=True)
class Grouping:
    """Patterns in order of their first message. `places[number]` is the pattern of what `add` numbered so."""

    patterns: list[PatternCount]
    places: list[int]


@dataclass(slots=True)
class _Shape:
    """Messages that differ in digits only. `pending`: lines whose values are to be taken in."""

    index: int
    line: str
    cut: int | None
    pending: list[str] = field(default_factory=list)
    text: _Text | None = None
    values: Sequence[str] = ()
    count: int = 0
    first: float | None = None
    last: float | None = None
    rank: int = 0


@dataclass(slots=True)
class _Text:
    """A fixed text. `slots` are those of `by_token` in one row, and of what was cut."""

    tokens: list[str]
    by_token: list[tuple[Slot, ...]]
    slots: list[Slot]
    cut: int | None
    shapes: list[_Shape] = field(default_factory=list)
    rows: list[Sequence[str]] = field(default_factory=list)


@dataclass(slots=True)
class _Lines:
    """Different lines in the order they came, by their place: how often each was met, when, and its highest rank."""

    places: dict[str, int] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    times: dict[int, tuple[float, float]] = field(default_factory=dict)
    ranks: dict[int, int] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)


@dataclass(slots=True)
class PatternGrouper:
    """Takes messages one by one and groups them all at once; equal input in equal order gives equal patterns."""

    _lines: _Lines = field(default_factory=_Lines)
    _shape_of_line: list[int] = field(default_factory=list)
    _shapes: list[_Shape] = field(default_factory=list)
    _parts: TokenParts = field(default_factory=TokenParts)
    _by_shape: dict[bytes, _Shape] = field(default_factory=dict)
    _texts: list[_Text] = field(default_factory=list)
    _by_text: dict[str, _Text] = field(default_factory=dict)
    _grouping: Grouping | None = None

    def add(self, message: str, epoch: float | None, rank: int) -> int:
        """Count a message and return the number of its line, to be looked up in `Grouping.places`."""
        line = message.split("\n", 1)[0] if "\n" in message else message
        lines, start = self._lines, line[:MAX_TEMPLATE_CHARS]
        counts = lines.counts
        place = lines.places.setdefault(start, len(counts))
        if place < len(counts):
            counts[place] += 1
        else:
            counts.append(1)
            if len(line) > MAX_TEMPLATE_CHARS:
                lines.cut.add(place)
        if rank > lines.ranks.get(place, 0):
            lines.ranks[place] = rank
        if epoch is not None:
            first, last = lines.times.get(place, (epoch, epoch))
            lines.times[place] = min(first, epoch), max(last, epoch)
        number = len(self._shape_of_line) + place
        self._grouping = None
        if len(counts) >= _MAX_LINES:
            self._take_in()
        return number

    @property
    def grouping(self) -> Grouping:
        """All messages so far as patterns whose counts add up to their number."""
        if self._grouping is None:
            self._take_in()
            self._grouping = self._group()
        return self._grouping

    def _take_in(self) -> None:
        """Give each line its shape, each new shape its text, and each slot the values of the lines that came."""
        if not self._lines.counts:
            return
        lines, self._lines = self._lines, _Lines()
        for place, (line, key) in enumerate(zip(lines.places, shapes_of(list(lines.places)), strict=True)):
            shape = self._by_shape.get(key) or self._new_shape(key, line, place in lines.cut)
            shape.pending.append(line)
            shape.count += lines.counts[place]
            self._shape_of_line.append(shape.index)
        self._take_in_times(lines)
        for shape in self._shapes:
            if shape.pending:
                self._take_in_values(shape)
        for text in self._texts:
            if text.rows:
                for slot, column in zip(text.slots, zip(*text.rows, strict=True), strict=False):
                    slot.add(set(column))
                text.rows.clear()

    def _take_in_times(self, lines: _Lines) -> None:
        """Give shapes the times and ranks of their lines, which are the latest ones."""
        shapes = self._shape_of_line[len(self._shape_of_line) - len(lines.counts) :]
        for place, rank in lines.ranks.items():
            shape = self._shapes[shapes[place]]
            shape.rank = max(shape.rank, rank)
        for place, (first, last) in lines.times.items():
            shape = self._shapes[shapes[place]]
            shape.first = first if shape.first is None else min(shape.first, first)
            shape.last = last if shape.last is None else max(shape.last, last)

    def _new_shape(self, key: bytes, line: str, cut: bool) -> _Shape:
        if len(self._shapes) < _MAX_SHAPES:
            shape = self._by_shape[key] = _Shape(len(self._shapes), line, _CUT_END_CHARS if cut else None)
            self._shapes.append(shape)
            return shape
        # No line has this shape: zeros are never side by side.
        shape = self._by_shape.setdefault(b"00", _Shape(len(self._shapes), OTHER, None))
        if shape.index == len(self._shapes):
            self._shapes.append(shape)
        return shape

    def _take_in_values(self, shape: _Shape) -> None:
        if shape.text is None:
            shape.text = self._text(shape)
        if shape.values and shape.pending != [shape.line]:
            _take_in_runs(shape.text.slots, shape)
        shape.pending.clear()

    def _text(self, shape: _Shape) -> _Text:
        parts = [self._parts[token] for token in shape.line.split() or [""]]
        shape.values = [value for _, values in parts if values for value in values]
        key = " ".join([fixed for fixed, _ in parts])
        text = self._by_text.get(key)
        if text is None:
            slots = [new_slots(fixed, values) for fixed, values in parts]
            cut = 0 if len(parts) > _MAX_TOKENS else shape.cut
            tokens = [fixed for fixed, _ in parts[:_MAX_TOKENS]]
            text = self._by_text[key] = _Text(tokens, slots[:_MAX_TOKENS], list(chain.from_iterable(slots)), cut)
            self._texts.append(text)
        elif shape.values:
            text.rows.append(shape.values)
        text.shapes.append(shape)
        return text

    def _group(self) -> Grouping:
        counts = [sum(shape.count for shape in text.shapes) for text in self._texts]
        groups, rest = merge_texts([text.tokens for text in self._texts], counts)
        patterns = [_pattern([self._texts[index] for index in group]) for group in groups]
        if rest:
            groups = [*groups, rest]
            patterns.append(_counted(PatternCount([OTHER], [()]), [self._texts[index] for index in rest]))
        of_shape = [0] * len(self._shapes)
        for place, group in enumerate(groups):
            for index in group:
                for shape in self._texts[index].shapes:
                    of_shape[shape.index] = place
        return Grouping(patterns, [of_shape[shape] for shape in self._shape_of_line])


def _take_in_runs(slots: Sequence[Slot], shape: _Shape) -> None:
    """Lines of one shape have as many runs of digits each: those of one slot stand in columns."""
    lines = [shape.line, *shape.pending]
    runs = digit_runs(lines)
    width = len(runs) // len(lines)
    at = 0
    for slot, value in zip(slots, shape.values, strict=True):
        count = runs_of(value)
        slot.add_runs([runs[at + step :: width] for step in range(count)])
        at += count


def _pattern(texts: Sequence[_Text]) -> PatternCount:
    """Join texts of one length: tokens that differ become a wildcard, after their key if they have the same."""
    first = texts[0]
    if len(texts) == 1:
        return _counted(PatternCount(first.tokens, first.by_token), texts)
    tokens: list[str] = []
    slots: list[tuple[Slot, ...]] = []
    parts = zip(*(text.by_token for text in texts), strict=True)
    for column, alike in zip(zip(*(text.tokens for text in texts), strict=True), parts, strict=True):
        token = column[0]
        if column.count(token) == len(column):
            tokens.append(token)
            slots.append(tuple(map(joined, zip(*alike, strict=True))) if alike[0] else ())
        else:
            keys = set(map(key_of, column))
            tokens.append((keys.pop() if len(keys) == 1 else "") + ANY)
            slots.append(())
    return _counted(PatternCount(tokens, slots), texts)


def _counted(pattern: PatternCount, texts: Sequence[_Text]) -> PatternCount:
    pattern.cut = max((text.cut for text in texts if text.cut is not None), default=None)
    shapes = [shape for text in texts for shape in text.shapes]
    pattern.count = sum([shape.count for shape in shapes])
    pattern.first = min([shape.first for shape in shapes if shape.first is not None], default=None)
    pattern.last = max([shape.last for shape in shapes if shape.last is not None], default=None)
    pattern.rank = max([shape.rank for shape in shapes])
    return pattern
