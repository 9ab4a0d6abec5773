"""Runs the real graph with scripted answers over in-memory stores."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from graph.context import DiagnosisContext
from graph.diagnosis import DiagnosisGraph, build_diagnosis_graph, recursion_limit
from nodes.ports import Resources, RunRecord
from service.store.clock import FixedClock
from service.store.memory import InMemoryJournal, InMemoryRunStore
from tests.fakes import Answer, ProbeTool, ScriptedModel
from tools.canonical.memory import MemoryCanonicalStore


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
    graph: DiagnosisGraph
    runs: InMemoryRunStore
    journal: InMemoryJournal
    canonical: MemoryCanonicalStore
    clock: FixedClock
    state: dict[str, Any]

    async def run(self, query: str = "why?", thread: str = "t", **context: Any) -> dict[str, Any]:
        settings = DiagnosisContext(**context)
        self.state = await self.graph.ainvoke(
            {"query": query},
            {
                "configurable": {"thread_id": thread},
                "recursion_limit": recursion_limit(settings.budget),
                "run_id": uuid.uuid4(),
            },
            context=settings,
        )
        return self.state

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

    async def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        rows = await self.journal.trace(self.run_id)
        return [{"type": row.type.value, **row.fields} for row in rows if kind is None or row.type.value == kind]

    def answers(self) -> list[dict[str, Any]]:
        """Contents of all ToolMessages, in order."""
        return [json.loads(m.content) for m in self.state["messages"] if isinstance(m, ToolMessage)]


def make_loop(answers: Sequence[Answer] | Any, *, checkpointer: Any = True, **options: Any) -> Loop:
    """Build a loop; options replace Resources fields."""
    model, tool = ScriptedModel(answers), options.pop("tool", None) or ProbeTool()
    clock, runs = options.pop("clock", None) or FixedClock(1_700_000_000.0), InMemoryRunStore()
    canonical = options.pop("canonical", None) or MemoryCanonicalStore(clock.now)
    journal = InMemoryJournal()
    resources = Resources(
        models=model,
        tools={tool.name: tool},
        canonical=canonical,
        runs=runs,
        journal=journal,
        clock=clock,
        ids=CountingIds(),
        **options,
    )
    saver = InMemorySaver() if checkpointer is True else checkpointer
    graph = build_diagnosis_graph(resources, saver)
    return Loop(model, tool, resources, graph, runs, journal, canonical, clock, {})


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
