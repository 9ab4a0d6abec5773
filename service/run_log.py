"""What the service's log tells of a Run: that this process carries it, and how it left (R104, R154).

One line each, closed codes and numbers only: nothing that a person, a model or a backend wrote.
"""

from __future__ import annotations

import logging

from nodes.ports import RunRecord
from service.run_events import RunSource
from service.store.status import TERMINAL, public_status
from service.store.whitelist import safe_code

logger = logging.getLogger("superbiz.runs")


def log_begin(run_id: str, *, taken_up: bool) -> None:
    """Say that this process carries a Run from now on."""
    logger.info("%s run_id=%s", "run_taken_up" if taken_up else "run_started", run_id)


async def log_end(runs: RunSource, run_id: str) -> None:
    """Say how the Run stands that this process carries no longer. Never raises but for a cancel."""
    try:
        record = await runs.get(run_id)
    except Exception as error:
        logger.warning("run_left run_id=%s store=%s", run_id, type(error).__name__)
    else:
        if record is not None:
            logger.info(end_line(record))


def end_line(record: RunRecord) -> str:
    """Return the line of a Run that has ended, or that somebody else will carry on. Pure.

    `seconds` is from the question to the end, also where several processes carried the Run.
    """
    if record.internal_state not in TERMINAL or record.ended_at is None:
        return f"run_handed_over run_id={record.run_id}"
    status = public_status(record.internal_state, record.release_outcome)
    return (
        f"run_ended run_id={record.run_id} status={status.value} outcome={record.release_outcome.value} "
        f"error_code={safe_code(record.error_code) if record.error_code else '-'} "
        f"seconds={record.ended_at - record.created_at:.3f}"
    )
