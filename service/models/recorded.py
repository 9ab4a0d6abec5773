"""A model that gives recorded answers, keyed by component and round: replay, and demonstrations without a network.

The file, of which all but `answers` is optional:

    {"answers": {"DIAGNOSIS_AGENT/1": {"tool_calls": [{"id": "c1", "name": "query_logs", "arguments": {…}}]},
                 "DIAGNOSIS_AGENT/2": {"text": "…"}, "SEMANTIC_GUARD/1": {"failure": "TIMEOUT"}},
     "default": {…}, "semantic_guard_is_lexical": false}

Arguments that are no object stand for arguments that did not parse. An answer may also tell `usage` (`[input, output]`,
default none used), `dropped_calls`, and `seconds`, how long it took.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nodes.ports import ModelCallFailed, ModelFailureKind, ModelReply, ModelRequest, RequestedCall, TokenUsage
from service.settings import RECORDED_PREFIX

MAX_FILE_BYTES = 32 * 1024 * 1024


class RecordedAnswersError(ValueError):
    """The file of answers cannot be used; one bounded line."""


class _Recorded(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordedCall(_Recorded):
    """One tool call as the model asked for it."""

    id: str
    name: str
    arguments: Any = None


class RecordedAnswer(_Recorded):
    """One answer: tool calls, a text, or a failure."""

    tool_calls: list[RecordedCall] = Field(default_factory=list)
    text: str = ""
    failure: ModelFailureKind | None = None
    usage: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]] | None = (0, 0)
    dropped_calls: int = Field(default=0, ge=0)
    seconds: float = Field(default=0.0, ge=0, le=3600)


class _File(_Recorded):
    answers: dict[str, RecordedAnswer]
    default: RecordedAnswer | None = None
    semantic_guard_is_lexical: bool = False


class RecordedClient:
    """Answers by (component, round), never from an iterator: a fork or a re-executed node gets the same answer again.

    A round that was not recorded fails with UNAVAILABLE, as a provider does that has nothing to say.
    """

    def __init__(
        self,
        answers: Mapping[str, RecordedAnswer],
        default: RecordedAnswer | None = None,
        *,
        name: str = "recorded",
        semantic_guard_is_lexical: bool = False,
    ) -> None:
        self._answers = answers
        self._default = default
        self._name = name
        self._lexical = semantic_guard_is_lexical

    @property
    def name(self) -> str:
        """Name shown to operators."""
        return self._name

    @property
    def semantic_guard_is_lexical(self) -> bool:
        """What the recorded model said of itself (R91)."""
        return self._lexical

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the recorded answer. Raises ModelCallFailed."""
        answer = self._answers.get(f"{request.component.value}/{request.round_}", self._default)
        if answer is None:
            raise ModelCallFailed(ModelFailureKind.UNAVAILABLE)
        if answer.seconds:
            await asyncio.sleep(answer.seconds)
        if answer.failure is not None:
            raise ModelCallFailed(answer.failure, answered=answer.failure is ModelFailureKind.MALFORMED_RESPONSE)
        return reply_of(answer)


def reply_of(answer: RecordedAnswer) -> ModelReply:
    """Turn a recorded answer into the reply a provider's adapter would give."""
    calls = tuple(
        RequestedCall(call.id, call.name, call.arguments if isinstance(call.arguments, dict) else None)
        for call in answer.tool_calls
    )
    valid = [
        {"id": call.tool_call_id, "name": call.tool_name, "args": call.arguments, "type": "tool_call"}
        for call in calls
        if call.arguments is not None
    ]
    invalid = [
        {"id": call.tool_call_id, "name": call.tool_name, "args": "", "error": None, "type": "invalid_tool_call"}
        for call in calls
        if call.arguments is None
    ]
    text = "" if calls else answer.text
    message = AIMessage(content=text, tool_calls=valid, invalid_tool_calls=invalid)
    usage = TokenUsage(*answer.usage) if answer.usage else None
    return ModelReply(message, calls, text, usage, answer.dropped_calls)


def read_recorded(path: Path) -> RecordedClient:
    """Read a file of answers. Raises RecordedAnswersError."""
    label = f"SUPERBIZ_MODEL: {path.name[:64]}"
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError:
        raise RecordedAnswersError(
            f"{label}: cannot be read; {RECORDED_PREFIX}PATH names a JSON file of answers"
        ) from None
    if len(raw) > MAX_FILE_BYTES:
        raise RecordedAnswersError(f"{label}: larger than {MAX_FILE_BYTES // 2**20} MiB")
    try:
        parsed = _File.model_validate(json.loads(raw.decode("utf-8")))
    except ValidationError as error:
        key = ".".join(str(part) for part in error.errors(include_input=False, include_url=False)[0]["loc"])[:120]
        raise RecordedAnswersError(
            f'{label}: {key or "file"}: must be {{"answers": {{"COMPONENT/ROUND": answer}}}}'
        ) from None
    except (ValueError, RecursionError):
        raise RecordedAnswersError(f"{label}: not UTF-8 JSON") from None
    return RecordedClient(parsed.answers, parsed.default, semantic_guard_is_lexical=parsed.semantic_guard_is_lexical)
