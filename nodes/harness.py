"""`DiagnosisHarnessCore`: starts Runs, guards every node's entry, and writes down what each node decided (R1-R3, R8).

A node itself is a function `(state, NodeRun) -> NodeResult`; `as_graph_node` makes it a LangGraph node.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.types import Overwrite

from graph.context import DiagnosisContext
from graph.contract import Intent, RunState, TraceEvent, TraceEventType
from graph.state import load_budget, load_ledger
from nodes.archive import fork_entry, fork_settings, harness_entry, interrupted_entry, node_entries
from nodes.contract import RunSettings
from nodes.events import event
from nodes.forking import Fork, check_forkable, copy_run, fork_intent, forked_settings, merged
from nodes.lease import lease_kept
from nodes.model_calls import recounted
from nodes.node_run import CURRENT_NODE, NodeResult, NodeRun, RecordingClock
from nodes.outside import Outside, observed
from nodes.ports import ORIGIN, TERMINAL, ArchiveEntry, JournalBatch, Resources, RunOrigin, RunRecord, owner_called
from nodes.run_end import LIVE, end_without_result
from nodes.storable import storable_update
from nodes.usage import usage_of
from tools.catalog import parse_time

logger = logging.getLogger("superbiz.harness")

ENDED_BY_RELEASE = frozenset({RunState.SUCCESS, RunState.FAILED, RunState.BUDGET_EXHAUSTED})

Node = Callable[[Any, NodeRun], Awaitable[NodeResult]]
"""A node: of the state of its own graph and what it works with, it makes an update."""


class GraphNode(Protocol):
    """A node as LangGraph calls it."""

    def __call__(self, state: Any, *, runtime: Runtime[DiagnosisContext]) -> Awaitable[dict[str, Any]]:
        """Return the update of the state."""


class RunTakenElsewhere(Exception):
    """Another execution holds this Run's lease; this one must not go on (R3)."""


class RunOfAnother(PermissionError):
    """The state names a Run of somebody else: whoever edited it must not get at that Run's evidence (R134)."""


class DiagnosisHarnessCore:
    """Run guards over the run store, the canonical store and the journal."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def start_run(
        self,
        run: NodeRun,
        query: str,
        session_id: str | None,
        *,
        forked_from: RunSettings | None = None,
        intent: Intent | None = None,
    ) -> RunSettings:
        """Create a Run in state RUNNING, held by this execution (R1, R3); without an intent where that is routed yet (R97).

        Raises SessionBusy.
        A Run of this very id that was created before the process died is taken up instead.
        """
        resources, origin = self._resources, run.origin
        now, run_id = run.clock.now(), run.new_run_id()
        settings = forked_settings(forked_from, run_id, now) if forked_from else self._settings(run, run_id, now)
        record = RunRecord(
            run_id=settings.run_id,
            query=query,
            session_id=session_id,
            internal_state=RunState.RUNNING,
            created_at=now,
            execution_id=run.execution_id,
            lease_until=now + resources.lease_seconds,
            forked_from=settings.forked_from,
            intent=intent,
            owner=run.owner,
            thread_id=run.thread_id,
            session_lock=session_lock(origin, session_id) or _thread_lock(run),
            context=run.context.model_dump(mode="json") if origin else None,
        )
        if await resources.runs.create(record):
            return settings
        held = await resources.runs.get(run_id)
        if origin is None or held is None:
            return settings
        if held.internal_state not in TERMINAL:
            await self._hold_lease(run, held)
        # Accepted earlier, it may have waited: its clocks begin now, or began when another process wrote this node down.
        # A replay starts the Run once: the time it began is the one it must be told (R67).
        written = await resources.journal.archived_one(run_id, "clock", CURRENT_NODE.get())
        began = float(written["readings"][0]) if written and written["readings"] else now
        run.clock.readings[:] = [began]
        return self._settings(run, run_id, began)

    async def adopt(self, run: NodeRun, query: str) -> NodeRun:
        """Take up the Run that the service has stored for a host to begin: it has the id of the host's thread (R134).

        Neither state nor config are asked, a caller could set both. Raises RunTakenElsewhere when the Run was cancelled
        before it began, or somebody else has just begun it.
        """
        if not run.resources.on_host or run.thread_id is None or run.execution_id is None:
            return run
        held = await run.resources.runs.get(run.thread_id)
        run.outside.forget()
        # The service knows no thread of a Run that a host begins; other Runs are none of a host's.
        if held is None or held.thread_id is not None or held.query != query:
            return run
        if run.caller is not None and held.owner != run.owner:
            return run
        if held.execution_id not in (None, run.execution_id):
            return run
        runs, begun = run.resources.runs, held.internal_state is RunState.RUNNING
        if not begun and not await runs.transition(held.run_id, frozenset({RunState.CREATED}), RunState.RUNNING):
            raise RunTakenElsewhere(held.run_id)
        now = run.clock.now()
        until = now + self._resources.lease_seconds
        if not await runs.take_lease(held.run_id, run.execution_id, now, until, False):
            raise RunTakenElsewhere(held.run_id)
        return replace(run, origin=RunOrigin(held.run_id, held.owner, alone_in_session=True))

    async def enter(self, run: NodeRun, state: Mapping[str, Any], node: str) -> tuple[NodeRun, Fork | None]:
        """Check who enters which Run (R3): go on, take over, or fork a finished Run into a new one.

        An execution whose origin names this Run resumes it, however far another one got: that is no fork.

        Returns the NodeRun to work with and what a fork writes. Raises RunTakenElsewhere.
        """
        settings = run.run
        record = await run.resources.runs.get(settings.run_id)
        if record is not None and run.caller is not None and record.owner != owner_called(run.caller):
            raise RunOfAnother("the state names a run of another caller")
        run = replace(run, record=record)
        resumed = run.origin is not None and run.origin.run_id == settings.run_id
        if record is None or (not resumed and self._is_fork(record, run.execution_id, node)):
            return await self._fork(run, state, node)
        if record.internal_state in TERMINAL or run.execution_id is None:
            return run, None
        await self._hold_lease(run, record)
        return run, None

    async def mark_interrupted(
        self,
        run_id: str,
        usage: dict[str, Any] | None = None,
        *,
        holder: str | None,
        events: Sequence[TraceEvent] = (),
        archive: Sequence[ArchiveEntry] = (),
        draining: bool = False,
    ) -> bool:
        """Write the end of a Run whose execution `holder` the host cancelled (R94), with what it had spent, if known.

        A process that stops (`draining`) ends only what somebody had cancelled; the rest is left to be carried on.
        """
        resources = self._resources
        return await end_without_result(
            resources.runs,
            resources.journal,
            run_id,
            RunState.CANCELLED,
            "CANCELLED",
            resources.clock.now(),
            usage=usage,
            events=events,
            archive=archive,
            expected=frozenset({RunState.CANCEL_REQUESTED}) if draining else LIVE,
            holder=holder,
        )

    def _settings(self, run: NodeRun, run_id: str, now: float) -> RunSettings:
        context = run.context
        return RunSettings(
            run_id=run_id,
            started_at=now,
            now=parse_time(context.at) if context.at else now,
            at_given=context.at is not None,
            model=context.model,
            language=context.language or self._resources.language,
            limits=context.budget,
        )

    @staticmethod
    def _is_fork(record: RunRecord, execution_id: str | None, node: str) -> bool:
        # Nothing runs after `release` in the same execution, so whoever enters a released Run is another one, but for
        # `release` itself when its execution is resumed. A cancelled or timed-out Run may still be entered by its own
        # late node, which must drop its result instead (R120).
        if record.internal_state in ENDED_BY_RELEASE:
            return node != "release" or execution_id is None or record.execution_id != execution_id
        return record.internal_state in TERMINAL and record.execution_id != execution_id

    async def _hold_lease(self, run: NodeRun, record: RunRecord) -> None:
        now, seconds = run.clock.now(), self._resources.lease_seconds
        own = record.execution_id == run.execution_id
        if own and record.lease_until is not None and record.lease_until - now > seconds / 2:
            return
        assert run.execution_id is not None
        if not await self._resources.runs.take_lease(
            record.run_id, run.execution_id, now, now + seconds, run.resources.host_serialises_threads
        ):
            raise RunTakenElsewhere(record.run_id)

    async def _fork(self, run: NodeRun, state: Mapping[str, Any], node: str) -> tuple[NodeRun, Fork]:
        check_forkable(state)
        old = run.run
        intent = fork_intent(state, node)
        settings = await self.start_run(run, state["query"], state.get("session_id"), forked_from=old, intent=intent)
        fork = await copy_run(run.resources, old.run_id, settings, state, node)
        # Today's tools and prompts, not those of the Run that was left.
        today = self._resources.start_archive
        begins = (harness_entry(self._resources, run.model()), fork_entry(state, node), *today)
        fork = replace(fork, archive=(*begins, *fork.archive, *fork_settings(state, run)))
        record = await run.resources.runs.get(settings.run_id)
        return replace(run, settings=settings, record=record), fork


def thread_lock(thread_id: str) -> str:
    """Return what the only active Run of a host's thread holds. Pure."""
    return json.dumps({"thread": thread_id})


def _thread_lock(run: NodeRun) -> str | None:
    return thread_lock(run.thread_id) if run.resources.one_run_per_thread and run.thread_id else None


def session_lock(origin: RunOrigin | None, session_id: str | None) -> str | None:
    """Return what the only active Run of an owner's session holds; None where several may run. Pure."""
    if origin is None or not origin.alone_in_session or session_id is None:
        return None
    return lock_of_session(origin.owner, session_id)


def lock_of_session(owner: str | None, session_id: str) -> str:
    """Return what the only active Run of an owner's session holds. Pure."""
    return json.dumps([owner, session_id], ensure_ascii=False)


def as_graph_node(name: str, node: Node, resources: Resources, *, starts_run: bool = False) -> GraphNode:
    """Wrap a node: guard its entry, call it, write down its events, and return the update with `step` and `position`."""
    core = DiagnosisHarnessCore(resources)

    async def run_node(state: Any, *, runtime: Runtime[DiagnosisContext]) -> dict[str, Any]:
        key = _key(name, state, starts_run)
        CURRENT_NODE.set(key)
        run = _node_run(state, runtime, resources, starts_run)
        fork: Fork | None = None
        if not starts_run:
            run, fork = await core.enter(run, state, name)
            state = _applied(state, fork.update if fork else {})
        done: tuple[NodeResult, JournalBatch] | None = None
        try:
            async with lease_kept(run):
                result = await node(state, run)
            position = _position(state, result, starts_run)
            done = result, _batch(key, run, result, fork)
            await resources.journal.write(done[1])
        except asyncio.CancelledError:
            await _interrupted(core, run, state, done, key, draining=runtime.drain_requested)
            raise
        runtime.stream_writer({"node": name, "step": result.step})
        update = merged(fork.update if fork else {}, result.update)
        return storable_update({**update, "step": result.step, "position": position})

    run_node.__name__ = name
    run_node.__doc__ = node.__doc__
    return run_node


def _position(state: Mapping[str, Any], result: NodeResult, starts_run: bool) -> dict[str, int]:
    before = {"turn": 0, "step": 0} if starts_run else state["position"]
    return {**before, "step": before["step"] + 1, **result.position}


def _key(name: str, state: Mapping[str, Any], starts_run: bool) -> str:
    return f"{1 if starts_run else state['position']['step'] + 1:04d}:{name}"


async def _interrupted(
    core: DiagnosisHarnessCore,
    run: NodeRun,
    state: Mapping[str, Any],
    done: tuple[NodeResult, JournalBatch] | None,
    key: str,
    *,
    draining: bool,
) -> None:
    """Mark the end of a Run in flight; what its last node spent counts, a model call without an answer as a gap (R116)."""
    if done is None and run.settings is None:
        return
    # Past its timeout a Run is not cancelled but timed out: whoever stops it writes that end (R60).
    if run.settings is None or not run.timed_out():
        # A service asks for a cancel in the store first; without that its own limit cut this off, and it says how it ends.
        only_asked = draining or run.origin is not None
        work = (
            _mark_done(core, run, state, done, key, only_asked) if done else _mark_cut(core, run, state, key, draining)
        )
        await _finish_in_spite_of_cancel(work)


async def _mark_done(
    core: DiagnosisHarnessCore,
    run: NodeRun,
    state: Mapping[str, Any],
    done: tuple[NodeResult, JournalBatch],
    key: str,
    only_asked: bool,
) -> None:
    """What the node had decided is written down, if it is not yet, before the end."""
    result, batch = done
    await run.resources.journal.write(batch)
    usage = usage_of(_applied(state, result.update))
    archive = [interrupted_entry(key, finished=True)]
    await core.mark_interrupted(batch.run_id, usage, holder=run.execution_id, archive=archive, draining=only_asked)


async def _mark_cut(
    core: DiagnosisHarnessCore, run: NodeRun, state: Mapping[str, Any], key: str, draining: bool
) -> None:
    spent = recounted(load_budget(state), load_ledger(state), {each.key: each.payload for each in run.attempts})
    usage = usage_of({**state, **spent.accounts()})
    archive = [*spent.archive, interrupted_entry(key, finished=False)]
    only_asked, run_id = draining or run.origin is not None, run.run.run_id
    ended = await core.mark_interrupted(
        run_id, usage, holder=run.execution_id, events=spent.events, archive=archive, draining=only_asked
    )
    if not ended and draining and spent.archive:
        # Whoever carries on does this node again: it will audit these calls, and ask for none whose answer came.
        kept = f"cut:{key}:{len(spent.archive)}"
        await run.resources.journal.write(JournalBatch(run_id, kept, run.clock.now(), archive=spent.archive))


def _node_run(
    state: Mapping[str, Any], runtime: Runtime[DiagnosisContext], resources: Resources, starts_run: bool
) -> NodeRun:
    info, outside = runtime.execution_info, Outside()
    origin = get_config().get("configurable", {}).get(ORIGIN)
    user = runtime.server_info.user if runtime.server_info is not None else None
    return NodeRun(
        resources=observed(resources, outside),
        settings=None if starts_run else RunSettings.model_validate(state["run"]),
        record=None,
        execution_id=info.run_id if info is not None else None,
        # Omitted in-process, the context is None.
        context=runtime.context or resources.default_context,
        clock=RecordingClock(resources.clock),
        # Over a wire comes plain data, never an instance.
        origin=origin if isinstance(origin, RunOrigin) else None,
        caller=str(user.identity) if user is not None else None,
        thread_id=info.thread_id if info is not None else None,
        outside=outside,
    )


def _applied(state: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: value.value if isinstance(value, Overwrite) else value for key, value in update.items()}
    return {**state, **values}


def _batch(key: str, run: NodeRun, result: NodeResult, fork: Fork | None) -> JournalBatch:
    run_id = result.update["run"]["run_id"] if "run" in result.update else run.run.run_id
    events = list(result.events)
    if fork is not None:
        events.insert(0, event(TraceEventType.RUN_STARTED, forked_from=run.run.forked_from))
    at = run.clock.readings[-1] if run.clock.readings else run.clock.now()
    archive = [*(fork.archive if fork else ()), *result.archive, *node_entries(key, run, result, len(events))]
    return JournalBatch(run_id=run_id, key=key, at=at, events=events, steps=result.steps, archive=archive)


async def _finish_in_spite_of_cancel(work: Any) -> None:
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=5)
    except Exception as error:
        # The cancel must go on whatever the store says; the sweep ends the Run when its lease runs out.
        logger.warning("could not mark the end of a cancelled run: %s", type(error).__name__)
