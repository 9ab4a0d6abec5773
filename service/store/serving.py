"""What the service asks of Runs and journal besides their own methods: stages, sessions, requested cancels."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlalchemy import ColumnElement, case, func, null, select, text, update

from graph.contract import RunState
from nodes.harness import lock_of_session
from service.store.journal import BATCH
from service.store.runs import RUNS
from tools.database import Database

_STEP = re.compile(r"(\d{4}):(\w+)")
"""Key of a node's batch; other keys are of no step."""


class SqlServing:
    """Reads and writes over the tables of Runs and journal. Methods raise SQLAlchemyError when they are out of reach."""

    def __init__(self, engine: Database) -> None:
        self._engine = engine

    async def ping(self) -> None:
        """Ask the database for nothing."""
        await self._engine.read(lambda connection: connection.execute(text("SELECT 1")))

    async def stages(self, run_id: str, after: int) -> tuple[tuple[int, str], ...]:
        """Return (step number, node) of a Run's finished steps after a number, in order."""
        keys = select(BATCH.c.key).where(BATCH.c.run_id == run_id, BATCH.c.key >= f"{after:04d}")
        rows = await self._engine.read(lambda connection: connection.execute(keys).scalars().all())
        found = {(int(match[1]), match[2]) for match in map(_STEP.fullmatch, rows) if match is not None}
        return tuple(sorted(each for each in found if each[0] > after))

    async def cancel_requested(self, run_ids: Sequence[str]) -> tuple[str, ...]:
        """Return those Runs that somebody asked to cancel."""
        wanted = RUNS.c.internal_state == RunState.CANCEL_REQUESTED.value
        statement = select(RUNS.c.run_id).where(RUNS.c.run_id.in_(run_ids), wanted)
        return tuple(await self._engine.read(lambda connection: connection.execute(statement).scalars().all()))

    async def session_span(self, session_id: str, owner: str | None) -> tuple[int, float | None]:
        """Return how many Runs an owner's session holds and when the first was created (seconds since the epoch)."""
        counted = select(func.count(), func.min(RUNS.c.created_at)).where(_in_session(session_id, owner))
        count, first = await self._engine.read(lambda connection: connection.execute(counted).one())
        return count, first

    async def clear_session(self, session_id: str, owner: str | None) -> int:
        """Take every Run out of the session, so that none forms a previous turn; return how many. The Runs stay.

        One that has not ended goes on, and keeps the session from no next question.
        """
        lock = lock_of_session(owner, session_id)
        free = case((RUNS.c.session_lock == lock, null()), else_=RUNS.c.session_lock)
        statement = update(RUNS).where(_in_session(session_id, owner)).values(session_id=None, session_lock=free)
        return await self._engine.write(lambda connection: connection.execute(statement).rowcount)


def _in_session(session_id: str, owner: str | None) -> ColumnElement[bool]:
    return (RUNS.c.session_id == session_id) & RUNS.c.owner.is_not_distinct_from(owner)
