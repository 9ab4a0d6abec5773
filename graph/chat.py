"""The chat graph: one question, routed to the system chat, a knowledge answer, or a diagnosis (R97)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from graph.context import DiagnosisContext, context_schema_with
from graph.diagnosis import DiagnosisGraph, build_diagnosis_graph, on_the_loop
from graph.routes import after_route_intent
from graph.state import ChatOutput, ChatState, DiagnosisInput, JoiningInput
from nodes.answer_knowledge import answer_knowledge
from nodes.harness import as_graph_node
from nodes.ports import Resources
from nodes.release_answer import PUBLIC, release_answer
from nodes.route_intent import route_intent
from nodes.start_run import start_chat
from nodes.system_chat import system_chat

ChatGraph = CompiledStateGraph[ChatState, DiagnosisContext, DiagnosisInput, ChatOutput]

TAKEN_OVER = tuple(JoiningInput.__annotations__)
"""Channels that a diagnosis starts with."""
GIVEN_BACK = ("run", "step", "position", "budget", "ledger")
"""Channels that the chat continues with after it."""


def build_chat_graph(resources: Resources, checkpointer: BaseCheckpointSaver[Any] | bool | None = None) -> ChatGraph:
    """Compile the graph over `resources`; pass no checkpointer where the host brings its own (LangGraph Server).

    Its recursion limit is that of a diagnosis: a subgraph counts its own steps.
    """
    builder = StateGraph(
        ChatState,
        context_schema=context_schema_with(resources.default_context),
        input_schema=DiagnosisInput,
        output_schema=ChatOutput,
    )
    builder.add_node("start_run", as_graph_node("start_run", start_chat, resources, starts_run=True))
    for node in (route_intent, system_chat, answer_knowledge):
        builder.add_node(node.__name__, as_graph_node(node.__name__, node, resources))
    builder.add_node("diagnosis", _diagnosis_node(build_diagnosis_graph(resources, joins_run=True)))
    builder.add_node("release", as_graph_node("release", release_answer, resources))
    builder.add_edge(START, "start_run")
    builder.add_edge("start_run", "route_intent")
    builder.add_conditional_edges(
        "route_intent", on_the_loop(after_route_intent), ["system_chat", "answer_knowledge", "diagnosis", "release"]
    )
    builder.add_edge("system_chat", "release")
    builder.add_edge("answer_knowledge", "release")
    builder.add_edge("diagnosis", END)
    builder.add_edge("release", END)
    return builder.compile(checkpointer=checkpointer, name="chat")


def _diagnosis_node(graph: DiagnosisGraph) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Run the diagnosis as a subgraph, on checkpoints of its own, and keep of its wide state what the chat may show.

    LangGraph does not tell a subgraph which execution it belongs to; leases need that, so it is handed on.
    """

    async def diagnosis(state: ChatState, *, runtime: Runtime[DiagnosisContext]) -> dict[str, Any]:
        info = runtime.execution_info
        config = RunnableConfig(run_id=UUID(info.run_id)) if info is not None and info.run_id else RunnableConfig()
        given: Any = {name: value for name, value in state.items() if name in TAKEN_OVER}
        ended = await graph.ainvoke(given, config)
        outcome = ended["outcome"] or {}
        return {
            **{name: ended[name] for name in GIVEN_BACK},
            "run_id": ended["run"]["run_id"],
            **{name: outcome.get(name) for name in PUBLIC},
        }

    return diagnosis
