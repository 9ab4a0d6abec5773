"""Run store and journal in this process, with the semantics of the SQL ones: for tests, benches and replay."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from graph.contract import Intent, PublicStatus, RunState, TraceEventType
from nodes.ports import AgentStepRow, ArchiveEntry, Clock, JournalBatch, RunEnd, RunRecord, SessionBusy
from nodes.storable import storable_text
from service.store.clock import SystemClock
from service.store.rows import DEFAULT_ARCHIVE_DAYS, TraceRow, archive_cutoff
from service.store.status import TERMINAL, leaving, plain, public_status
from service.store.whitelist import admit, safe_code, safe_ids, with_one_end


def _detached(run: RunRecord) -> RunRecord:
    return replace(
        run,
        query=storable_text(run.query),
        published_result=plain(run.published_result),
        fallback=plain(run.fallback),
        usage=plain(run.usage) or {},
        context=plain(run.context),
    )


class InMemoryRunStore:
    """RunStore over a dict. No method awaits between check and write, so each is atomic within its event loop."""

    def __init__(self) -> None:
        self._runs: dict[str, RunRecord] = {}

    async def create(self, run: RunRecord) -> bool:
        """Insert; False when the run_id exists already. Raises SessionBusy."""
        if run.run_id in self._runs:
            return False
        if run.session_lock and any(held.session_lock == run.session_lock for held in self._runs.values()):
            raise SessionBusy
        self._runs[run.run_id] = _detached(run)
        return True

    async def get(self, run_id: str) -> RunRecord | None:
        """Return the Run or None."""
        run = self._runs.get(run_id)
        return _detached(run) if run else None

    async def transition(
        self,
        run_id: str,
        expected: frozenset[RunState],
        to: RunState,
        end: RunEnd | None = None,
        *,
        holder: str | None = None,
    ) -> bool:
        """Move the Run; False when its state is not among `expected` or already terminal (R8).

        With `holder`, also when another execution has the Run (R3).
        """
        sources = leaving(expected, to, end)
        run = self._runs.get(run_id)
        if run is None or run.internal_state not in sources:
            return False
        if holder is not None and run.execution_id not in (None, holder):
            return False
        run = replace(run, internal_state=to, session_lock=None if to in TERMINAL else run.session_lock)
        if end is not None:
            run = replace(run, **{name: getattr(end, name) for name in RunEnd.__dataclass_fields__})
        if to in TERMINAL and run.lease_until is None:
            run = replace(run, lease_until=run.ended_at)
        self._runs[run_id] = _detached(run)
        return True

    async def take_lease(self, run_id: str, execution_id: str, now: float, lease_until: float, force: bool) -> bool:
        """Make `execution_id` the Run's execution if the lease is its own, free, expired, or `force`."""
        run = self._runs.get(run_id)
        if run is None:
            return False
        free = run.execution_id in (None, execution_id) or run.lease_until is None or run.lease_until <= now
        if not (force or free):
            return False
        self._runs[run_id] = replace(run, execution_id=execution_id, lease_until=lease_until)
        return True

    async def release_lease(self, run_id: str, execution_id: str | None, told: bool = False) -> None:
        """Give the lease back; of a Run that has ended only once its end is `told`."""
        run = self._runs.get(run_id)
        if run is not None and run.execution_id == execution_id and (told or run.ended_at is None):
            self._runs[run_id] = replace(run, lease_until=None)

    async def set_intent(self, run_id: str, intent: Intent) -> bool:
        """Record what the router decided (R97, R98); False when the Run has ended or does not exist."""
        run = self._runs.get(run_id)
        if run is None or run.internal_state in TERMINAL:
            return False
        self._runs[run_id] = replace(run, intent=intent)
        return True

    async def runs(
        self, limit: int = 20, session_id: str | None = None, owner: str | None = None
    ) -> tuple[RunRecord, ...]:
        """Return the latest Runs, newest first, of one session or of all, of one owner or of all."""
        return self._latest(
            lambda run: session_id in (None, run.session_id) and owner in (None, run.owner),
            limit,
        )

    async def of_session(self, session_id: str, owner: str | None, limit: int) -> tuple[RunRecord, ...]:
        """Return the latest Runs of an owner's session, newest first; owner None is nobody, not everybody."""
        return self._latest(lambda run: (run.session_id, run.owner) == (session_id, owner), limit)

    async def previous_turn(self, session_id: str, owner: str | None = None) -> RunRecord | None:
        """Return the latest `DIAGNOSIS + SUCCESS` Run of the owner's session that published something (R99)."""
        return _first(
            self._latest(
                lambda run: (
                    (run.session_id, run.owner) == (session_id, owner)
                    and run.intent is Intent.DIAGNOSIS
                    and _status(run) is PublicStatus.SUCCESS
                    and bool(run.published_result or run.fallback)
                ),
                1,
            )
        )

    async def active(self, session_id: str, owner: str | None = None) -> RunRecord | None:
        """Return the latest Run of the owner's session that has not ended (R134)."""
        return _first(
            self._latest(
                lambda run: (run.session_id, run.owner) == (session_id, owner) and _status(run) is PublicStatus.RUNNING,
                1,
            )
        )

    async def abandoned(self, now: float, limit: int = 100) -> tuple[RunRecord, ...]:
        """Return Runs that have not ended although nobody holds their lease: what a sweep looks at (R94)."""
        return self._latest(
            lambda run: _status(run) is PublicStatus.RUNNING and (run.lease_until is None or run.lease_until <= now),
            limit,
        )

    def _latest(self, wanted: Callable[[RunRecord], bool], limit: int) -> tuple[RunRecord, ...]:
        found = sorted(
            (run for run in self._runs.values() if wanted(run)),
            key=lambda run: (run.created_at, run.run_id),
            reverse=True,
        )
        return tuple(_detached(run) for run in found[:limit])


def _status(run: RunRecord) -> PublicStatus:
    return public_status(run.internal_state, run.release_outcome)


def _first(runs: Iterable[RunRecord]) -> RunRecord | None:
    return next(iter(runs), None)


@dataclass(slots=True)
class _RunJournal:
    keys: set[str] = field(default_factory=set)
    trace: list[TraceRow] = field(default_factory=list)
    steps: list[AgentStepRow] = field(default_factory=list)
    archive: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    archived_at: float = -math.inf


class InMemoryJournal:
    """Journal over a dict; strict by default, so that a test notices a field the whitelist does not know."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        archive_days: float = DEFAULT_ARCHIVE_DAYS,
        strict: bool = True,
    ) -> None:
        self._clock = clock or SystemClock()
        self._archive_days = archive_days
        self._strict = strict
        self._runs: dict[str, _RunJournal] = {}

    async def write(self, batch: JournalBatch) -> None:
        """Store the batch; idempotent by (run_id, key)."""
        events = [admit(event, strict=self._strict) for event in batch.events]
        archive = [((entry.kind, entry.key), plain(entry.payload) or {}) for entry in batch.archive]
        run = self._runs.setdefault(batch.run_id, _RunJournal())
        if batch.key in run.keys:
            return
        run.keys.add(batch.key)
        told = any(row.type is TraceEventType.RUN_ENDED for row in run.trace)
        for event in with_one_end(events, told):
            fields = plain(event.fields) or {}
            run.trace.append(TraceRow(len(run.trace) + 1, batch.at, event.type, fields, event.fields_refused))
        for step in batch.steps:
            run.steps.append(replace(step, kind=safe_code(step.kind), tool_call_ids=safe_ids(step.tool_call_ids)))
        for key, payload in archive:
            if key not in run.archive:
                run.archive[key] = payload
                run.archived_at = max(run.archived_at, batch.at)

    async def trace(self, run_id: str, after: int = 0) -> tuple[TraceRow, ...]:
        """Return the Run's events with `seq` greater than `after`, in order."""
        run = self._runs.get(run_id)
        return tuple(row for row in run.trace if row.seq > after) if run else ()

    async def steps(self, run_id: str) -> tuple[AgentStepRow, ...]:
        """Return the Diagnosis Agent's rounds in the order they were written (R114)."""
        run = self._runs.get(run_id)
        return tuple(run.steps) if run else ()

    async def archived(self, run_id: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """Return archived payloads of one kind by key; empty when none or expired."""
        return {entry.key: entry.payload for entry in await self.archive(run_id) if entry.kind == kind}

    async def archived_one(self, run_id: str, kind: str, key: str) -> Mapping[str, Any] | None:
        """Return one archived payload, whatever its age; None when there is none."""
        run = self._runs.get(run_id)
        payload = run.archive.get((kind, key)) if run else None
        return plain(payload) or {} if payload is not None else None

    async def archive(self, run_id: str) -> tuple[ArchiveEntry, ...]:
        """Return everything archived of a Run, sorted by kind and key; empty when none or expired."""
        run = self._runs.get(run_id)
        if run is None or run.archived_at <= archive_cutoff(self._clock.now(), self._archive_days):
            return ()
        return tuple(
            ArchiveEntry(kind, key, plain(payload) or {}) for (kind, key), payload in sorted(run.archive.items())
        )

    async def purge(self, now: float) -> int:
        """Delete the archives of Runs whose last entry is `archive_days` old; return how many entries went."""
        gone = 0
        for run in self._runs.values():
            if run.archive and run.archived_at <= archive_cutoff(now, self._archive_days):
                gone += len(run.archive)
                run.archive.clear()
                run.archived_at = -math.inf
        return gone
