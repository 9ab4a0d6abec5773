"""Ends of Runs that nobody carries any more, and ends that were stored but not told (R8, R94, R108)."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from graph.contract import RunState, TraceEvent, TraceEventType
from graph.state import load_budget, load_ledger
from nodes.events import event
from nodes.model_calls import AUDITED, MODEL_ANSWER, recounted
from nodes.ports import JournalBatch, RunRecord
from nodes.run_end import end_without_result
from nodes.usage import end_fields, usage_of
from service.checkpoints import latest_values

if TYPE_CHECKING:
    from service.app import App

logger = logging.getLogger("superbiz.service")


async def end_free_run(app: App, run: RunRecord, state: RunState, code: str, expected: frozenset[RunState]) -> None:
    """End a Run under a lease of its own: of several who would, or who would carry it on, one does.

    The lease is given back once the trace has the end; a Run that has ended and still holds one has not been told.
    """
    runs, now, execution_id = app.runs, app.resources.clock.now(), str(uuid.uuid4())
    usage, events = await _spent(app, run)
    if not await runs.take_lease(run.run_id, execution_id, now, now + app.resources.lease_seconds, force=False):
        return
    await end_without_result(
        runs, app.journal, run.run_id, state, code, now, usage=usage, events=events, expected=expected
    )
    await give_back(app, run.run_id, execution_id)


async def give_back(app: App, run_id: str, execution_id: str | None) -> None:
    """Give a lease back, where the Run has ended with its end in the trace; nothing happens when another holds the Run.

    One that ends at this very moment keeps the lease, so that a sweep looks after its end once the lease has run out.
    """
    told = await _tell_end(app, run_id, execution_id)
    await app.runs.release_lease(run_id, execution_id, told)


async def _tell_end(app: App, run_id: str, held_by: str | None) -> bool:
    """Write the last event of a Run that has ended, where its trace lacks it; say whether it is there.

    The journal holds one end at most, whoever tells it.
    """
    run = await app.runs.get(run_id)
    if run is None or run.ended_at is None or run.execution_id != held_by:
        return False
    if await is_told(app, run_id):
        return True
    totals = end_fields(dict(run.usage)) if run.usage else {}
    ended = event(
        TraceEventType.RUN_ENDED, internal_state=run.internal_state.value, stop_reason=run.stop_reason, **totals
    )
    await app.journal.write(JournalBatch(run_id, "end:told", run.ended_at, [ended]))
    return True


async def is_told(app: App, run_id: str) -> bool:
    """Say whether the Run's trace has its end."""
    return any(row.type is TraceEventType.RUN_ENDED for row in await app.journal.trace(run_id))


async def _spent(app: App, run: RunRecord) -> tuple[dict[str, Any] | None, list[TraceEvent]]:
    """Return what was spent, and what of it the trace does not tell yet; None where that cannot be known.

    The last checkpoint says it, and the archive what a node asked that was cut off after that (R116).
    """
    if app.checkpointer is None or run.thread_id is None:
        return None, []
    try:
        values = await latest_values(app.chat, {"configurable": {"thread_id": run.thread_id}})
        if values.get("run", {}).get("run_id") != run.run_id:
            return None, []
        answers = await app.journal.archived(run.run_id, MODEL_ANSWER)
        spent = recounted(load_budget(values), load_ledger(values), answers)
        told = [dict(row.fields) for row in await app.journal.trace(run.run_id) if row.type in AUDITED]
        return usage_of({**values, **spent.accounts()}), [each for each in spent.events if each.fields not in told]
    except Exception as error:
        logger.warning("what an abandoned run had spent cannot be read: %s", type(error).__name__)
        return None, []
