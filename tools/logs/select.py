"""Which of many events to show: every pattern once before any twice, trouble and rare patterns first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """What the choice depends on. Candidates are given newest first; `pattern` is any number naming the pattern."""

    pattern: int
    rank: int
    pattern_count: int


def leaders(candidates: Sequence[Candidate]) -> list[int]:
    """Return the position of the newest event of every pattern, the most worth showing first.

    Telling ones come before others, then rare before frequent, then new before old.
    """
    newest: dict[int, int] = {}
    for index, candidate in enumerate(candidates):
        newest.setdefault(candidate.pattern, index)
    return sorted(newest.values(), key=lambda index: (-candidates[index].rank, candidates[index].pattern_count, index))


def priority(candidates: Sequence[Candidate]) -> list[int]:
    """Return the positions of all candidates, the most worth showing first: the leaders, then the rest newest first."""
    first = leaders(candidates)
    led = set(first)
    return first + [index for index in range(len(candidates)) if index not in led]


def choose(candidates: Sequence[Candidate], limit: int) -> list[int]:
    """Return at most `limit` positions in the given order (newest first)."""
    return sorted(priority(candidates)[:limit])
