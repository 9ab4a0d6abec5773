"""Provider profiles: what each OpenAI-compatible endpoint really does (R29, R55, R72, R77)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import urlsplit


class ToolCallIds(StrEnum):
    """What becomes of the provider's tool call ids (R72).

    REISSUE gives every call a fresh id from the injected source. REISSUE_INDEXED does the same in the form
    `functions.NAME:INDEX` with an index that counts through the whole conversation.
    """

    KEEP = "keep"
    REISSUE = "reissue"
    REISSUE_INDEXED = "reissue_indexed"


class ParallelToolCalls(StrEnum):
    """How several calls in one message are prevented (R29).

    REQUEST sends `parallel_tool_calls: false`; OMIT leaves the parameter out; SERIALIZE leaves it out too and keeps
    only the first call of a message.
    """

    REQUEST = "request"
    SERIALIZE = "serialize"
    OMIT = "omit"


class StructuredOutput(StrEnum):
    """How an output contract reaches the model (R77).

    JSON_SCHEMA: as `response_format`, beside the tools. JSON_OBJECT: as a section of the prompt, and JSON mode where no
    tools are bound. PROMPT: as a section of the prompt only.
    """

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    PROMPT = "prompt"


class Reasoning(StrEnum):
    """Whether `reasoning_content` is dropped, or kept and sent back because the provider demands it (R55)."""

    DROP = "drop"
    RETURN = "return"


class Usage(StrEnum):
    """Whether streamed answers carry usage by themselves or only on request (R116)."""

    ALWAYS = "always"
    ON_REQUEST = "on_request"


class Thinking(StrEnum):
    """Whether thinking is left as the provider has it, or turned off with `enable_thinking: false`."""

    LEAVE = "leave"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class ProviderProfile:
    """One provider's behaviour.

    `strict_tools` sends tool schemas in strict mode: every field required, optional ones nullable, and a null then
    means that the field is absent (R22).
    """

    name: str
    tool_call_ids: ToolCallIds = ToolCallIds.KEEP
    parallel_tool_calls: ParallelToolCalls = ParallelToolCalls.REQUEST
    structured_output: StructuredOutput = StructuredOutput.PROMPT
    reasoning: Reasoning = Reasoning.DROP
    thinking: Thinking = Thinking.LEAVE
    usage: Usage = Usage.ON_REQUEST
    strict_tools: bool = False


OPENAI = ProviderProfile("openai", structured_output=StructuredOutput.JSON_SCHEMA, strict_tools=True)
"""Strict function schemas and `json_schema` beside tools; unique ids; honours `parallel_tool_calls`."""

DEEPSEEK = ProviderProfile(
    "deepseek",
    parallel_tool_calls=ParallelToolCalls.SERIALIZE,
    structured_output=StructuredOutput.JSON_OBJECT,
    reasoning=Reasoning.RETURN,
)
"""Thinking is on by default, and a tool-call turn without its `reasoning_content`, be it empty, is refused with 400
(api-docs.deepseek.com/guides/thinking_mode; deepseek-ai/deepseek-harness discussions 739, 1850). No parameter prevents
parallel calls (deepseek-ai/DeepSeek-V3 issue 883). `response_format` knows text and json_object only."""

QWEN = ProviderProfile("qwen", structured_output=StructuredOutput.JSON_OBJECT, thinking=Thinking.OFF)
"""DashScope takes `parallel_tool_calls` (its clients, such as koog's DashscopeParams, pass it). A call that does not
stream is refused while thinking is on, the default of many models (langchain4j/langchain4j issue 3974,
QuantumNous/new-api pull 1109); so is JSON mode (presenton/presenton issue 184)."""

KIMI = ProviderProfile(
    "kimi",
    tool_call_ids=ToolCallIds.REISSUE_INDEXED,
    parallel_tool_calls=ParallelToolCalls.SERIALIZE,
    structured_output=StructuredOutput.JSON_OBJECT,
    reasoning=Reasoning.RETURN,
    usage=Usage.ALWAYS,
)
"""Ids such as `search:0` start again in every message (vllm-project/vllm issue 50295, fw-ai/fireconnect issue 16); K2
expects `functions.NAME:INDEX` counted through the conversation and breaks down with other forms (vybestack/llxprt-code
issue 713).
`reasoning_content` belongs into the context of tool loops (platform.kimi.ai, "Using Thinking Models"); JSON mode is
documented there too. `parallel_tool_calls` led to resets and 502 answers (browseros-ai/BrowserOS issue 657)."""

LOCAL = ProviderProfile("local", parallel_tool_calls=ParallelToolCalls.SERIALIZE)
"""vLLM, llama.cpp, Ollama and unknown gateways. A `response_format` beside tools constrains the whole output, so that
no tool can be called any more (vllm-project/vllm issue 39929); hence the prompt. Some ignore `parallel_tool_calls`."""

PROFILES: dict[str, ProviderProfile] = {profile.name: profile for profile in (OPENAI, DEEPSEEK, QWEN, KIMI, LOCAL)}

_HOSTS: tuple[tuple[str, ProviderProfile], ...] = (
    ("openai.com", OPENAI),
    ("openai.azure.com", OPENAI),
    ("deepseek.com", DEEPSEEK),
    ("aliyuncs.com", QWEN),
    ("qwencloud.com", QWEN),
    ("moonshot.cn", KIMI),
    ("moonshot.ai", KIMI),
    ("kimi.com", KIMI),
    ("kimi.ai", KIMI),
)
_NO_PARALLEL_PARAMETER = re.compile(r"o\d")
"""OpenAI's o-series refuses `parallel_tool_calls` as unsupported (langchain-ai/langchain issue 29704)."""

_ALWAYS_THINKING = re.compile(r"qwq|qvq|thinking")
"""Qwen models that cannot stop thinking; most of them only stream, which ends in REQUEST_REFUSED here."""


def resolve(model_name: str, base_url: str | None, override: str | None = None) -> ProviderProfile:
    """Return the profile of an endpoint.

    An `override` (`SUPERBIZ_MODEL_PROFILE`) wins, then the host of `base_url`, then a model family whose quirks travel
    with the model to any host; everything else is `local`. No base URL means OpenAI.

    Raises:
        ValueError: `override` names no profile.
    """
    profile = _by_override(override) if override else _by_host(base_url) or _by_family(model_name)
    if profile is OPENAI and _NO_PARALLEL_PARAMETER.match(model_name):
        return replace(profile, parallel_tool_calls=ParallelToolCalls.OMIT)
    if profile is QWEN and _ALWAYS_THINKING.search(model_name.lower()):
        return replace(profile, structured_output=StructuredOutput.PROMPT, thinking=Thinking.LEAVE)
    return profile


def _by_override(override: str) -> ProviderProfile:
    if override not in PROFILES:
        raise ValueError(f"SUPERBIZ_MODEL_PROFILE names no profile; allowed: {', '.join(PROFILES)}")
    return PROFILES[override]


def _by_host(base_url: str | None) -> ProviderProfile | None:
    if base_url is None:
        return OPENAI
    host = (urlsplit(base_url).hostname or "").lower()
    return next((profile for suffix, profile in _HOSTS if host == suffix or host.endswith("." + suffix)), None)


def _by_family(model_name: str) -> ProviderProfile:
    name = model_name.lower()
    if "kimi" in name or "moonshot" in name:
        return KIMI
    return DEEPSEEK if "deepseek" in name else LOCAL
