"""The least a service can be: one FastAPI route that streams a `create_agent` run over the example's own tools.

No store, no checkpoints, no guards, no cancel: what `tests.bench.http_load` compares with. Started as
`python -m tests.bench.bare_route PORT`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool

from service.app import open_app
from service.diagnosis import diagnose
from service.settings import Settings
from tests.http_service import QUESTION, SHOP
from tools.envelope_protocol import check_input
from tools.evidence_tool import CallContext, EvidenceTool


class ReplayingModel(BaseChatModel):
    """Asks for the calls of a finished diagnosis, one a turn, then answers."""

    calls: list[dict[str, Any]]

    @property
    def _llm_type(self) -> str:
        return "replaying"

    def bind_tools(self, tools: Any, **kwargs: Any) -> ReplayingModel:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        done = sum(isinstance(message, AIMessage) for message in messages)
        message = AIMessage(content="done") if done == len(self.calls) else AIMessage("", tool_calls=[self.calls[done]])
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return self._generate(messages)


def as_langchain(tool: EvidenceTool, now: float) -> StructuredTool:
    """Give a tool the form that the prebuilt agent takes."""
    context = CallContext(now=now, at_given=False, deadline_seconds=tool.timeout_seconds)

    async def ask(**request: Any) -> str:
        outcome = await tool.run(check_input(request, tool.envelope), context)
        return json.dumps(outcome.agent_result, ensure_ascii=False, default=str)

    schema = tool.envelope.model_fields["input"].annotation
    return StructuredTool.from_function(coroutine=ask, name=tool.name, description=tool.description, args_schema=schema)


async def main(port: int) -> None:
    """Diagnose once to learn the calls, then serve."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_app(Settings(home=Path(folder), catalog=SHOP)) as app:
            report = await diagnose(app, QUESTION)
            record = await app.runs.get(str(report.run_id))
            assert record is not None
            assert record.published_result is not None
            archived = await app.journal.archived(str(report.run_id), "agent_result")
            calls = [
                {"id": key, "name": each["tool_name"], "args": each["scope"]["normalized"]}
                for key, each in archived.items()
            ]
            tools = [as_langchain(tool, app.resources.clock.now()) for tool in app.parts.tools.values()]
            agent = create_agent(ReplayingModel(calls=calls), tools)
            http = FastAPI()

            @http.post("/api/chat_stream")
            async def chat_stream(body: dict[str, Any]) -> StreamingResponse:
                async def told() -> AsyncIterator[str]:
                    asked: Any = {"messages": [("user", body["Question"])]}
                    async for update in agent.astream(asked, {"recursion_limit": 100}, stream_mode="updates"):
                        for node in update:
                            yield f'event: status\ndata: {{"type":"status","data":{{"stage":"{node}"}}}}\n\n'
                    yield 'event: done\ndata: {"type":"done","data":null}\n\n'

                return StreamingResponse(told(), media_type="text/event-stream")

            config = uvicorn.Config(http, port=port, http="h11", access_log=False, log_config=None, backlog=512)
            await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
