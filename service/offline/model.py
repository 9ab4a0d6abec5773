"""`OfflineModel`: the planner as a LangChain chat model, so that the graph meets it as it meets any other model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.base import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from service.offline.planner import ToolCall, plan


class OfflineModel(BaseChatModel):
    """A deterministic chat model that follows runbooks. Same conversation, same answer; it computes, it does not infer.

    Its input is the conversation and the bound tools' names, descriptions and schemas, nothing else.
    """

    @property
    def _llm_type(self) -> str:
        return "superbiz-offline"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools as OpenAI-style dicts; `tool_choice` has no meaning here."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        action = plan(messages, kwargs.get("tools") or ())
        if isinstance(action, ToolCall):
            call = {"name": action.name, "args": action.args, "id": action.id, "type": "tool_call"}
            message = AIMessage(content="", tool_calls=[call])
        else:
            message = AIMessage(content=action.text)
        # No provider, no tokens: zero is what it used, not what is unknown (R116).
        message.usage_metadata = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        return ChatResult(generations=[ChatGeneration(message=message)])
