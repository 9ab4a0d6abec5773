"""Replaying a run beside running it again with `create_agent` and a model that takes 200 ms, in alternating rounds.

Prints the best of each and their ratio; fails where a replay takes a tenth or more.
"""

from __future__ import annotations

import argparse
import asyncio
import time
import uuid

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool

from nodes.ports import ModelReply, ModelRequest
from service.replay.compare import compare
from service.replay.engine import replay
from service.replay.text import read_bundle, write_bundle
from tests.fakes import ProbeRequest, ProbeTool, call, draft
from tests.loop import make_loop
from tests.replays import bundles_of

BUDGET = {"model_calls": 500, "tool_calls": 500, "tokens": 10_000_000, "observation_bytes": 10_000_000}
MODEL_SECONDS = 0.2
TOOLS = {"query_probe": ProbeTool()}


class SlowModel(BaseChatModel):
    """Asks for `wanted` tool calls, one a turn; each answer takes MODEL_SECONDS."""

    wanted: int

    @property
    def _llm_type(self) -> str:
        return "slow"

    def bind_tools(self, tools: object, **kwargs: object) -> SlowModel:
        return self

    def _generate(self, messages: list[BaseMessage], *args: object, **kwargs: object) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *args: object, **kwargs: object) -> ChatResult:
        await asyncio.sleep(MODEL_SECONDS)
        done = sum(isinstance(message, AIMessage) for message in messages)
        asked = [{"id": f"c{done}", "name": "query_probe", "args": {"query": f"found {done}"}}]
        message = AIMessage(
            content="done" if done >= self.wanted else "", tool_calls=asked if done < self.wanted else []
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


async def recorded(wanted: int) -> str:
    """Record a run of `wanted` tool calls; return its bundle's text."""

    def answer(request: ModelRequest) -> ModelReply:
        number = request.round_
        previous = (f"c{number - 1}", "GAINED") if number > 1 else None
        return draft() if number > wanted else call(f"c{number}", f"found {number}", previous)

    loop = make_loop(answer)
    await loop.run(run_id=uuid.UUID(int=1), budget=BUDGET)
    (bundle,) = await bundles_of(loop)
    return write_bundle(bundle)


async def replay_seconds(raw: str) -> float:
    """Read, replay and compare."""
    started = time.perf_counter()
    bundle = read_bundle(raw.encode())
    assert compare(bundle, (await replay(bundle, tools=TOOLS)).bundle).identical
    return time.perf_counter() - started


async def agent_seconds(wanted: int) -> float:
    """Run the prebuilt agent again."""

    async def query_probe(query: str) -> str:
        return f"line about {query}"

    tool = StructuredTool.from_function(
        coroutine=query_probe, name="query_probe", description="A probe.", args_schema=ProbeRequest
    )
    agent = create_agent(SlowModel(wanted=wanted), [tool])
    started = time.perf_counter()
    await agent.ainvoke({"messages": [("user", "why?")]}, {"recursion_limit": 10 * wanted})
    return time.perf_counter() - started


async def main(calls: int, rounds: int) -> None:
    """Measure and print. Raises SystemExit where a promise is broken."""
    raw = await recorded(calls)
    await replay_seconds(raw)  # what is imported and compiled once counts for neither
    pairs = [(await replay_seconds(raw), await agent_seconds(calls)) for _ in range(rounds)]
    # The best of each: a replay computes, the agent mostly waits, and only the former suffers from a busy machine.
    ours, theirs = (min(column) for column in zip(*pairs, strict=True))
    ratio = ours / theirs
    print(f"{calls} tool calls: replay {ours:.2f} s, create_agent {theirs:.2f} s, ratio {ratio:.3f}")
    if ratio >= 0.1:
        raise SystemExit("a replay takes a tenth of the run or more")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(main(options.calls, options.rounds))
