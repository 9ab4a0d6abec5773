"""The diagnosis graph: the whole machine on one screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from graph.budget import BudgetLimits
from graph.context import DiagnosisContext, context_schema_with
from graph.routes import PATHS
from graph.state import DiagnosisInput, DiagnosisState, JoiningInput
from nodes.dedup_scope import dedup_scope
from nodes.execute_tool import execute_tool
from nodes.guard_evidence import guard_evidence
from nodes.guard_semantics import guard_semantics
from nodes.harness import as_graph_node
from nodes.model_step import model_step
from nodes.ports import Resources
from nodes.project_observation import project_observation
from nodes.project_progress import project_progress
from nodes.reject_call import reject_call
from nodes.release import release
from nodes.repair_evidence import repair_evidence
from nodes.require_stop import require_stop
from nodes.start_run import join_run, start_run
from nodes.validate_envelope import validate_envelope

DiagnosisGraph = CompiledStateGraph[DiagnosisState, DiagnosisContext, DiagnosisInput, DiagnosisState]

STEPS_PER_TURN = 6
"""model_step, validate_envelope, dedup_scope, execute_tool, project_observation, require_stop."""
STEPS_AROUND = 10
"""start_run, project_progress, guards with one repair, release, and LangGraph's own first step."""


def recursion_limit(limits: BudgetLimits) -> int:
    """Supersteps a run may take: follows from the budget, so that a bug ends instead of running on (R117)."""
    return STEPS_PER_TURN * limits.model_calls + STEPS_AROUND


def on_the_loop(route: Callable[[Any], str]) -> Callable[[Mapping[str, Any]], Awaitable[str]]:
    """Make a route a coroutine: LangGraph runs a plain function in a thread, and a pure route costs less than that hop."""

    @wraps(route)
    async def on_the_loop(state: Mapping[str, Any]) -> str:
        return route(state)

    return on_the_loop


def build_diagnosis_graph(
    resources: Resources, checkpointer: BaseCheckpointSaver[Any] | bool | None = None, *, joins_run: bool = False
) -> DiagnosisGraph:
    """Compile the graph over `resources`; pass no checkpointer where the host brings its own (LangGraph Server).

    With `joins_run` it is the chat's part: it goes on in the Run that the chat created instead of starting one.
    """
    builder = StateGraph(
        DiagnosisState,
        context_schema=context_schema_with(resources.default_context),
        input_schema=JoiningInput if joins_run else DiagnosisInput,
        output_schema=DiagnosisState,
    )
    start = join_run if joins_run else start_run
    builder.add_node("start_run", as_graph_node("start_run", start, resources, starts_run=not joins_run))
    for node in (
        model_step,
        validate_envelope,
        dedup_scope,
        execute_tool,
        project_observation,
        reject_call,
        require_stop,
        project_progress,
        guard_evidence,
        repair_evidence,
        guard_semantics,
        release,
    ):
        builder.add_node(node.__name__, as_graph_node(node.__name__, node, resources))
    builder.add_edge(START, "start_run")
    builder.add_edge("start_run", "model_step")
    builder.add_edge("reject_call", "model_step")
    builder.add_edge("require_stop", "model_step")
    builder.add_edge("guard_semantics", "release")
    builder.add_edge("release", END)
    for source, (route, targets) in PATHS.items():
        builder.add_conditional_edges(source, on_the_loop(route), targets)
    return builder.compile(checkpointer=checkpointer, name="diagnosis")
