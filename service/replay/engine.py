"""Replays a recorded Run through the real graph and says how it went (R67, R154)."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

from langchain_core.messages import messages_from_dict
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import NodeCancelledError
from langgraph.graph.state import CompiledStateGraph
from langsmith import tracing_context

from graph.chat import build_chat_graph
from graph.context import DiagnosisContext
from graph.contract import RunState, TraceEvent, TraceEventType
from graph.diagnosis import build_diagnosis_graph, recursion_limit
from graph.routes import PATHS, after_route_intent
from graph.state import load_budget, load_ledger
from nodes.archive import interrupted_entry
from nodes.contract import CollectionEnd, EndCause
from nodes.harness import ENDED_BY_RELEASE
from nodes.model_calls import ModelCallOutcome, recounted
from nodes.outside import GET_RUN, MISSING
from nodes.ports import ORIGIN, ArchiveEntry, JournalBatch, ModelFactory, Resources, RunOrigin, RunRecord
from nodes.run_end import end_without_result
from nodes.usage import usage_of
from service.checkpoints import latest_state
from service.execution import INTERNAL_ERROR
from service.replay.bundle import Bundle
from service.replay.catalog import tools_of
from service.replay.export import export_run
from service.replay.playback import (
    ByScope,
    OffTheRecord,
    RecordedCanonicalStore,
    RecordedClock,
    RecordedIds,
    RecordedJournal,
    RecordedModel,
    RecordedRunStore,
    Recording,
    ReleaseUntold,
    by_call_id,
    parent_of,
    recorded_system,
    recorded_tools,
)
from service.start_archive import prompts_entry, tools_entry
from tools.contract import Scope
from tools.evidence_tool import EvidenceTool

FIXED_EDGES = {
    "start_run": ("model_step",),
    "reject_call": ("model_step",),
    "require_stop": ("model_step",),
    "guard_semantics": ("release",),
}
"""Nodes without a choice, and where they lead."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay left behind; `left_at` is the first node execution that the recorded Run does not have."""

    bundle: Bundle | None
    left_at: str | None = None


async def replay(
    bundle: Bundle, *, tools: Mapping[str, EvidenceTool] | None = None, context: DiagnosisContext | None = None
) -> Replayed:
    """Run the recorded Run again. With `context`, under other settings and on beyond the record where they lead there.

    `tools` check and project, none is run; by default they are built from the bundle. Raises BundleError.
    """
    return await _Stage(bundle, tools if tools is not None else tools_of(bundle), context).play()


@dataclass(frozen=True, slots=True)
class WithModel:
    """How a Run went with another model: what it published, which of its calls were on record, and which were not."""

    outcome: Mapping[str, Any] | None
    bundle: Bundle | None
    recorded_calls: int
    unrecorded: tuple[Scope, ...]


async def replay_with(
    bundle: Bundle, models: ModelFactory, *, tools: Mapping[str, EvidenceTool] | None = None
) -> WithModel:
    """Put the Run's question to a live model over the recorded results; a call without a record is a tool ERROR.

    Time stands still beyond the record. Raises BundleError.
    """
    tools = tools if tools is not None else tools_of(bundle)
    run = ByScope(bundle, tools)
    stage = _Stage(bundle, tools, recorded_context(bundle), models=models, run=run)
    played = (await stage.play()).bundle
    outcome = played.by_kind["result"].get("result") if played else None
    return WithModel(outcome, played, run.recorded, tuple(run.unrecorded))


def recorded_context(bundle: Bundle) -> DiagnosisContext:
    """Return the settings the Run had."""
    payload = {name: value for name, value in bundle.settings["context"].items() if name != "model_name"}
    return DiagnosisContext.model_validate(payload)


class _Stage:
    """One replay: the real graph over what was recorded."""

    def __init__(
        self,
        bundle: Bundle,
        tools: Mapping[str, EvidenceTool],
        context: DiagnosisContext | None,
        *,
        models: ModelFactory | None = None,
        run: ByScope | None = None,
    ) -> None:
        self._bundle = bundle
        self._context = context or recorded_context(bundle)
        recording = Recording(bundle, strict=context is None)
        self._runs = RecordedRunStore(recording)
        self._journal = RecordedJournal(recording)
        resources = _resources(recording, self._runs, self._journal, tools)
        if models is not None and run is not None:
            resources = changed(resources, models=models, tools=recorded_tools(tools, run))
        self._resources = resources
        self._graph = _graph(bundle, self._resources)
        self._config: RunnableConfig = {
            "configurable": {"thread_id": "replay"},
            "recursion_limit": recursion_limit(self._context.budget),
        }
        if bundle.run.has_execution:
            self._config["run_id"] = uuid.uuid4()
        if _was_ended_at_work(bundle):
            # Whoever had started it knew its Run: going on in an ended one was no fork.
            self._config["configurable"][ORIGIN] = RunOrigin(bundle.run_id)

    async def play(self) -> Replayed:
        """Go from the Run's beginning to its end. Nothing of it is traced: the content is the recorded Run's."""
        with tracing_context(enabled=False):
            return await self._play()

    async def _play(self) -> Replayed:
        graph_input = await self._begin()
        left_at = await self._go(graph_input)
        if left_at is not None and await self._collection_was_ended(left_at):
            left_at = await self._go(None)
        if left_at is not None and await self._run_was_ended(left_at):
            left_at = None
        await self._journal.written_by_others()
        record = await self._runs.find(self._bundle.run_id)
        if record is None or record.ended_at is None:
            record = _unfinished(record, self._bundle)
        return Replayed(await export_run(record, self._journal) if record else None, left_at)

    async def _go(self, graph_input: Any) -> str | None:
        try:
            await self._graph.ainvoke(graph_input, self._config, context=self._context)
        except OffTheRecord as here:
            return here.key
        except ReleaseUntold:
            await self._tell_end()
        except (asyncio.CancelledError, NodeCancelledError):
            # The host's cancel, where it struck then; the graph has marked the end.
            if not self._bundle.by_kind["outside"].get("end", {}).get("finished"):
                raise
        return None

    async def _tell_end(self) -> None:
        """Write the end that another process told for the one that had died, if one did (R108)."""
        ended = next((row for row in self._bundle.trace if row["type"] == TraceEventType.RUN_ENDED), None)
        if ended is not None:
            told = TraceEvent(type=TraceEventType.RUN_ENDED, fields=dict(ended["fields"]))
            await self._journal.of_another(JournalBatch(self._bundle.run_id, "end:told", ended["at"], [told]))

    async def _begin(self) -> Any:
        fork = self._bundle.by_kind["fork"].get("state")
        question = self._bundle.by_kind["question"]["question"]
        if fork is None:
            return {"query": question["query"], "session_id": question["session_id"]}
        await self._restore_parent(fork["node"])
        state = dict(fork["state"])
        if state["messages"] or "tracker" in state:
            state["messages"] = messages_from_dict(state["messages"])
        else:
            del state["messages"]  # a chat has none
        if fork["node"] == "start_run":
            return state
        await self._graph.aupdate_state(self._config, state, as_node=_before(fork["node"], state))
        return None

    async def _restore_parent(self, node: str) -> None:
        """Give the fork the Run that it left: its row as it was seen, and the archive that is copied from it."""
        first = self._bundle.path[0] if self._bundle.path else node
        seen = self._bundle.by_kind["outside"].get(first, {}).get(GET_RUN, [MISSING])[0]
        parent = parent_of(self._bundle, seen if seen != MISSING else RunState.SUCCESS.value)
        if seen != MISSING:
            await self._runs.create(parent)
        archive = [
            ArchiveEntry(kind, key, payload)
            for kind in ("question", "settings", "agent_result")
            for key, payload in self._bundle.by_kind[kind].items()
        ]
        await self._journal.of_another(JournalBatch(parent.run_id, "archive", 0.0, archive=archive))

    async def _collection_was_ended(self, left_at: str) -> bool:
        """Repeat what the host did to a Run that failed or hung: route it to the end of collection (R60)."""
        number = left_at.partition(":")[0]
        key = f"{number}:project_progress"
        if not _needs_state(self._bundle):
            return False
        stopped = next((each["fields"] for each in self._bundle.trace if _stops(each, key)), None)
        if key not in self._bundle.path or stopped is None:
            return False
        cause = EndCause(stopped["cause"])
        ended = CollectionEnd(cause=cause, fault=INTERNAL_ERROR if cause is EndCause.FAULT else None)
        update = {"ended": ended.model_dump(mode="json"), "outcome": None}
        state = await latest_state(self._graph, self._config)
        await self._graph.aupdate_state(state.config, update, as_node="execute_tool")
        return True

    async def _run_was_ended(self, left_at: str) -> bool:
        """Repeat the end that was written from outside: a host's cancel, its time limit, a fault, a sweep (R94)."""
        rows = [each for each in self._bundle.trace if each["node"] is None]
        ended = next((each for each in rows if each["type"] == TraceEventType.RUN_ENDED), None)
        run, number = self._bundle.run, left_at.partition(":")[0]
        if ended is None or any(key.startswith(f"{number}:") for key in self._bundle.path):
            return False
        await self._journal.written_by_others()
        state = await self._graph.aget_state(self._config, subgraphs=True)
        end = self._bundle.by_kind["outside"].get("end")
        # A node that was cancelled at work told its own graph's state; a host knows the outer one's alone.
        inner = next((each.state for each in state.tasks if end and each.state), state)
        values = getattr(inner, "values", {})
        spent = _spent_beyond(values, self._bundle)
        usage = usage_of({**values, **spent.accounts()}) if spent and "model_calls" in ended["fields"] else None
        archive = [interrupted_entry(left_at, finished=False)] if end is not None else []
        await end_without_result(
            self._runs,
            self._journal,
            run.run_id,
            run.internal_state,
            run.error_code or "",
            ended["at"],
            usage=usage,
            events=spent.events if spent else (),
            archive=[*(spent.archive if spent else ()), *archive],
        )
        return True


def _spent_beyond(values: Mapping[str, Any], bundle: Bundle) -> ModelCallOutcome | None:
    """Return the model calls of a node that was cut off (R116); None of a Run that had no accounts yet."""
    if "ledger" not in values:
        return None
    return recounted(load_budget(values), load_ledger(values), bundle.by_kind["model_answer"])


def _needs_state(bundle: Bundle) -> bool:
    """Say whether the graph must be halted or entered midway; checkpoints cost a quarter of a replay."""
    from_outside = any(row["node"] is None and row["type"] == TraceEventType.RUN_ENDED for row in bundle.trace)
    stopped = any(_stops(row, row["node"] or "") for row in bundle.trace)
    return from_outside or stopped or bool(bundle.by_kind["fork"])


def _was_ended_at_work(bundle: Bundle) -> bool:
    """Say whether a node found the Run ended by somebody else, and went on in it."""
    later = frozenset(bundle.path[1:])
    found = (seen.get(GET_RUN, ()) for key, seen in bundle.by_kind["outside"].items() if key in later)
    return any(state in ENDED_BY_RELEASE for states in found for state in states)


def _graph(bundle: Bundle, resources: Resources) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Build the graph the Run went through: a chat, a diagnosis, or a diagnosis that joined a chat's Run."""
    fork, saver = bundle.by_kind["fork"].get("state"), InMemorySaver() if _needs_state(bundle) else None
    if fork is None:
        # A chat that was cut off while it was routed has no intent.
        is_chat = bundle.run.intent is None or any(key.endswith(":route_intent") for key in bundle.path)
    elif fork["node"] == "start_run":
        return build_diagnosis_graph(resources, saver, joins_run=True)
    else:
        is_chat = "tracker" not in fork["state"]
    return build_chat_graph(resources, saver) if is_chat else build_diagnosis_graph(resources, saver)


def _stops(row: Mapping[str, Any], key: str) -> bool:
    by_host = row["fields"].get("fault") == INTERNAL_ERROR or row["fields"].get("cause") == EndCause.TIMED_OUT
    return bool(row["node"] == key and row["type"] == TraceEventType.COLLECTION_STOPPED and by_host)


def _before(node: str, state: Mapping[str, Any]) -> str:
    """Return a node from which this state leads to `node`, so that the fork enters where it entered then."""
    if "tracker" not in state:
        return _before_in_chat(node, state)
    for source, targets in FIXED_EDGES.items():
        if node in targets:
            return source
    for source, (route, _) in PATHS.items():
        with contextlib.suppress(KeyError, ValueError, AttributeError):
            if route(state) == node:  # type: ignore[arg-type]
                return source
    return "start_run"


def _before_in_chat(node: str, state: Mapping[str, Any]) -> str:
    if node == "route_intent":
        return "start_run"
    chosen: Any = state
    return "route_intent" if after_route_intent(chosen) == node else "system_chat"


def _resources(
    recording: Recording, runs: RecordedRunStore, journal: RecordedJournal, tools: Mapping[str, EvidenceTool]
) -> Resources:
    bundle, canonical = recording.bundle, RecordedCanonicalStore(recording)
    harness = bundle.settings["harness"]
    return Resources(
        models=RecordedModel(bundle),
        tools=recorded_tools(tools, by_call_id(bundle, lambda: canonical.calling)),
        canonical=canonical,
        runs=runs,
        journal=journal,
        clock=RecordedClock(recording),
        ids=RecordedIds(recording),
        language=harness["language"],
        lease_seconds=harness["lease_seconds"],
        run_timeout_seconds=harness["run_timeout_seconds"],
        host_serialises_threads=harness["host_serialises_threads"],
        pause=_at_once,
        describe_system=recorded_system(bundle),
        start_archive=_start_archive(bundle, tools),
    )


def _start_archive(bundle: Bundle, tools: Mapping[str, EvidenceTool]) -> list[ArchiveEntry]:
    """Archive tools and prompts as they are today; the catalogue is the recorded one."""
    catalog = ArchiveEntry("settings", "catalog", bundle.settings.get("catalog", {}))
    today = (catalog, tools_entry(tools), prompts_entry())
    return [each for each in today if each.key in bundle.settings]


async def _at_once(seconds: float) -> None:
    """Wait for nothing: the recorded clock tells how long it took."""


def _unfinished(record: RunRecord | None, bundle: Bundle) -> RunRecord | None:
    """Let a replay that left the record be compared up to there."""
    if record is None:
        return None
    return changed(record, internal_state=RunState.FAILED, ended_at=bundle.run.ended_at)
