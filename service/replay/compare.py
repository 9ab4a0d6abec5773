"""Compares a replay with its record, entry by entry, in the order of the Run's steps. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graph.contract import TraceEventType
from nodes.recall import ASKED
from service.replay.bundle import Bundle, Entry
from service.replay.changes import changes
from service.replay.differing import NOTHING, differing, shown

MAX_LINES = 40
_STEP = re.compile(r"\d{4,6}:[a-z_]+\Z")
_AT_THE_END = "~"
TOLD_AS_CHANGES = (("settings", "tools"), ("settings", "prompts"))
"""Entries that a replay writes as they are today; what differs in them is named and is no difference."""


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

    `changed` names prompts, tools and forms of output that are others today than they were for the recorded Run.
    """

    step: str | None
    first: tuple[Difference, ...] = ()
    entries: int = 0
    changed: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether all that is compared is byte for byte the same."""
        return self.entries == 0


def compare(recorded: Bundle, replayed: Bundle | None) -> Comparison:
    """Compare both; equal digests are equal bytes."""
    replayed = replayed or Bundle(recorded.run_id, ())
    says_shown = _says_what_was_shown(recorded)
    ours, theirs = (
        {(each.kind, each.key): _compared(each, says_shown) for each in side.entries} for side in (recorded, replayed)
    )
    names = [name for name in {**ours, **theirs} if name not in TOLD_AS_CHANGES]
    differing_ones = [name for name in names if _digest(ours.get(name)) != _digest(theirs.get(name))]
    changed = changes(recorded, replayed)
    if not differing_ones:
        return Comparison(None, changed=changed)
    writers = _writers(replayed) | _writers(recorded)
    placed = sorted((_step_of(ours.get(name) or theirs[name], writers), name) for name in differing_ones)
    step = placed[0][0]
    here = [name for place, name in placed if place == step]
    lines = [line for name in here for line in _differences(step, ours.get(name), theirs.get(name))]
    return Comparison(_named(step), tuple(lines[:MAX_LINES]), len(differing_ones), changed)


def _says_what_was_shown(recorded: Bundle) -> bool:
    """Say whether the record tells messages from prompts and tools; bundles of earlier versions do not."""
    asked = any(isinstance(each.get(ASKED), dict) for each in recorded.by_kind["model_answer"].values())
    return asked or any(each.get("messages") for each in recorded.by_kind["step"].values())


def _compared(entry: Entry, says_shown: bool) -> Entry:
    """Leave out of an entry what is told as a change, and what an old record cannot tell."""
    if entry.kind == "model_answer":
        asked = entry.payload.get(ASKED)
        messages = asked["messages"] if says_shown and isinstance(asked, dict) else None
        return Entry(entry.kind, entry.key, {**entry.payload, ASKED: messages})
    if entry.kind == "step" and not says_shown:
        return Entry(entry.kind, entry.key, {**entry.payload, "messages": None})
    return entry


def _digest(entry: Entry | None) -> str | None:
    return entry.digest if entry else None


def _writers(bundle: Bundle) -> dict[tuple[str, str], str]:
    """Return which node execution tells of each model call and each tool call."""
    found = dict[tuple[str, str], str]()
    for each in bundle.trace:
        fields, node = each["fields"], str(each["node"])
        if each["type"] == TraceEventType.MODEL_CALL:
            found["model_answer", f"{fields['component']}/{fields['component_round']}"] = node
        elif each["type"] == TraceEventType.TOOL_CALL_COMPLETED:
            found["agent_result", fields["tool_call_id"]] = node
    return found


def _step_of(entry: Entry, writers: Mapping[tuple[str, str], str]) -> str:
    """Return the key of the node execution that wrote the entry; what belongs to none sorts last."""
    key = entry.payload["node"] if entry.kind == "trace" else writers.get((entry.kind, entry.key), entry.key)
    return key if key and _STEP.match(key) else _AT_THE_END


def _named(step: str) -> str:
    return "the end of the run" if step == _AT_THE_END else f"step {int(step.split(':')[0])} ({step.split(':')[1]})"


def _differences(step: str, ours: Entry | None, theirs: Entry | None) -> Iterator[Difference]:
    name = (ours or theirs or Entry("", "", {})).name
    if ours is None or theirs is None:
        sides = (shown(each.payload) if each else NOTHING for each in (ours, theirs))
        yield Difference(step, name, "", *sides)
        return
    for place, left, right in differing(ours.payload, theirs.payload):
        yield Difference(step, name, place, left, right)
