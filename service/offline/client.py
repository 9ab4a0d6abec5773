"""`OfflineClient`: the offline model behind the `ModelClient` port; the guards' calls get bounded, cautious answers."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from langchain_core.messages import AIMessage
from pydantic import BaseModel

from graph.contract import Component
from nodes.ports import ModelCallFailed, ModelFailureKind, ModelReply, ModelRequest, RequestedCall, TokenUsage
from service.offline.model import OfflineModel
from service.offline.other_components import answer
from service.offline.transcript import text_of
from tools.evidence_tool import EvidenceTool


class OfflineClient:
    """The default model: needs no key and no network (design: embedded defaults)."""

    def __init__(self) -> None:
        self._model = OfflineModel()

    @property
    def name(self) -> str:
        """Name shown to operators."""
        return "offline"

    @property
    def semantic_guard_is_lexical(self) -> bool:
        """True: verdicts of this model are lexical containment, and the trace says so (R91)."""
        return True

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Answer one request. Only the Diagnosis Agent plans; every other component gets a fixed kind of answer.

        Raises ModelCallFailed(MALFORMED_RESPONSE) should the planner fail; its message holds nothing of the input.
        """
        try:
            message = await self._message(request)
        except Exception:
            raise ModelCallFailed(ModelFailureKind.MALFORMED_RESPONSE) from None
        calls = tuple(
            RequestedCall(call.get("id") or "", call["name"], dict(call["args"])) for call in message.tool_calls
        )
        return ModelReply(message, calls, "" if calls else text_of(message), TokenUsage(0, 0))

    async def _message(self, request: ModelRequest) -> AIMessage:
        if request.component is not Component.DIAGNOSIS_AGENT:
            return AIMessage(content=answer(request.component, request.messages, request.language))
        bound = self._model.bind_tools([tool_dict(tool) for tool in request.tools])
        return await bound.ainvoke(list(request.messages))


def tool_dict(tool: EvidenceTool) -> dict[str, Any]:
    """An evidence tool as an OpenAI-style function tool."""
    parameters = json.loads(_schema_text(tool.envelope))
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


@lru_cache(maxsize=64)
def _schema_text(envelope: type[BaseModel]) -> str:
    return json.dumps(envelope.model_json_schema())
