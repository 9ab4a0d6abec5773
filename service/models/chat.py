"""`ChatOpenAI` that reads the raw body itself and sends reasoning back where the provider demands it.

LangChain's own reading turns `""` and `null` arguments into `{}`, raises on a list, loses the order of invalid calls
and counts missing usage as zero.
"""

from __future__ import annotations

from typing import Any

import openai
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from service.models.normalize import REASONING, completion_message, malformed
from service.models.profile import ProviderProfile, Reasoning, Usage
from service.models.transport import build_http_client

OPENAI_URL = "https://api.openai.com/v1"


class ProviderChat(ChatOpenAI):
    """Chat completions of one provider: one HTTP request per call, never streamed, never the Responses API."""

    provider: ProviderProfile

    def _create_chat_result(
        self, response: dict[str, Any] | openai.BaseModel, generation_info: dict[str, Any] | None = None
    ) -> ChatResult:
        body = response.model_dump(warnings=False) if isinstance(response, openai.BaseModel) else response
        if not isinstance(body, dict):
            raise malformed()
        message = completion_message(body, keep_reasoning=self.provider.reasoning is Reasoning.RETURN)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        payload: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        if self.provider.reasoning is Reasoning.RETURN:
            messages = self._convert_input(input_).to_messages()
            for sent, message in zip(payload["messages"], messages, strict=True):
                if isinstance(message, AIMessage) and sent.get("tool_calls"):
                    # Sent even when empty: the provider refuses a tool-call turn that lacks the field.
                    sent[REASONING] = message.additional_kwargs.get(REASONING, "")
        return payload


def build_chat(model: str, base_url: str | None, api_key: SecretStr, provider: ProviderProfile) -> ProviderChat:
    """Return the chat model of one configured name; everything that would retry, stream or reroute is off (R118)."""
    return ProviderChat(
        model=model,
        base_url=base_url or OPENAI_URL,
        api_key=api_key,
        provider=provider,
        max_retries=0,
        use_responses_api=False,
        disable_streaming=True,
        stream_usage=provider.usage is Usage.ON_REQUEST,
        http_async_client=build_http_client(),
        openai_proxy="",
        cache=False,
    )
