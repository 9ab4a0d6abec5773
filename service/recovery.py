"""What becomes of Runs whose process went away, and of what is kept too long (R3, R67, R94).

A Run is free when its lease has ended. A service takes it up and goes on from its last checkpoint; a command that is over
in a moment only ends what nobody will take up any more.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import InterfaceError, OperationalError

from graph.context import DiagnosisContext
from graph.contract import RunState
from nodes.node_run import ACTIVE
from nodes.ports import RunRecord
from release.contract import ReleaseOutcome
from service.endings import end_free_run, give_back

if TYPE_CHECKING:
    from service.app import App

INTERRUPTED = "INTERRUPTED"
"""Error code of a Run whose process went away and that cannot go on."""
QUEUE_SECONDS = 3600.0
"""How long a Run may wait in the queue of a host that is to begin it."""
SWEEP_SECONDS = 5.0
"""Pause between two looks for Runs that another process has left."""
TIDY_SECONDS = 3600.0
_THREADS_AT_ONCE = 100

logger = logging.getLogger("superbiz.service")


class Fate(Enum):
    """What is to be done with a Run that nobody carries."""

    LEAVE = auto()
    TAKE_UP = auto()
    CANCEL = auto()
    FAIL = auto()


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: how long a host that we do not know may leave its Run, and how long the evidence of a Run lives."""

    run_timeout: float
    evidence: float


@dataclass(frozen=True, slots=True)
class Takeover:
    """A Run to carry on under the lease that `execution_id` holds; `from_start` where it has no checkpoint yet.

    The execution's config needs `RunOrigin(record.run_id, …)`, the record's thread, and `execution_id` as its run id.
    """

    record: RunRecord
    execution_id: str
    context: DiagnosisContext
    from_start: bool


def fate(run: RunRecord, now: float, limits: Limits) -> Fate:
    """Decide over a Run. Pure.

    Its settings are known where a host of ours started it: then it can go on as long as its evidence lives, and past its
    timeout it publishes what it had verified. A Run of another host may be paused by a person, or retried by that host.
    """
    if run.lease_until is not None and run.lease_until > now:
        return Fate.LEAVE
    if run.internal_state is RunState.CANCEL_REQUESTED:
        return Fate.CANCEL
    if run.internal_state not in ACTIVE:
        return Fate.LEAVE
    if run.context is not None and run.thread_id is not None:
        return Fate.TAKE_UP if now - run.created_at < limits.evidence else Fate.FAIL
    if run.internal_state is RunState.CREATED and run.context is not None:
        # Stored for a host that has not begun it: no clock of the Run runs, and it may still be in the host's queue.
        return Fate.FAIL if now - run.created_at >= QUEUE_SECONDS else Fate.LEAVE
    free_since = run.lease_until if run.lease_until is not None else run.created_at
    return Fate.FAIL if now - free_since >= limits.run_timeout else Fate.LEAVE


async def tidy(app: App) -> None:
    """Delete what has expired and end Runs that nobody will carry on. Never fails the command it precedes."""
    try:
        await _delete_expired(app)
        for run, settle in await _free(app):
            await settle(app, run)
    except Exception as error:
        logger.warning("housekeeping failed: %s", type(error).__name__)


async def recover(app: App, limit: int, carried: Container[str] = ()) -> tuple[Takeover, ...]:
    """Take the lease of up to `limit` Runs that can go on, and end those that cannot. Raises SQLAlchemyError.

    Those in `carried` are at work in this very process, late with their lease or not.

    Of processes that look at once one gets a Run (R3). Whoever does not carry a Takeover on gives its lease back. A Run
    that cannot be read keeps no other from being taken up; a store out of reach ends the look.
    """
    taken: list[Takeover] = []
    try:
        for run, settle in await _free(app):
            if run.run_id not in carried and not await _look(app, run, settle, limit - len(taken), taken):
                break
    except BaseException:
        # A stop: nobody would carry on what stays held.
        for each in taken:
            await give_back(app, each.record.run_id, each.execution_id)
        raise
    return tuple(taken)


async def _look(app: App, run: RunRecord, settle: _Settle, room: int, taken: list[Takeover]) -> bool:
    """Settle a Run or take it up; say whether the store can be asked for the next."""
    try:
        if not await settle(app, run) and room > 0 and (takeover := await _taken(app, run)) is not None:
            taken.append(takeover)
    except Exception as error:
        logger.warning("an abandoned run could not be looked at: %s", type(error).__name__)
        return not isinstance(error, InterfaceError | OperationalError)
    return True


_Settle = Callable[["App", RunRecord], Awaitable[bool]]


async def _free(app: App) -> list[tuple[RunRecord, _Settle]]:
    """Return Runs that nobody holds, each with what says whether its end is all that it lacks, and then writes it."""
    now = app.resources.clock.now()
    half_ended = await app.runs.half_ended(now, now - app.settings.canonical_ttl_seconds)
    abandoned = await app.runs.abandoned(now)
    return [*((run, _told) for run in half_ended), *((run, _ended) for run in abandoned)]


async def keep_recovering(
    app: App,
    room: Callable[[], int],
    carry: Callable[[Takeover], Awaitable[None]],
    carried: Callable[[], Container[str]] = tuple,
) -> None:
    """Look again and again, now at once; `room` says how many Runs may be taken up, `carry` starts one. Never returns."""
    tidied = app.resources.clock.now()
    while True:
        try:
            for takeover in await recover(app, max(0, room()), carried()):
                await _carried(app, takeover, carry)
            if app.resources.clock.now() - tidied >= TIDY_SECONDS:
                tidied = app.resources.clock.now()
                await _delete_expired(app)
        except Exception as error:
            logger.warning("could not look for abandoned runs: %s", type(error).__name__)
        await asyncio.sleep(SWEEP_SECONDS)


def _limits(app: App) -> Limits:
    return Limits(app.settings.run_timeout_seconds, app.settings.canonical_ttl_seconds)


async def _carried(app: App, takeover: Takeover, carry: Callable[[Takeover], Awaitable[None]]) -> None:
    try:
        await carry(takeover)
    except Exception as error:
        logger.warning("an abandoned run could not be taken up: %s", type(error).__name__)
        await give_back(app, takeover.record.run_id, takeover.execution_id)


async def _ended(app: App, run: RunRecord) -> bool:
    """End the Run if that is its fate. The compare-and-set leaves alone what somebody else moved meanwhile."""
    match fate(run, app.resources.clock.now(), _limits(app)):
        case Fate.CANCEL:
            await end_free_run(app, run, RunState.CANCELLED, "CANCELLED", frozenset({RunState.CANCEL_REQUESTED}))
        case Fate.FAIL:
            await end_free_run(app, run, RunState.FAILED, INTERRUPTED, ACTIVE)
        case _:
            return False
    return True


def half_ended_fate(run: RunRecord, now: float, limits: Limits) -> Fate:
    """Decide over a Run that has ended and whose execution died before it gave its lease back. Pure.

    FAIL only writes the end down. A release is taken up, so that its node writes down what it had decided; where no host
    of ours can, the host that has the Run gets as long as it may leave any Run.
    """
    if run.release_outcome is ReleaseOutcome.NONE:
        return Fate.FAIL
    if run.context is not None and run.thread_id is not None:
        return Fate.TAKE_UP
    return Fate.FAIL if run.lease_until is None or now - run.lease_until >= limits.run_timeout else Fate.LEAVE


async def _told(app: App, run: RunRecord) -> bool:
    """Write the end of the Run down if that is all that it lacks."""
    match half_ended_fate(run, app.resources.clock.now(), _limits(app)):
        case Fate.TAKE_UP:
            return False
        case Fate.FAIL:
            await give_back(app, run.run_id, run.execution_id)
    return True


async def _taken(app: App, run: RunRecord) -> Takeover | None:
    now = app.resources.clock.now()
    if run.ended_at is None and fate(run, now, _limits(app)) is not Fate.TAKE_UP:
        return None
    try:
        context = DiagnosisContext.model_validate(run.context)
    except ValueError:
        # Its settings are no longer understood.
        await give_back(app, run.run_id, run.execution_id)
        await end_free_run(app, run, RunState.FAILED, INTERRUPTED, ACTIVE)
        return None
    try:
        app.resources.models.client(context.model)
    except ValueError:
        # Another process may know its model; it has as long as the evidence lives.
        return None
    execution_id = str(uuid.uuid4())
    try:
        return await _leased(app, run, execution_id, context)
    except BaseException:
        # A stop, or a checkpoint that cannot be read: nobody would carry on what stays held.
        await give_back(app, run.run_id, execution_id)
        raise


async def _leased(app: App, run: RunRecord, execution_id: str, context: DiagnosisContext) -> Takeover | None:
    now = app.resources.clock.now()
    if not await app.runs.take_lease(run.run_id, execution_id, now, now + app.resources.lease_seconds, force=False):
        return None
    held = await app.runs.get(run.run_id)
    if held is None or (run.ended_at is None and held.ended_at is not None):
        # It ended between the look and the lease.
        await give_back(app, run.run_id, execution_id)
        return None
    return Takeover(held, execution_id, context, from_start=not await _has_checkpoint(app, run))


async def _has_checkpoint(app: App, run: RunRecord) -> bool:
    if app.checkpointer is None:
        return False
    config: Any = {"configurable": {"thread_id": run.thread_id, "checkpoint_ns": ""}}
    return await app.checkpointer.aget_tuple(config) is not None


async def _delete_expired(app: App) -> None:
    """Archives and checkpoints live equally long: a fork needs both (R67)."""
    now = app.resources.clock.now()
    await app.journal.purge(now)
    if app.checkpointer is None:
        return
    threads = await app.runs.ended_threads(app.journal.cutoff(now), _THREADS_AT_ONCE)
    for thread_id in threads:
        await app.checkpointer.adelete_thread(thread_id)
    await app.runs.forget_threads(threads)
