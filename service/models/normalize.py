"""From a provider's answer to a `ModelReply`, pure: bounded, in order, departures typed (R29, R55, R72, R79, R116)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call

from nodes.ports import ModelCallFailed, ModelFailureKind, ModelReply, RequestedCall, TokenUsage
from release.contract import MAX_DRAFT_BYTES
from service.models.arguments import parse_arguments
from service.models.profile import ParallelToolCalls, ProviderProfile, Reasoning, ToolCallIds

MAX_MESSAGE_ARGUMENT_BYTES = 128 * 1024
"""UTF-8 bytes of all arguments of one message; the calls beyond count as malformed."""

MAX_CALLS = 64
"""Calls of one message that are kept; R29 answers each of them."""

MAX_REASONING_BYTES = 64 * 1024
MAX_ID_CHARS = 129
"""One more than R72 allows, so that an id that is too long stays so."""

MALFORMED = "malformed_calls"
"""Key in `additional_kwargs` of the message inside the adapter: indexes of calls whose arguments were no object."""

REASONING = "reasoning_content"

TEXT_BYTES = "text_bytes"
"""Key in `additional_kwargs` inside the adapter: UTF-8 bytes of a text that was cut (R79)."""

UNUSABLE_NAME = "unusable_tool_name"
"""Stands in the history for a name that no provider would take back."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REFUSALS = {
    "length": (ModelFailureKind.OUTPUT_TRUNCATED, True),
    "content_filter": (ModelFailureKind.CONTENT_FILTERED, True),
    "sensitive": (ModelFailureKind.CONTENT_FILTERED, True),
    "insufficient_system_resource": (ModelFailureKind.UNAVAILABLE, True),
    "error": (ModelFailureKind.SERVER_ERROR, True),
    "function_call": (ModelFailureKind.MALFORMED_RESPONSE, True),
}
"""Finish reasons that are no answer; DeepSeek names `insufficient_system_resource` for an inference it broke off."""


def malformed() -> ModelCallFailed:
    """Return the failure of an answer that arrived and cannot be read."""
    return ModelCallFailed(ModelFailureKind.MALFORMED_RESPONSE, answered=True)


def cut(text: str, limit: int) -> str:
    """Keep the shortest beginning of `text` that exceeds `limit` UTF-8 bytes, or all of it.

    Exceeding is deliberate: whoever judges the size still sees that it was too large (R79). Lone surrogates become
    U+FFFD.
    """
    safe = text[: limit + 1].encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    data = safe.encode("utf-8")
    if len(data) <= limit:
        return safe
    end = limit + 1
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end += 1
    return data[:end].decode("utf-8")


def text_of(content: object) -> str:
    """Read a message's content: a string, or the text parts of a list; at most 32 KiB and one character."""
    if isinstance(content, str):
        return cut(content, MAX_DRAFT_BYTES)
    if not isinstance(content, list):
        return ""
    parts = [part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, str | dict)]
    return cut("".join(part for part in parts if isinstance(part, str)), MAX_DRAFT_BYTES)


def full_size(content: object) -> int:
    """UTF-8 bytes of a message's whole content before any cut (R79)."""
    parts = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    texts = [part if isinstance(part, str) else part.get("text") for part in parts if isinstance(part, str | dict)]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts if isinstance(text, str))


def usage_of(raw: object) -> TokenUsage | None:
    """Read provider usage; None unless both counts are there and make sense (R116)."""
    if not isinstance(raw, Mapping):
        return None
    counts = [raw.get("prompt_tokens", raw.get("input_tokens")), raw.get("completion_tokens", raw.get("output_tokens"))]
    if any(not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**53 for count in counts):
        return None
    return TokenUsage(counts[0], counts[1])


def completion_message(response: object, *, keep_reasoning: bool) -> AIMessage:
    """Read the body of a chat completion into a bounded message with all calls in their order.

    Calls with unusable arguments stand among the others with `{}`, their indexes under `MALFORMED`. Usage is set only
    when it is whole.

    Raises:
        ModelCallFailed: the body is no completion, or says that the answer is not one.
    """
    choices = response.get("choices") if isinstance(response, Mapping) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(response, Mapping) or not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise malformed()
    usage = usage_of(response.get("usage"))
    reason = choice.get("finish_reason")
    if isinstance(reason, str) and reason in _REFUSALS:
        kind, answered = _REFUSALS[reason]
        raise ModelCallFailed(kind, answered=answered, usage=usage)
    calls = _raw_calls(message.get("tool_calls"), usage)
    if message.get("refusal") and not calls:
        raise ModelCallFailed(ModelFailureKind.CONTENT_FILTERED, answered=True, usage=usage)
    extra: dict[str, Any] = {}
    if keep_reasoning and isinstance(message.get(REASONING), str):
        extra[REASONING] = cut(message[REASONING], MAX_REASONING_BYTES)
    if broken := [index for index, call in enumerate(calls) if call.arguments is None]:
        extra[MALFORMED] = broken
    text = "" if calls else text_of(message.get("content"))
    if (size := full_size(message.get("content"))) > len(text.encode()) and not calls:
        extra[TEXT_BYTES] = size
    return AIMessage(
        content=text,
        tool_calls=[_history_call(call) for call in calls],
        additional_kwargs=extra | ({"tool_names": [call.tool_name for call in calls]} if calls else {}),
        usage_metadata=None if usage is None else _metadata(usage),
    )


def _metadata(usage: TokenUsage) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, total_tokens=usage.total_tokens
    )


def _raw_calls(raw: object, usage: TokenUsage | None) -> list[RequestedCall]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise ModelCallFailed(ModelFailureKind.MALFORMED_RESPONSE, answered=True, usage=usage)
    calls, used = [], 0
    for item in raw[:MAX_CALLS]:
        entry: Mapping[str, Any] = item if isinstance(item, Mapping) else {}
        function = entry.get("function")
        body: Mapping[str, Any] = function if isinstance(function, Mapping) else {}
        arguments = parse_arguments(body.get("arguments"))
        used += 0 if arguments is None else len(json.dumps(arguments, ensure_ascii=False).encode("utf-8"))
        fits = used <= MAX_MESSAGE_ARGUMENT_BYTES
        calls.append(RequestedCall(_id(entry.get("id")), _bounded_name(body.get("name")), arguments if fits else None))
    return calls


def _id(raw: object) -> str:
    return cut(raw, MAX_ID_CHARS * 4)[:MAX_ID_CHARS] if isinstance(raw, str) else ""


def _bounded_name(raw: object) -> str:
    return cut(raw, 256)[:64] if isinstance(raw, str) else ""


def _history_call(call: RequestedCall) -> Any:
    name = call.tool_name if _NAME.fullmatch(call.tool_name) else UNUSABLE_NAME
    return tool_call(name=name, args=call.arguments or {}, id=call.tool_call_id)


def calls_of(message: AIMessage) -> list[RequestedCall]:
    """Read the calls of a message of the adapter or of any other chat model; a model's invalid calls come last."""
    broken = set(message.additional_kwargs.get(MALFORMED, ()))
    names = message.additional_kwargs.get("tool_names", [call["name"] for call in message.tool_calls])
    calls = [
        RequestedCall(_id(call["id"]), _bounded_name(name), None if index in broken else call["args"])
        for index, (call, name) in enumerate(zip(message.tool_calls, names, strict=True))
    ]
    invalid = [
        RequestedCall(_id(call.get("id")), _bounded_name(call.get("name")), None) for call in message.invalid_tool_calls
    ]
    return [*calls, *invalid][:MAX_CALLS]


def reply_of(
    message: AIMessage, profile: ProviderProfile, history: Sequence[BaseMessage], new_id: Callable[[], str]
) -> ModelReply:
    """Turn a message into the reply: ids and parallel calls as the profile says, the rest left behind."""
    calls = calls_of(message)
    dropped = 0
    if profile.parallel_tool_calls is ParallelToolCalls.SERIALIZE and len(calls) > 1:
        dropped, calls = len(calls) - 1, calls[:1]
    calls = _with_ids(calls, profile.tool_call_ids, history, new_id)
    extra: dict[str, Any] = {}
    if profile.reasoning is Reasoning.RETURN and calls:
        reasoning = message.additional_kwargs.get(REASONING)
        extra[REASONING] = cut(reasoning, MAX_REASONING_BYTES) if isinstance(reasoning, str) else ""
    text = "" if calls else text_of(message.content)
    kept = AIMessage(content=text, tool_calls=[_history_call(call) for call in calls], additional_kwargs=extra)
    size = message.additional_kwargs.get(TEXT_BYTES)
    return ModelReply(kept, tuple(calls), text, usage_of(message.usage_metadata), dropped, size)


def _with_ids(
    calls: list[RequestedCall], mode: ToolCallIds, history: Sequence[BaseMessage], new_id: Callable[[], str]
) -> list[RequestedCall]:
    if mode is ToolCallIds.KEEP:
        return calls
    if mode is ToolCallIds.REISSUE:
        return [replace(call, tool_call_id=new_id()) for call in calls]
    before = [call["id"] for past in history if isinstance(past, AIMessage) for call in past.tool_calls]
    taken, index, issued = set(before), len(before), []
    for call in calls:
        name = call.tool_name if _NAME.fullmatch(call.tool_name) else UNUSABLE_NAME
        while (fresh := f"functions.{name}:{index}") in taken:
            index += 1
        taken.add(fresh)
        index += 1
        issued.append(replace(call, tool_call_id=fresh))
    return issued
