"""Runs the real graph with scripted answers over in-memory stores."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import StateSnapshot

from graph.context import DiagnosisContext
from graph.contract import RunState
from graph.diagnosis import build_diagnosis_graph, recursion_limit
from nodes.ports import Resources, RunRecord
from service.store.clock import FixedClock
from service.store.memory import InMemoryRunStore
from tests.fakes import Answer, ProbeTool, ScriptedModel
from tests.hooks import HookedCanonicalStore, HookedJournal


class CountingIds:
    """Predictable UUID4 texts."""

    def __init__(self) -> None:
        self.given = 0

    def new_id(self) -> str:
        self.given += 1
        return str(uuid.UUID(int=self.given, version=4))


@dataclass
class Loop:
    """One graph with its doubles; `state` is the last run's final state."""

    model: ScriptedModel
    tool: ProbeTool
    resources: Resources
    graph: Any
    runs: InMemoryRunStore
    journal: HookedJournal
    canonical: HookedCanonicalStore
    clock: FixedClock
    state: dict[str, Any]

    async def run(
        self, query: str = "why?", thread: str = "t", run_id: uuid.UUID | None = None, **context: Any
    ) -> dict[str, Any]:
        settings = DiagnosisContext(**context)
        config = {**self.config(thread, run_id), "recursion_limit": recursion_limit(settings.budget)}
        self.state = await self.graph.ainvoke({"query": query}, config, context=settings)
        return self.state

    async def resume(
        self, at: RunnableConfig | None = None, thread: str = "t", run_id: uuid.UUID | None = None
    ) -> dict[str, Any]:
        """Go on from a checkpoint, the latest unless told, as another execution unless told."""
        config = {**self.config(thread, run_id)}
        if at is not None:
            config["configurable"] = at["configurable"]
        self.state = await self.graph.ainvoke(None, config)
        return self.state

    async def history(self, thread: str = "t") -> list[StateSnapshot]:
        """The thread's checkpoints, oldest first."""
        return [each async for each in self.graph.aget_state_history(self.config(thread))][::-1]

    async def at(self, node: str, thread: str = "t") -> StateSnapshot:
        """The first checkpoint from which `node` runs next."""
        return next(each for each in await self.history(thread) if each.next == (node,))

    @staticmethod
    def config(thread: str = "t", run_id: uuid.UUID | None = None) -> RunnableConfig:
        return {
            "configurable": {"thread_id": thread},
            "recursion_limit": recursion_limit(DiagnosisContext().budget),
            "run_id": run_id or uuid.uuid4(),
        }

    async def cancel(self, *_: Any) -> None:
        """What the cancel endpoint does to the only Run that is alive."""
        (run,) = [run for run in await self.runs.runs() if run.internal_state is RunState.RUNNING]
        assert await self.runs.transition(run.run_id, frozenset({RunState.RUNNING}), RunState.CANCEL_REQUESTED)

    @property
    def outcome(self) -> dict[str, Any]:
        outcome = self.state["outcome"]
        assert outcome is not None
        return outcome  # type: ignore[no-any-return]

    @property
    def run_id(self) -> str:
        return str(self.state["run"]["run_id"])

    async def record(self) -> RunRecord:
        record = await self.runs.get(self.run_id)
        assert record is not None
        return record

    async def events(self, kind: str | None = None, run_id: str | None = None) -> list[dict[str, Any]]:
        rows = await self.journal.trace(run_id or self.run_id)
        return [{"type": row.type.value, **row.fields} for row in rows if kind is None or row.type.value == kind]

    def answers(self) -> list[dict[str, Any]]:
        """Contents of all ToolMessages, in order."""
        return [json.loads(m.content) for m in self.state["messages"] if isinstance(m, ToolMessage)]


def make_loop(answers: Sequence[Answer] | Any, *, checkpointer: Any = True, **options: Any) -> Loop:
    """Build a loop; options replace Resources fields, `build` the graph, `loop` the class."""
    build, loop = options.pop("build", build_diagnosis_graph), options.pop("loop", Loop)
    model, tool = options.pop("model", None) or ScriptedModel(answers), options.pop("tool", None) or ProbeTool()
    clock, runs = (
        options.pop("clock", None) or FixedClock(1_700_000_000.0),
        options.pop("runs", None) or InMemoryRunStore(),
    )
    canonical = options.pop("canonical", None) or HookedCanonicalStore(clock.now)
    journal = options.pop("journal", None) or HookedJournal(clock)
    resources = Resources(
        models=options.pop("models", model),
        tools={each.name: each for each in (tool, *options.pop("more_tools", ()))},
        canonical=canonical,
        runs=runs,
        journal=journal,
        clock=clock,
        ids=options.pop("ids", None) or CountingIds(),
        **options,
    )
    saver = InMemorySaver() if checkpointer is True else checkpointer
    made = loop(model, tool, resources, build(resources, saver), runs, journal, canonical, clock, {})
    MADE.append(made)
    return made  # type: ignore[no-any-return]


MADE: list[Loop] = []
"""The loops of the test in hand, for whoever wants to replay what they ran."""


def assert_every_call_answered_once(state: dict[str, Any]) -> None:
    """R29, R58: each requested call has exactly one ToolMessage, directly after its message, in order."""
    expected: list[str] = []
    got: list[str] = []
    for message in state["messages"]:
        if isinstance(message, AIMessage):
            assert got == expected
            expected += [str(c["id"]) for c in [*message.tool_calls, *message.invalid_tool_calls]]
        elif isinstance(message, ToolMessage):
            got.append(message.tool_call_id)
    assert got == expected
