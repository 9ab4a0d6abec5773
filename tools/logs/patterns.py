"""Grouping messages into patterns: numbers become 0, messages of one length that share their first two tokens and at
least seven tenths of all tokens become one template; what differs becomes `<*>`. Pure but for the grouper's own tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SIMILARITY = 0.7
MAX_DIFFERING_WORDS = 2
"""Messages that differ in more plain words say different things (`certificate expired`, `connection refused`)."""
WILDCARD = "<*>"
MAX_TEMPLATE_CHARS = 400
_MAX_TOKENS = 60
_MAX_PER_BUCKET = 60
_MAX_PATTERNS = 1000
_MAX_CACHE = 20_000
_DIGITS = re.compile(r"\d+")
_WORD = re.compile(r"[^\W\d_]{2,}[.,:;!]?")
_HEX = re.compile(r"\b(?:0x[0-9a-fA-F]+|(?=[0-9a-f\-]*\d)[0-9a-f]{8,}(?:-[0-9a-f]{4,}){0,4})\b")


@dataclass(slots=True)
class PatternCount:
    """One pattern while it grows. `rank` is the highest telling rank of its events (see `levels.telling_rank`)."""

    tokens: list[str]
    count: int = 0
    first: float | None = None
    last: float | None = None
    rank: int = 0

    @property
    def template(self) -> str:
        """The pattern as text."""
        return " ".join(self.tokens)


def shape(message: str) -> str:
    """Return the first line of a message with digits and long hexadecimal ids replaced by 0."""
    line = message.split("\n", 1)[0][:MAX_TEMPLATE_CHARS]
    return _DIGITS.sub("0", _HEX.sub("0", line))


@dataclass(slots=True)
class PatternGrouper:
    """Assigns messages to patterns one by one; equal input in equal order gives equal patterns."""

    patterns: list[PatternCount] = field(default_factory=list)
    _cache: dict[str, int] = field(default_factory=dict)
    _buckets: dict[tuple[int, str, str], list[int]] = field(default_factory=dict)

    def add(self, message: str, epoch: float | None, rank: int) -> int:
        """Count a message and return the index of its pattern."""
        text = shape(message)
        index = self._cache.get(text)
        if index is None:
            index = self._assign(text.split()[:_MAX_TOKENS] or [""])
            if len(self._cache) < _MAX_CACHE:
                self._cache[text] = index
        pattern = self.patterns[index]
        pattern.count += 1
        pattern.rank = max(pattern.rank, rank)
        if epoch is not None:
            pattern.first = epoch if pattern.first is None else min(pattern.first, epoch)
            pattern.last = epoch if pattern.last is None else max(pattern.last, epoch)
        return index

    def _assign(self, tokens: list[str]) -> int:
        key = (len(tokens), tokens[0], tokens[1] if len(tokens) > 1 else "")
        bucket = self._buckets.setdefault(key, [])
        best, best_share = -1, 0.0
        for index in bucket:
            share = _similarity(self.patterns[index].tokens, tokens)
            if share > best_share:
                best, best_share = index, share
        full = len(bucket) >= _MAX_PER_BUCKET or len(self.patterns) >= _MAX_PATTERNS
        if best >= 0 and (best_share >= SIMILARITY or full):
            merged = self.patterns[best].tokens
            for at, token in enumerate(tokens):
                if merged[at] != token:
                    merged[at] = WILDCARD
            return best
        if full and not bucket:
            return self._other()
        self.patterns.append(PatternCount(tokens=list(tokens)))
        bucket.append(len(self.patterns) - 1)
        return len(self.patterns) - 1

    def _other(self) -> int:
        """Everything beyond the bound on patterns falls into one."""
        if self.patterns[-1].tokens != [WILDCARD]:
            self.patterns.append(PatternCount(tokens=[WILDCARD]))
        return len(self.patterns) - 1


def _similarity(template: list[str], tokens: list[str]) -> float:
    differing = [
        (left, right) for left, right in zip(template, tokens, strict=True) if left != right and left != WILDCARD
    ]
    words = sum(1 for left, right in differing if _WORD.fullmatch(left) and _WORD.fullmatch(right))
    if words > MAX_DIFFERING_WORDS:
        return 0.0
    return 1.0 - len(differing) / len(tokens)
