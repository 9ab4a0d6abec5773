"""`ModelClient` over an OpenAI-compatible chat model: exactly one attempt per call (R118)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import httpx
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.messages.tool import tool_call

from nodes.ports import ModelCallFailed, ModelReply, ModelRequest, RequestedCall
from service.models.failures import failure_of
from service.models.normalize import malformed, reply_of
from service.models.profile import ParallelToolCalls, ProviderProfile, Thinking
from service.models.schemas import inlined, output_section, response_format, tool_schema, without_absent
from service.models.transport import CURRENT, Exchange
from tools.evidence_tool import EvidenceTool

CONNECT_SECONDS = 10.0
"""Time a connection may take to stand; the whole attempt has the request's own timeout."""

_CONFIG: Any = {"tags": ["nostream"], "run_name": "model_call"}
"""`nostream` keeps drafts and guard answers out of LangGraph's `messages` stream, where a user could read them."""

_log = logging.getLogger(__name__)


class ChatModelClient:
    """A configured model. Holds no state between calls; may be used from several event loops."""

    def __init__(
        self, name: str, chat_model: BaseChatModel, profile: ProviderProfile, new_id: Callable[[], str]
    ) -> None:
        self._name = name
        self._chat = chat_model
        self._profile = profile
        self._new_id = new_id

    @property
    def name(self) -> str:
        """Name shown to operators, `openai:NAME`."""
        return self._name

    @property
    def semantic_guard_is_lexical(self) -> bool:
        """False: a language model answers (R91)."""
        return False

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Make one attempt within `request.timeout_seconds`. Raises ModelCallFailed or CancelledError, nothing else."""
        exchange = Exchange()
        token = CURRENT.set(exchange)
        try:
            reply, failure = await self._attempt(request, exchange)
        finally:
            CURRENT.reset(token)
        if failure is not None:
            # Raised here, outside any handler, so that no exception with provider text hangs on it as its context.
            raise failure
        assert reply is not None
        return reply

    async def _attempt(
        self, request: ModelRequest, exchange: Exchange
    ) -> tuple[ModelReply | None, ModelCallFailed | None]:
        try:
            async with asyncio.timeout(request.timeout_seconds):
                message = await self._send(request)
            return self._reply(message, request), None
        except ModelCallFailed as error:
            failure = ModelCallFailed(
                error.kind, answered=error.answered, retry_after=error.retry_after, usage=error.usage
            )
            cause = "answer"
        except Exception as error:
            failure, cause = failure_of(error, exchange), type(error).__name__
        _log.warning("model call failed: %s (%s, HTTP status %s)", failure.kind, cause, exchange.status)
        return None, failure

    async def _send(self, request: ModelRequest) -> BaseMessage:
        options: dict[str, Any] = {
            "timeout": httpx.Timeout(request.timeout_seconds, connect=min(CONNECT_SECONDS, request.timeout_seconds))
        }
        extra: dict[str, Any] = {}
        if request.output is not None:
            form = response_format(self._profile, request.output, with_tools=bool(request.tools))
            extra |= {} if form is None else {"response_format": form}
        if self._profile.thinking is Thinking.OFF:
            extra["enable_thinking"] = False
        if extra:
            # `response_format` as an argument of its own would switch to the SDK's parsing of the answer.
            options["extra_body"] = extra
        if request.tools and self._profile.parallel_tool_calls is ParallelToolCalls.REQUEST:
            options["parallel_tool_calls"] = False
        messages = outgoing(request, self._profile)
        if not request.tools:
            return await self._chat.bind(**options).ainvoke(messages, config=_CONFIG)
        tools = [tool_schema(tool, self._profile) for tool in request.tools]
        return await self._chat.bind_tools(tools, **options).ainvoke(messages, config=_CONFIG)

    def _reply(self, message: BaseMessage, request: ModelRequest) -> ModelReply:
        if not isinstance(message, AIMessage):
            raise malformed()
        reply = reply_of(message, self._profile, request.messages, self._new_id)
        if not self._profile.strict_tools:
            return reply
        envelopes = {tool.name: tool for tool in request.tools}
        return replace(reply, calls=tuple(_present(call, envelopes.get(call.tool_name)) for call in reply.calls))


def _present(call: RequestedCall, tool: EvidenceTool | None) -> RequestedCall:
    if tool is None or call.arguments is None:
        return call
    return replace(call, arguments=without_absent(call.arguments, inlined(tool.envelope)))


def outgoing(request: ModelRequest, profile: ProviderProfile) -> list[BaseMessage]:
    """Return the messages as sent: the output section joined to the first system message, invalid calls made valid."""
    messages = [_valid(message) for message in request.messages]
    section = None if request.output is None else output_section(profile, request.output, request.language)
    if section is None:
        return messages
    if messages and isinstance(messages[0], SystemMessage):
        return [SystemMessage(f"{messages[0].text}\n\n{section}"), *messages[1:]]
    return [SystemMessage(section), *messages]


def _valid(message: BaseMessage) -> BaseMessage:
    """Give an invalid call of a foreign history the form that providers take back; its tool message keeps its call."""
    if not isinstance(message, AIMessage) or not message.invalid_tool_calls:
        return message
    repaired: Sequence[Any] = [
        tool_call(name=call.get("name") or "unusable_tool_name", args={}, id=call.get("id") or "")
        for call in message.invalid_tool_calls
    ]
    return message.model_copy(update={"tool_calls": [*message.tool_calls, *repaired], "invalid_tool_calls": []})
