"""What is done when the system is opened: expired archives go, Runs that nobody carries on get their end (R67, R94)."""

from __future__ import annotations

import logging

from graph.contract import RunState, TraceEventType
from nodes.events import event
from nodes.ports import Clock, JournalBatch, RunEnd, RunRecord
from release.contract import ReleaseOutcome
from service.store.journal import SqlJournal
from service.store.runs import SqlRunStore

INTERRUPTED = "INTERRUPTED"
"""Error code of a Run whose process went away."""

LIVE = frozenset({RunState.CREATED, RunState.RUNNING})
logger = logging.getLogger("superbiz.service")


async def tidy(runs: SqlRunStore, journal: SqlJournal, clock: Clock, run_timeout_seconds: float) -> None:
    """Purge expired archives and end abandoned Runs. Never fails the command it precedes."""
    now = clock.now()
    try:
        await journal.purge(now)
        # Within its own timeout a Run may be paused by a person; after it, whoever goes on could only time out.
        for run in await runs.abandoned(now - run_timeout_seconds):
            await _end(run, runs, journal, now)
    except Exception as error:
        logger.warning("housekeeping failed: %s", type(error).__name__)


async def _end(run: RunRecord, runs: SqlRunStore, journal: SqlJournal, now: float) -> None:
    cancelled = run.internal_state is RunState.CANCEL_REQUESTED
    state = RunState.CANCELLED if cancelled else RunState.FAILED
    expected = frozenset({RunState.CANCEL_REQUESTED}) if cancelled else LIVE
    code = "CANCELLED" if cancelled else INTERRUPTED
    end = RunEnd(release_outcome=ReleaseOutcome.NONE, ended_at=now, error_code=code)
    if await runs.transition(run.run_id, expected, state, end):
        ended = event(TraceEventType.RUN_ENDED, internal_state=state.value)
        await journal.write(JournalBatch(run_id=run.run_id, key="end:swept", at=now, events=[ended]))
