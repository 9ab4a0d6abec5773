"""Compares a replay with its record, entry by entry, in the order of the Run's steps. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from service.replay.bundle import Bundle, Entry

MAX_LINES = 40
MAX_VALUE_CHARS = 200
_STEP = re.compile(r"\d{4,6}:[a-z_]+\Z")
_AT_THE_END = "~"
NOTHING = "nothing"
ASKED = "asked"
"""What tells one request of a model from another, in a recorded answer."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs: at which step, in which entry, where in it, and both sides as bounded text."""

    step: str
    entry: str
    place: str
    recorded: str
    replayed: str

    def __str__(self) -> str:
        """Write it on one line."""
        return (
            f"{self.entry}{' ' if self.place else ''}{self.place}: recorded {self.recorded}, replayed {self.replayed}"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """All differing entries, first step first; `first` are the values that differ in the first differing step.

    `asked_otherwise` counts model calls whose prompt, tools or schema differ: the answers are the recorded ones all the same,
    so that is told and is no difference.
    """

    step: str | None
    first: tuple[Difference, ...] = ()
    entries: int = 0
    asked_otherwise: int = 0

    @property
    def identical(self) -> bool:
        """Whether every byte is the same."""
        return self.entries == 0


def compare(recorded: Bundle, replayed: Bundle | None) -> Comparison:
    """Compare both; equal digests are equal bytes."""
    ours = {(each.kind, each.key): _answered(each) for each in recorded.entries}
    theirs = {(each.kind, each.key): _answered(each) for each in replayed.entries} if replayed else {}
    otherwise = _asked_otherwise(recorded, replayed) if replayed else 0
    names = [*ours, *(name for name in theirs if name not in ours)]
    differing = [name for name in names if _digest(ours.get(name)) != _digest(theirs.get(name))]
    if not differing:
        return Comparison(None, asked_otherwise=otherwise)
    placed = sorted((_step_of(ours.get(name) or theirs[name]), name) for name in differing)
    step = placed[0][0]
    here = [name for place, name in placed if place == step]
    lines = [line for name in here for line in _differences(step, ours.get(name), theirs.get(name))]
    return Comparison(_shown(step), tuple(lines[:MAX_LINES]), len(differing), otherwise)


def _answered(entry: Entry) -> Entry:
    if entry.kind != "model_answer":
        return entry
    return Entry(entry.kind, entry.key, {name: value for name, value in entry.payload.items() if name != ASKED})


def _asked_otherwise(recorded: Bundle, replayed: Bundle) -> int:
    then, now = recorded.by_kind["model_answer"], replayed.by_kind["model_answer"]
    return sum(then[key].get(ASKED) != now[key].get(ASKED) for key in then if key in now)


def _digest(entry: Entry | None) -> str | None:
    return entry.digest if entry else None


def _step_of(entry: Entry) -> str:
    """Return the key of the node execution that wrote the entry; what belongs to none sorts last."""
    if entry.kind == "trace":
        return str(entry.payload["node"] or _AT_THE_END)
    return entry.key if _STEP.match(entry.key) else _AT_THE_END


def _shown(step: str) -> str:
    return "the end of the run" if step == _AT_THE_END else f"step {int(step.split(':')[0])} ({step.split(':')[1]})"


def _differences(step: str, ours: Entry | None, theirs: Entry | None) -> Iterator[Difference]:
    name = (ours or theirs or Entry("", "", {})).name
    if ours is None or theirs is None:
        sides = (_text(each.payload) if each else NOTHING for each in (ours, theirs))
        yield Difference(step, name, "", *sides)
        return
    for place, left, right in _values(ours.payload, theirs.payload, ""):
        yield Difference(step, name, place, left, right)


def _values(left: Any, right: Any, place: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in sorted({*left, *right}):
            where = f"{place}.{key}".lstrip(".")
            if key not in left or key not in right:
                yield (
                    where,
                    _text(left[key]) if key in left else NOTHING,
                    _text(right[key]) if key in right else NOTHING,
                )
            else:
                yield from _values(left[key], right[key], where)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _values(one, other, f"{place}[{index}]")
    elif type(left) is not type(right) or left != right:
        yield place, _text(left), _text(right)


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"
