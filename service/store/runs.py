"""Runs in SQL: every transition is one conditional UPDATE, so exactly one of several writers wins (R8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Insert, Row, Table, Update, and_, func, insert, null, select, true, update
from sqlalchemy.exc import IntegrityError
from sqlmodel import SQLModel

from graph.contract import Intent, PublicStatus, RunState
from nodes.ports import RunEnd, RunRecord, SessionBusy
from nodes.storable import storable_text
from release.contract import ReleaseOutcome
from service.store.models import DiagnosisRun
from service.store.status import TERMINAL, leaving, plain, public_status
from tools.database import Database

RUNS: Table = SQLModel.metadata.tables[str(DiagnosisRun.__tablename__)]


class SqlRunStore:
    """RunStore over the table `diagnosis_run`.

    Methods raise SQLAlchemyError (without parameters in its text) when the database is out of reach.
    """

    def __init__(self, engine: Database) -> None:
        self._engine = engine

    async def create(self, run: RunRecord) -> bool:
        """Insert; False when the run_id exists already. Raises SessionBusy."""
        try:
            await self._execute(insert(RUNS).values(**_row_of(run)))
        except IntegrityError:
            if await self.get(run.run_id) is None:
                raise SessionBusy from None
            return False
        return True

    async def get(self, run_id: str) -> RunRecord | None:
        """Return the Run or None."""
        rows = await self._select(RUNS.c.run_id == run_id, limit=1)
        return rows[0] if rows else None

    async def transition(
        self,
        run_id: str,
        expected: frozenset[RunState],
        to: RunState,
        end: RunEnd | None = None,
        *,
        holder: str | None = None,
    ) -> bool:
        """Move the Run atomically; False when its state is not among `expected` or already terminal (R8).

        With `holder`, also when another execution has the Run (R3).
        """
        sources = leaving(expected, to, end)
        if not sources:
            return False
        outcome = end.release_outcome if end else ReleaseOutcome.NONE
        values: dict[str, Any] = {"internal_state": to.value, "status": public_status(to, outcome).value}
        if end is not None:
            values |= _end_columns(end)
        if to in TERMINAL:
            values["session_lock"] = None
            # Until the end is told a lease stands, though one that has run out: whoever ends it may die before it tells.
            values["lease_until"] = func.coalesce(RUNS.c.lease_until, end.ended_at if end else null())
        states = sorted(state.value for state in sources)
        statement = update(RUNS).where(RUNS.c.run_id == run_id, RUNS.c.internal_state.in_(states))
        if holder is not None:
            statement = statement.where((RUNS.c.execution_id == holder) | RUNS.c.execution_id.is_(None))
        return await self._changes_one(statement.values(**values))

    async def take_lease(self, run_id: str, execution_id: str, now: float, lease_until: float, force: bool) -> bool:
        """Make `execution_id` the Run's execution if the lease is its own, free, expired, or `force`."""
        statement = update(RUNS).where(RUNS.c.run_id == run_id)
        if not force:
            statement = statement.where(
                (RUNS.c.execution_id == execution_id)
                | RUNS.c.execution_id.is_(None)
                | RUNS.c.lease_until.is_(None)
                | (RUNS.c.lease_until <= now)
            )
        return await self._changes_one(statement.values(execution_id=execution_id, lease_until=lease_until))

    async def release_lease(self, run_id: str, execution_id: str | None, told: bool = False) -> None:
        """Give the lease back; of a Run that has ended only once its end is `told`.

        Nothing happens when another execution holds it.
        """
        held = (RUNS.c.run_id == run_id) & RUNS.c.execution_id.is_not_distinct_from(execution_id)
        if not told:
            held &= RUNS.c.ended_at.is_(None)
        await self._changes_one(update(RUNS).where(held).values(lease_until=None))

    async def set_intent(self, run_id: str, intent: Intent) -> bool:
        """Record what the router decided (R97, R98); False when the Run has ended or does not exist."""
        ended = sorted(state.value for state in TERMINAL)
        return await self._changes_one(
            update(RUNS).where(RUNS.c.run_id == run_id, RUNS.c.internal_state.not_in(ended)).values(intent=intent.value)
        )

    async def runs(
        self, limit: int = 20, session_id: str | None = None, owner: str | None = None
    ) -> tuple[RunRecord, ...]:
        """Return the latest Runs, newest first, of one session or of all, of one owner or of all."""
        conditions = [RUNS.c.session_id == session_id] if session_id is not None else []
        conditions += [RUNS.c.owner == owner] if owner is not None else []
        return await self._select(and_(true(), *conditions), limit=limit)

    async def of_session(self, session_id: str, owner: str | None, limit: int) -> tuple[RunRecord, ...]:
        """Return the latest Runs of an owner's session, newest first; owner None is nobody, not everybody."""
        of_owner = RUNS.c.owner.is_not_distinct_from(owner)
        return await self._select((RUNS.c.session_id == session_id) & of_owner, limit=limit)

    async def beginning_with(self, prefix: str, limit: int) -> tuple[RunRecord, ...]:
        """Return Runs whose id begins with `prefix`, newest first."""
        return await self._select(RUNS.c.run_id.startswith(prefix, autoescape=True), limit=limit)

    async def previous_turn(self, session_id: str, owner: str | None = None) -> RunRecord | None:
        """Return the latest `DIAGNOSIS + SUCCESS` Run of the owner's session that published something (R99).

        Fallbacks included; sessions of the same name that belong to other owners are others.
        """
        rows = await self._select(
            (RUNS.c.session_id == session_id)
            & (RUNS.c.owner.is_not_distinct_from(owner))
            & (RUNS.c.intent == Intent.DIAGNOSIS.value)
            & (RUNS.c.status == PublicStatus.SUCCESS.value)
            & RUNS.c.published.is_(True),
            limit=1,
        )
        return rows[0] if rows else None

    async def active(self, session_id: str, owner: str | None = None) -> RunRecord | None:
        """Return the latest Run of the owner's session that has not ended (R134)."""
        rows = await self._select(
            (RUNS.c.session_id == session_id)
            & (RUNS.c.owner.is_not_distinct_from(owner))
            & (RUNS.c.status == PublicStatus.RUNNING.value),
            limit=1,
        )
        return rows[0] if rows else None

    async def holding(self, session_lock: str) -> RunRecord | None:
        """Return the active Run that holds a lock (R134)."""
        rows = await self._select(RUNS.c.session_lock == session_lock, limit=1)
        return rows[0] if rows else None

    async def abandoned(self, now: float, limit: int = 100) -> tuple[RunRecord, ...]:
        """Return Runs that have not ended although nobody holds their lease: what a sweep looks at (R94)."""
        return await self._select(
            (RUNS.c.status == PublicStatus.RUNNING.value)
            & ((RUNS.c.lease_until <= now) | RUNS.c.lease_until.is_(None)),
            limit=limit,
        )

    async def half_ended(self, now: float, since: float, limit: int = 100) -> tuple[RunRecord, ...]:
        """Return Runs that ended after `since` and whose execution died before it gave its lease back.

        Their trace may lack its end (R108).
        """
        return await self._select(
            (RUNS.c.status != PublicStatus.RUNNING.value) & (RUNS.c.lease_until <= now) & (RUNS.c.ended_at > since),
            limit=limit,
        )

    async def ended_threads(self, cutoff: float, limit: int) -> tuple[str, ...]:
        """Return threads of checkpoints whose Runs have all ended at `cutoff` (epoch seconds) or before."""
        statement = (
            select(RUNS.c.thread_id)
            .where(RUNS.c.thread_id.is_not(None))
            .group_by(RUNS.c.thread_id)
            .having((func.count(RUNS.c.ended_at) == func.count()) & (func.max(RUNS.c.ended_at) <= cutoff))
            .limit(limit)
        )
        return tuple(await self._engine.read(lambda connection: connection.execute(statement).scalars().all()))

    async def forget_threads(self, threads: Sequence[str]) -> None:
        """Note that the checkpoints of these threads are gone."""
        if threads:
            await self._execute(update(RUNS).where(RUNS.c.thread_id.in_(threads)).values(thread_id=None))

    async def _select(self, condition: Any, limit: int) -> tuple[RunRecord, ...]:
        statement = select(RUNS).where(condition).order_by(RUNS.c.created_at.desc(), RUNS.c.run_id.desc()).limit(limit)
        rows = await self._engine.read(lambda connection: connection.execute(statement).all())
        return tuple(_run_of(row) for row in rows)

    async def _changes_one(self, statement: Update) -> bool:
        return await self._execute(statement) == 1

    async def _execute(self, statement: Insert | Update) -> int:
        return await self._engine.write(lambda connection: connection.execute(statement).rowcount)


def _row_of(run: RunRecord) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "query": storable_text(run.query),
        "session_id": run.session_id,
        "internal_state": run.internal_state.value,
        "status": public_status(run.internal_state, run.release_outcome).value,
        "created_at": run.created_at,
        "execution_id": run.execution_id,
        "lease_until": run.lease_until,
        "forked_from": run.forked_from,
        "intent": run.intent.value if run.intent else None,
        "release_outcome": run.release_outcome.value,
        "published_result": plain(run.published_result),
        "fallback": plain(run.fallback),
        "published": bool(run.published_result or run.fallback),
        "stop_reason": run.stop_reason,
        "error_code": run.error_code,
        "total_token_count": run.total_token_count,
        "usage": plain(run.usage) or {},
        "ended_at": run.ended_at,
        "owner": run.owner,
        "thread_id": run.thread_id,
        "session_lock": run.session_lock,
        "context": plain(run.context),
    }


def _end_columns(end: RunEnd) -> dict[str, Any]:
    return {
        "release_outcome": end.release_outcome.value,
        "published_result": plain(end.published_result),
        "fallback": plain(end.fallback),
        "published": bool(end.published_result or end.fallback),
        "stop_reason": end.stop_reason,
        "error_code": end.error_code,
        "total_token_count": end.total_token_count,
        "usage": plain(end.usage) or {},
        "ended_at": end.ended_at,
    }


def _run_of(row: Row[*tuple[Any, ...]]) -> RunRecord:
    values = dict(row._mapping)
    for column in ("status", "published"):
        del values[column]
    values["internal_state"] = RunState(values["internal_state"])
    values["intent"] = Intent(values["intent"]) if values["intent"] else None
    values["release_outcome"] = ReleaseOutcome(values["release_outcome"])
    return RunRecord(**values)
