"""Grouping messages into patterns: apart from numbers, addresses and ids, messages of one length that share their first
two tokens and at least six tenths of all tokens become one template. What varies becomes a placeholder, what is the
same in all of them stays as it was written. Pure but for the grouper's own tables.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import chain

from tools.logs.excerpt import GAP
from tools.logs.slots import MARK, Slot, fill, measures, split_slots
from tools.masking import mask_text
from tools.placeholders import ANY, OTHER

SIMILARITY = 0.6
MAX_DIFFERING_WORDS = 1
"""Messages that differ in more plain words say different things (`certificate expired`, `connection refused`)."""
WILDCARD = ANY
MAX_TEMPLATE_CHARS = 400
_CUT_END_CHARS = 160
"""Left out at the end of a cut line: half a secret is not recognised as one."""
_MAX_TOKENS = 60
_MAX_PER_BUCKET = 60
_MAX_PATTERNS = 1000
_MAX_CACHE = 20_000
_WORD = re.compile(r"[^\W\d_]{2,}[.,:;!]?")

Slots = tuple[Slot | None, ...]
"""Slots of a text in order; None where the token they stood in differs anyway."""


@dataclass(slots=True)
class PatternCount:
    """One pattern while it grows. `rank` is the highest telling rank of its events (see `levels.telling_rank`).

    `tokens` hold a mark for each slot, `slots` has one tuple per token. `cut` is None where the tokens are the whole
    first line, else how many characters to leave out at their end.
    """

    tokens: list[str]
    slots: list[tuple[Slot, ...]] = field(default_factory=list)
    cut: int | None = None
    count: int = 0
    first: float | None = None
    last: float | None = None
    rank: int = 0

    @property
    def template(self) -> str:
        """The pattern as text: placeholders for what varies, secrets masked; a lone event's own first line."""
        shown = [fill(token, [slot.shown for slot in slots]) for token, slots in self._parts()]
        written = [fill(token, [slot.first for slot in slots]) for token, slots in self._parts()]
        text = " ".join(_masked(shown, written))
        return text if self.cut is None else f"{text[: max(0, len(text) - self.cut)].rstrip()} {GAP}"

    @property
    def values(self) -> tuple[str, str] | None:
        """Least and greatest value of the one measured number that varies, as written; None where it is not one."""
        ranges = [
            slot.range
            for token, slots in self._parts()
            for slot, measured in zip(slots, measures(token), strict=True)
            if measured and slot.range
        ]
        if len(ranges) > 1:
            ranges = [found for found in ranges if "." in found[0] + found[1]]
        return ranges[0] if len(ranges) == 1 else None

    def _parts(self) -> list[tuple[str, tuple[Slot, ...]]]:
        return list(zip(self.tokens, self.slots, strict=True))


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


@dataclass(slots=True)
class PatternGrouper:
    """Assigns messages to patterns one by one; equal input in equal order gives equal patterns."""

    patterns: list[PatternCount] = field(default_factory=list)
    _cache: dict[str, tuple[int, Slots]] = field(default_factory=dict)
    _buckets: dict[tuple[int, str, str], list[int]] = field(default_factory=dict)

    def add(self, message: str, epoch: float | None, rank: int) -> int:
        """Count a message and return the index of its pattern."""
        line = message.split("\n", 1)[0] if "\n" in message else message
        text, values = split_slots(line[:MAX_TEMPLATE_CHARS])
        known = self._cache.get(text)
        if known is None:
            known = self._assign(text, values, _CUT_END_CHARS if len(line) > MAX_TEMPLATE_CHARS else None)
            if len(self._cache) < _MAX_CACHE:
                self._cache[text] = known
        index, slots = known
        # The same fixed text has as many values as slots, unless all of it differs (`_other`).
        for slot, value in zip(slots, values):  # noqa: B905 - `strict=` is felt per message
            if slot is not None and value != slot.last:
                slot.last = value
                slot.add(value)
        pattern = self.patterns[index]
        pattern.count += 1
        if rank > pattern.rank:
            pattern.rank = rank
        if epoch is not None:
            if pattern.first is None or epoch < pattern.first:
                pattern.first = epoch
            if pattern.last is None or epoch > pattern.last:
                pattern.last = epoch
        return index

    def _assign(self, text: str, values: Sequence[str], cut: int | None) -> tuple[int, Slots]:
        every = text.split()
        tokens = every[:_MAX_TOKENS] or [""]
        if len(every) > _MAX_TOKENS:
            cut = 0
        key = (len(tokens), tokens[0], tokens[1] if len(tokens) > 1 else "")
        bucket = self._buckets.setdefault(key, [])
        best, best_share = -1, 0.0
        for index in bucket:
            share = _similarity(self.patterns[index].tokens, tokens)
            if share > best_share:
                best, best_share = index, share
        full = len(bucket) >= _MAX_PER_BUCKET or len(self.patterns) >= _MAX_PATTERNS
        if best >= 0 and (best_share >= SIMILARITY or full):
            self.patterns[best].cut = max(
                (each for each in (self.patterns[best].cut, cut) if each is not None), default=None
            )
            return best, _merge(self.patterns[best], tokens)
        if full and not bucket:
            return self._other(), ()
        pattern = PatternCount(tokens, _slots(tokens, values), cut)
        self.patterns.append(pattern)
        bucket.append(len(self.patterns) - 1)
        return len(self.patterns) - 1, tuple(chain.from_iterable(pattern.slots))

    def _other(self) -> int:
        """Everything beyond the bound on patterns falls into one."""
        if self.patterns[-1].tokens != [OTHER]:
            self.patterns.append(PatternCount([OTHER], [()]))
        return len(self.patterns) - 1


def _slots(tokens: Sequence[str], values: Sequence[str]) -> list[tuple[Slot, ...]]:
    rest = iter(values)
    return [tuple(Slot(next(rest)) for _ in range(token.count(MARK))) for token in tokens]


def _merge(pattern: PatternCount, tokens: Sequence[str]) -> Slots:
    """Make what differs a wildcard; return where the values of such a text belong."""
    found: list[Slot | None] = []
    for at, token in enumerate(tokens):
        if pattern.tokens[at] == token:
            found += pattern.slots[at]
        else:
            pattern.tokens[at], pattern.slots[at] = WILDCARD, ()
            found += [None] * token.count(MARK)
    return tuple(found)


def _similarity(template: list[str], tokens: list[str]) -> float:
    differing = [
        (left, right) for left, right in zip(template, tokens, strict=True) if left != right and left != WILDCARD
    ]
    words = sum(1 for left, right in differing if _WORD.fullmatch(left) and _WORD.fullmatch(right))
    if words > MAX_DIFFERING_WORDS:
        return 0.0
    return 1.0 - len(differing) / len(tokens)
