"""A run bundle in memory: entries with their digests, and typed views of them. Frozen; makes no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from service.replay.format import FORMAT, KINDS, RunPayload
from tools.scope import canonical_json


@dataclass(frozen=True)
class Entry:
    """One archived value. `digest` is the SHA-256 of its canonical JSON, kind and key included."""

    kind: str
    key: str
    payload: Mapping[str, Any]

    @cached_property
    def text(self) -> str:
        """Canonical JSON of the payload."""
        return canonical_json(self.payload)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex)."""
        return sha256(f"{canonical_json([self.kind, self.key])}{self.text}".encode()).hexdigest()

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.kind} {self.key}"


@dataclass(frozen=True)
class Bundle:
    """A finished Run, self-contained (R67). Entries stand in the format's order, by kind and key, each once."""

    run_id: str
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, run_id: str, entries: Iterable[Entry]) -> Bundle:
        """Put entries into the format's order."""
        place = {kind: index for index, kind in enumerate(KINDS)}
        return cls(run_id, tuple(sorted(entries, key=lambda entry: (place[entry.kind], entry.key))))

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) over format, run id and all entries' digests."""
        return sha256(
            canonical_json([FORMAT, self.run_id, [each.digest for each in self.entries]]).encode()
        ).hexdigest()

    @cached_property
    def by_kind(self) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
        """Payloads by kind and key; every kind of the format is there."""
        kinds: dict[str, dict[str, Mapping[str, Any]]] = {kind: {} for kind in KINDS}
        for entry in self.entries:
            kinds[entry.kind][entry.key] = entry.payload
        return kinds

    @cached_property
    def run(self) -> RunPayload:
        """The Run's row."""
        return RunPayload.model_validate(self.by_kind["run"]["run"])

    @property
    def settings(self) -> Mapping[str, Mapping[str, Any]]:
        """Settings by name: context, harness, catalog, tools, prompts."""
        return self.by_kind["settings"]

    @property
    def path(self) -> Sequence[str]:
        """Keys of the node executions in order, e.g. "0007:dedup_scope"."""
        return list(self.by_kind["step"])

    @cached_property
    def trace(self) -> Sequence[Mapping[str, Any]]:
        """Trace events in order."""
        return list(self.by_kind["trace"].values())


def numbered(number: int) -> str:
    """Key of the `number`-th entry of a list, so that text order is list order."""
    return f"{number:06d}"
