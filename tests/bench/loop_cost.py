"""CPU time per tool call of the diagnosis graph beside `create_agent`, in alternating rounds of one process.

Same scripted model, same tool, in-memory checkpoints and sinks. Prints medians and their ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from nodes.ports import ModelReply, ModelRequest
from tests.fakes import ProbeRequest, ProbeTool, call, draft
from tests.loop import make_loop

BUDGET = {"model_calls": 500, "tool_calls": 500, "tokens": 10_000_000, "observation_bytes": 10_000_000}


class CallingModel(BaseChatModel):
    """Asks for `wanted` tool calls, one a turn, then answers."""

    wanted: int

    @property
    def _llm_type(self) -> str:
        return "calling"

    def bind_tools(self, tools: Any, **kwargs: Any) -> CallingModel:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        done = sum(isinstance(message, AIMessage) for message in messages)
        if done >= self.wanted:
            message = AIMessage(content="done")
        else:
            arguments = {"query": f"found {done}"}
            message = AIMessage(content="", tool_calls=[{"id": f"c{done}", "name": "query_probe", "args": arguments}])
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return self._generate(messages)


def scripted(wanted: int) -> Any:
    """The same conversation as replies of the scripted model client."""

    def answer(request: ModelRequest) -> ModelReply:
        done = request.round_ - 1
        if done >= wanted:
            return draft()
        return call(f"c{done}", f"found {done}", (f"c{done - 1}", "GAINED") if done else None)

    return answer


def prebuilt(wanted: int, size: int, saver: Any) -> Any:
    """Build the `create_agent` graph over the same tool."""
    probe = ProbeTool(size=size)

    async def run(query: str) -> str:
        outcome = await probe.run(ProbeRequest(query=query), None)  # type: ignore[arg-type]
        return str(outcome.agent_result["lines"][0])

    tool = StructuredTool.from_function(coroutine=run, name="query_probe", description="A scripted probe.")
    return create_agent(CallingModel(wanted=wanted), [tool], checkpointer=saver)


async def ours(wanted: int, size: int) -> float:
    """CPU seconds of one run of the diagnosis graph."""
    loop = make_loop(scripted(wanted), tool=ProbeTool(size=size), checkpointer=InMemorySaver())
    gc.collect()
    start = time.process_time()
    await loop.run(budget=BUDGET, no_gain_threshold=50)
    spent = time.process_time() - start
    assert len(loop.tool.ran) == wanted
    return spent


async def theirs(wanted: int, size: int) -> float:
    """CPU seconds of one run of the prebuilt agent."""
    agent = prebuilt(wanted, size, InMemorySaver())
    gc.collect()
    start = time.process_time()
    config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 10_000}
    state = await agent.ainvoke({"messages": [("user", "why?")]}, config)
    spent = time.process_time() - start
    assert len(state["messages"]) == 2 * wanted + 2
    return spent


async def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--size", type=int, default=2000)
    options = parser.parse_args()
    await ours(options.calls, options.size)
    await theirs(options.calls, options.size)
    pairs = [
        (await ours(options.calls, options.size), await theirs(options.calls, options.size))
        for _ in range(options.rounds)
    ]
    mine = statistics.median(a for a, _ in pairs) / options.calls
    other = statistics.median(b for _, b in pairs) / options.calls
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"CPU per tool call, median of {options.rounds} alternating rounds of {options.calls} calls:")
    print(f"  diagnosis graph {mine * 1e3:.2f} ms, create_agent {other * 1e3:.2f} ms, ratio {ratio:.2f} (at most 2.5)")
    if ratio > 2.5:
        raise SystemExit("the loop costs more than it may")


if __name__ == "__main__":
    asyncio.run(main())
