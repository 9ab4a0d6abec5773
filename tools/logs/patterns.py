"""Grouping messages into patterns. What varies becomes a placeholder, what is the same in all of them stays as it was written.

Messages are added in batches. Lines that differ in digits only have one shape, shapes whose numbers, addresses and ids are
slots have one fixed text, and like texts become one pattern when patterns are asked for (`pattern_merge`). Pure but for the
grouper's own tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import chain, compress, repeat

from tools.logs.excerpt import GAP
from tools.logs.pattern_merge import key_of, merge_texts
from tools.logs.slots import (
    MARK,
    Span,
    digit_runs,
    fill,
    fixed_texts,
    measured,
    shape_keys,
    spans_of,
    told,
    wider,
    zeroed,
)
from tools.masking import mask_text
from tools.placeholders import ANY, OTHER

MAX_TEMPLATE_CHARS = 400
_CUT_END_CHARS = 160
"""Left out at the end of a cut line: half a secret is not recognised as one."""
_MAX_TOKENS = 60
_MAX_SHAPES = 20_000
_OTHER_KEY = b"00"
"""No line has this shape: zeros are never side by side."""


def first_line(message: str) -> str:
    """Return the part of a message that is grouped: its first line, one character longer than a template if it is cut."""
    start = message[: MAX_TEMPLATE_CHARS + 1]
    return start.split("\n", 1)[0] if "\n" in start else start


@dataclass(slots=True)
class PatternCount:
    """One pattern. `rank` is the highest telling rank of its events (see `levels.telling_rank`).

    `tokens` hold a mark for each slot; `first` and `shown` are the slots' values in the first line and in the template.
    `ranges` are those of measured numbers that vary. `cut` is None where the tokens are the whole first line, else how many
    characters to leave out at their end.
    """

    tokens: list[str]
    first_values: list[str]
    shown: list[str]
    ranges: list[tuple[str, str]]
    cut: int | None = None
    count: int = 0
    first: float | None = None
    last: float | None = None
    rank: int = 0

    @property
    def template(self) -> str:
        """The pattern as text: placeholders for what varies, secrets masked; a lone event's own first line."""
        fixed = " ".join(self.tokens)
        written = fill(fixed, self.first_values)
        text = written if self.shown == self.first_values else fill(fixed, self.shown)
        masked = mask_text(written)  # placeholders inside would hide a secret
        if masked != written:
            text = _masked(text, written, masked)
        return text if self.cut is None else f"{text[: max(0, len(text) - self.cut)].rstrip()} {GAP}"

    @property
    def values(self) -> tuple[str, str] | None:
        """Least and greatest value of the one measured number that varies, as written; None where it is not one."""
        ranges = self.ranges
        if len(ranges) > 1:
            ranges = [found for found in ranges if "." in found[0] + found[1]]
        return ranges[0] if len(ranges) == 1 else None


def _masked(shown: str, written: str, masked: str) -> str:
    """Mask in a template what was masked in its line as it was written."""
    tokens, others = shown.split(" "), masked.split(" ")
    steps = SequenceMatcher(None, written.split(" "), others, autojunk=False).get_opcodes()
    return " ".join(chain.from_iterable(tokens[a:b] if kind == "equal" else others[c:d] for kind, a, b, c, d in steps))


@dataclass(frozen=True, slots=True)
class Grouping:
    """Patterns in order of their first message. `places[shape]` is the pattern of the shape that `add` returned."""

    patterns: list[PatternCount]
    places: list[int]


@dataclass(slots=True, eq=False)
class _Shape:
    """Messages that differ in digits only, which stand in `width` runs a line. `values` are those of the first line.

    `spans` are what the others were found to have in the slots.
    """

    place: int
    line: str
    width: int
    values: list[str]
    text: _Text
    spans: Sequence[Span] = ()
    count: int = 0
    first: float | None = None
    last: float | None = None
    rank: int = 0

    def take_in_time(self, epoch: float) -> None:
        self.first = epoch if self.first is None else min(self.first, epoch)
        self.last = epoch if self.last is None else max(self.last, epoch)

    def compare(self, lines: Sequence[str]) -> None:
        """Find what differs between lines."""
        spans = spans_of(self.values, self.text.numbers, digit_runs(lines), self.width)
        self.spans = wider(self.spans, spans) if self.spans else spans


@dataclass(slots=True, eq=False)
class _Text:
    """A fixed text. `numbers`: which of its slots can be measured numbers."""

    tokens: list[str]
    numbers: list[bool]
    cut: int | None
    shapes: list[_Shape] = field(default_factory=list)


@dataclass(slots=True)
class PatternGrouper:
    """Takes messages in batches; equal ones in equal order give equal patterns, whatever the batches."""

    _shapes: list[_Shape] = field(default_factory=list)
    _places: dict[bytes, int] = field(default_factory=dict)
    _texts: dict[str, _Text] = field(default_factory=dict)
    _grouping: Grouping | None = None

    def add(self, messages: Sequence[str], epochs: Iterable[float | None] = (), ranks: Iterable[int] = ()) -> list[int]:
        """Count messages and return the shape of each, to be looked up in `Grouping.places`."""
        if not messages:
            return []
        self._grouping = None
        different = dict.fromkeys(messages)
        place_of = dict(zip(different, self._places_of(different), strict=True))
        found = list(map(place_of.__getitem__, messages))
        shapes = self._shapes
        for place, count in Counter(found).items():
            shapes[place].count += count
        for place, rank in set(zip(found, ranks, strict=False)):
            shapes[place].rank = max(shapes[place].rank, rank)
        for place, epoch in zip(found, epochs, strict=False):
            if epoch is not None:
                shapes[place].take_in_time(epoch)
        return found

    @property
    def grouping(self) -> Grouping:
        """All messages so far as patterns whose counts add up to their number."""
        if self._grouping is None:
            self._grouping = _group(list(self._texts.values()), len(self._shapes))
        return self._grouping

    def _places_of(self, messages: Iterable[str]) -> list[int]:
        lines, cut = _starts(messages)
        forms = defaultdict[bytes, int]()
        forms.default_factory = forms.__len__
        form_of = list(map(forms.__getitem__, zeroed(lines)))
        first_of = dict(zip(reversed(form_of), reversed(lines), strict=True))
        keys = shape_keys(forms)
        known = len(self._shapes)
        self._learn(keys, map(first_of.__getitem__, range(len(keys))), cut)
        place_of = list(map(self._places.get, keys, repeat(self._places.get(_OTHER_KEY, 0))))
        places = list(map(place_of.__getitem__, form_of))
        self._compare(places, lines, known)
        return places

    def _compare(self, places: Sequence[int], lines: Sequence[str], known: int) -> None:
        """Find what differs between the lines of each shape; the first one of a known shape is not among them."""
        lines_of = defaultdict[int, list[str]](list)
        for place, line in zip(places, lines, strict=True):
            lines_of[place].append(line)
        for place, alike in lines_of.items():
            shape = self._shapes[place]
            if shape.values and (len(alike) > 1 or place < known):
                shape.compare([shape.line, *alike] if place < known else alike)

    def _learn(self, keys: Iterable[bytes], lines: Iterable[str], cut: Container[str]) -> None:
        """Make a shape for each new key, or one for all that find no room."""
        known = self._places
        new: dict[bytes, str] = {}
        for key, line in zip(keys, lines, strict=True):
            if key not in known and key not in new:
                kept = len(known) + len(new) < _MAX_SHAPES
                new.setdefault(key if kept else _OTHER_KEY, line if kept else OTHER)
        for (key, line), (fixed, values) in zip(new.items(), fixed_texts(new.values()), strict=True):
            text = self._texts.get(fixed)
            if text is None:
                text = self._texts[fixed] = _new_text(fixed, line in cut)
            known[key] = len(self._shapes)
            shape = _Shape(len(self._shapes), line, key.count(b"0"), values, text)
            self._shapes.append(shape)
            text.shapes.append(shape)


def _starts(messages: Iterable[str]) -> tuple[list[str], set[str]]:
    """Return the first lines of messages, at most as long as a template, and those that were longer."""
    lines = list(messages)
    cut = set()
    for at, line in enumerate(lines):
        if len(line) > MAX_TEMPLATE_CHARS or "\n" in line:
            start = first_line(line)
            lines[at] = start[:MAX_TEMPLATE_CHARS]
            if len(start) > MAX_TEMPLATE_CHARS:
                cut.add(lines[at])
    return lines, cut


def _new_text(fixed: str, cut: bool) -> _Text:
    tokens = fixed.split() or [""]
    if len(tokens) <= _MAX_TOKENS:
        return _Text(tokens, measured(fixed), _CUT_END_CHARS if cut else None)
    return _Text(tokens[:_MAX_TOKENS], measured(" ".join(tokens[:_MAX_TOKENS])), 0)


def _group(texts: Sequence[_Text], shapes: int) -> Grouping:
    counts = [sum([shape.count for shape in text.shapes]) for text in texts]
    groups, rest = merge_texts([text.tokens for text in texts], counts)
    patterns = [_pattern([texts[index] for index in group]) for group in groups]
    if rest:
        groups = [*groups, rest]
        patterns.append(_counted([OTHER], [], [], [], [texts[index] for index in rest]))
    places = [0] * shapes
    for place, group in enumerate(groups):
        for index in group:
            for shape in texts[index].shapes:
                places[shape.place] = place
    return Grouping(patterns, places)


def _pattern(texts: Sequence[_Text]) -> PatternCount:
    """Join texts of one length: tokens that differ become a wildcard, after their key if they have the same."""
    tokens, numbers = texts[0].tokens, texts[0].numbers
    if len(texts) == 1:
        shapes = texts[0].shapes
        rows, spans = [shape.values for shape in shapes], [shape.spans for shape in shapes if shape.spans]
    else:
        columns = list(zip(*[text.tokens for text in texts], strict=True))
        alike = [column.count(column[0]) == len(column) for column in columns]
        tokens = [column[0] if same else _wildcard(column) for same, column in zip(alike, columns, strict=True)]
        rows, spans = [], []
        for text in texts:
            kept = _kept_slots(text.tokens, alike)
            numbers = list(compress(text.numbers, kept))
            rows += [list(compress(shape.values, kept)) for shape in text.shapes]
            spans += [list(compress(shape.spans, kept)) for shape in text.shapes if shape.spans]
    shown, ranges = told(rows, spans, numbers)
    return _counted(tokens, rows[0][: len(numbers)], shown, ranges, texts)


def _wildcard(tokens: Sequence[str]) -> str:
    keys = set(map(key_of, tokens))
    return (keys.pop() if len(keys) == 1 else "") + ANY


def _kept_slots(tokens: Sequence[str], kept: Sequence[bool]) -> list[bool]:
    """Say of each slot whether its token is kept."""
    return [keep for token, keep in zip(tokens, kept, strict=True) if MARK in token for _ in range(token.count(MARK))]


def _counted(
    tokens: list[str], first: list[str], shown: list[str], ranges: list[tuple[str, str]], texts: Sequence[_Text]
) -> PatternCount:
    shapes = [shape for text in texts for shape in text.shapes]
    return PatternCount(
        tokens,
        first,
        shown,
        ranges,
        cut=max([text.cut for text in texts if text.cut is not None], default=None),
        count=sum([shape.count for shape in shapes]),
        first=min([shape.first for shape in shapes if shape.first is not None], default=None),
        last=max([shape.last for shape in shapes if shape.last is not None], default=None),
        rank=max([shape.rank for shape in shapes]),
    )
