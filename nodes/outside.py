"""What a node met from outside its Run's own rules: a cancel, another writer, an outage. Kept for replays (R67).

A store that is left alone answers `RUNNING`, `yes`, `READY` or `ERROR`; only operations that answered otherwise are archived.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, TypeVar, cast

from graph.contract import Intent, RunState
from nodes.ports import Resources, RunEnd, RunRecord, RunStore
from tools.canonical.store import CanonicalRecordTooLarge, CanonicalStore, CanonicalStoreUnavailable
from tools.contract import CanonicalRecord, InvocationStatus

T = TypeVar("T")

YES, NO = "yes", "no"
MISSING, FOREIGN, SETTLED = "MISSING", "FOREIGN", "SETTLED"
UNAVAILABLE, TOO_LARGE = "UNAVAILABLE", "TOO_LARGE"
USUAL = frozenset({RunState.RUNNING.value, YES, InvocationStatus.READY.value, InvocationStatus.ERROR.value})

GET_RUN, MOVE_RUN, SET_INTENT = "runs.get", "runs.transition", "runs.set_intent"
BEGIN, FINISH, REJECT, GET = "canonical.begin", "canonical.finish", "canonical.reject", "canonical.get"


class Outside:
    """Answers of the stores in order, by operation, as one node got them."""

    def __init__(self) -> None:
        self._answers: dict[str, list[str]] = {}

    def note(self, operation: str, answer: str) -> None:
        """Keep one answer."""
        self._answers.setdefault(operation, []).append(answer)

    def forget(self) -> None:
        """Drop what was asked so far: it told whose Run begins, which a replay knows."""
        self._answers.clear()

    def unusual(self) -> dict[str, list[str]]:
        """Return the operations that a Run left to itself would have seen otherwise; mostly none."""
        return {name: answers for name, answers in self._answers.items() if not USUAL.issuperset(answers)}


def observed(resources: Resources, outside: Outside) -> Resources:
    """Return the resources with stores whose answers are noted."""
    return replace(
        resources,
        runs=cast("RunStore", _ObservedRuns(resources.runs, outside)),
        canonical=_ObservedRecords(resources.canonical, outside),
    )


class _ObservedRuns:
    def __init__(self, store: RunStore, outside: Outside) -> None:
        self._store = store
        self._outside = outside

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, run_id: str) -> RunRecord | None:
        record = await self._store.get(run_id)
        self._outside.note(GET_RUN, record.internal_state.value if record else MISSING)
        return record

    async def transition(
        self,
        run_id: str,
        expected: frozenset[RunState],
        to: RunState,
        end: RunEnd | None = None,
        *,
        holder: str | None = None,
    ) -> bool:
        moved = await self._store.transition(run_id, expected, to, end, holder=holder)
        self._outside.note(MOVE_RUN, YES if moved else NO)
        return moved

    async def set_intent(self, run_id: str, intent: Intent) -> bool:
        known = await self._store.set_intent(run_id, intent)
        self._outside.note(SET_INTENT, YES if known else NO)
        return known


class _ObservedRecords:
    def __init__(self, store: CanonicalStore, outside: Outside) -> None:
        self._store = store
        self._outside = outside

    async def begin(self, record: CanonicalRecord) -> CanonicalRecord:
        held = await self._noting(BEGIN, self._store.begin(record))
        self._outside.note(BEGIN, YES if held.status is InvocationStatus.PROJECTING else SETTLED)
        return held

    async def finish(self, record: CanonicalRecord) -> bool:
        moved = await self._noting(FINISH, self._store.finish(record))
        self._outside.note(FINISH, YES if moved else NO)
        return moved

    async def reject(self, record: CanonicalRecord) -> bool:
        moved = await self._noting(REJECT, self._store.reject(record))
        self._outside.note(REJECT, YES if moved else NO)
        return moved

    async def get(self, run_id: str, tool_call_id: str) -> CanonicalRecord | None:
        record = await self._noting(GET, self._store.get(run_id, tool_call_id))
        foreign = record is not None and (record.run_id, record.tool_call_id) != (run_id, tool_call_id)
        self._outside.note(GET, MISSING if record is None else FOREIGN if foreign else record.status.value)
        return record

    async def _noting(self, operation: str, work: Awaitable[T]) -> T:
        try:
            return await work
        except CanonicalStoreUnavailable:
            self._outside.note(operation, UNAVAILABLE)
            raise
        except CanonicalRecordTooLarge:
            self._outside.note(operation, TOO_LARGE)
            raise
