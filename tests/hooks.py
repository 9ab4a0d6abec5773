"""Stores of the loop's tests that let a test act, or fail, at an exact place of a run; otherwise the real ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from nodes.ports import JournalBatch
from service.store.memory import InMemoryJournal
from tools.canonical.memory import MemoryCanonicalStore
from tools.contract import CanonicalRecord


class Crash(Exception):
    """Stands for a process that died: nothing in the system knows it."""


def crash(*_: Any) -> None:
    """A hook that crashes."""
    raise Crash


class HookedJournal(InMemoryJournal):
    """A journal whose `before` and `after` hooks are called around the write of a node's batch, by node name.

    A hook is used once.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.before: dict[str, Callable[[JournalBatch], Any]] = {}
        self.after: dict[str, Callable[[JournalBatch], Any]] = {}
        self.batches: list[JournalBatch] = []

    async def write(self, batch: JournalBatch) -> None:
        node = batch.key.partition(":")[2]
        await _act(self.before.pop(node, None), batch)
        await super().write(batch)
        self.batches.append(batch)
        await _act(self.after.pop(node, None), batch)


class HookedCanonicalStore(MemoryCanonicalStore):
    """A store whose operations call `on(operation, count)` first, which may raise, and `reading` on what `get` found."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._inside = False
        self.counts: Counter[str] = Counter()
        self.on: Callable[[str, int], None] = lambda operation, count: None
        self.reading: Callable[[CanonicalRecord | None], CanonicalRecord | None] = lambda record: record

    async def begin(self, record: CanonicalRecord) -> CanonicalRecord:
        self._count("begin")
        self._inside = True
        try:
            return await super().begin(record)
        finally:
            self._inside = False

    async def finish(self, record: CanonicalRecord) -> bool:
        self._count("finish")
        return await super().finish(record)

    async def reject(self, record: CanonicalRecord) -> bool:
        self._count("reject")
        return await super().reject(record)

    async def get(self, run_id: str, tool_call_id: str) -> CanonicalRecord | None:
        if self._inside:  # the memory store's begin() reads too; only the harness's own readings count
            return await super().get(run_id, tool_call_id)
        self._count("get")
        return self.reading(await super().get(run_id, tool_call_id))

    def forget(self) -> None:
        """Lose every record, as an expiry does."""
        self._entries.clear()

    def _count(self, operation: str) -> None:
        self.counts[operation] += 1
        self.on(operation, self.counts[operation])


async def _act(hook: Callable[[JournalBatch], Any] | None, batch: JournalBatch) -> None:
    if hook is not None:
        result = hook(batch)
        if isawaitable(result):
            await result
