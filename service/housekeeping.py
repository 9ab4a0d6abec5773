"""What is done when the system is opened: expired archives go, Runs that nobody carries on get their end (R67, R94)."""

from __future__ import annotations

import logging

from graph.contract import RunState
from nodes.node_run import ACTIVE
from nodes.ports import Clock, RunRecord
from nodes.run_end import end_without_result
from service.store.journal import SqlJournal
from service.store.runs import SqlRunStore

INTERRUPTED = "INTERRUPTED"
"""Error code of a Run whose process went away."""

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
    expected = frozenset({RunState.CANCEL_REQUESTED}) if cancelled else ACTIVE
    code = "CANCELLED" if cancelled else INTERRUPTED
    await end_without_result(runs, journal, run.run_id, state, code, now, expected=expected)
