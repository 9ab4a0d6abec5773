"""What the routes take and give; names of the base project's fields stay as they are (R131, R134)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from graph.contract import Intent, PublicStatus, RunState, TraceEventType
from nodes.start_run import MAX_SESSION_CHARS
from release.contract import ReleaseOutcome

RUN_ID_PATTERN = r"^[A-Za-z0-9_.:\-]{1,128}$"
SESSION_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]{1,128}$"


class _Out(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _In(BaseModel):
    """A request; keys that are not known are ignored, as the base project does."""

    model_config = ConfigDict(frozen=True, strict=True)


class ChatRequest(_In):
    """A question in a session. Without `Id` the session is a new one."""

    session_id: Annotated[str, Field(max_length=MAX_SESSION_CHARS)] | None = Field(
        default=None,
        validation_alias=AliasChoices("Id", "id"),
        description=f"Session, 1 to {MAX_SESSION_CHARS} printable characters; empty: a new one.",
        examples=["session-1"],
    )
    question: str = Field(
        default="",
        validation_alias=AliasChoices("Question", "question"),
        description="What happened, 1 to 4000 characters.",
        examples=["14:10 左右开始大量用户结算失败，订单一直是待支付，为什么？"],
    )
    at: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="Time the question is about, RFC 3339 with zone. Default: now."
    )
    language: Literal["zh", "en"] | None = Field(default=None, description="Language of the answer.")


class ClearRequest(_In):
    """Which session to clear."""

    session_id: str = Field(
        min_length=1,
        max_length=MAX_SESSION_CHARS,
        validation_alias=AliasChoices("Id", "id"),
        description="Session.",
        examples=["session-1"],
    )


class ChatData(_Out):
    """How a Run ended. `success` says whether something was published; then `answer` is it, as text."""

    success: bool
    answer: str | None
    errorMessage: str | None  # noqa: N815  (the base project's name)
    error_code: str | None
    run_id: str
    session_id: str | None
    status: PublicStatus
    intent: Intent | None
    release_outcome: ReleaseOutcome
    published_result: dict[str, Any] | None
    fallback: dict[str, Any] | None


class ChatReply(_Out):
    """The base project's envelope around the answer."""

    code: Literal[200] = 200
    message: Literal["success"] = "success"
    data: ChatData


class ClearReply(_Out):
    """The session has no previous turn any more."""

    code: Literal[200] = 200
    message: Literal["success"] = "success"
    data: str


class TurnView(_Out):
    """One question of a session and its answer as text, null until something was published. Times are RFC 3339."""

    run_id: str
    question: str
    answer: str | None
    status: PublicStatus
    intent: Intent | None
    release_outcome: ReleaseOutcome
    created_at: str
    ended_at: str | None


class SessionData(_Out):
    """A session: how many questions it holds, when it began (milliseconds since the epoch), and its latest turns in order."""

    sessionId: str  # noqa: N815
    messagePairCount: int  # noqa: N815
    createTime: int  # noqa: N815
    active_run_id: str | None
    turns: list[TurnView]


class SessionReply(_Out):
    """The base project's envelope around a session."""

    code: Literal[200] = 200
    message: Literal["success"] = "success"
    data: SessionData


class RunView(_Out):
    """A Run as its caller may see it (R55). Times are RFC 3339."""

    run_id: str
    session_id: str | None
    question: str
    status: PublicStatus
    cancel_requested: bool
    intent: Intent | None
    release_outcome: ReleaseOutcome
    published_result: dict[str, Any] | None
    fallback: dict[str, Any] | None
    error_code: str | None
    created_at: str
    ended_at: str | None


class TraceEventView(_Out):
    """One trace event with its whitelisted fields."""

    seq: int
    at: str
    type: TraceEventType
    fields: dict[str, Any]


class AgentStepView(_Out):
    """One round of the Diagnosis Agent; `token_count` is null when the provider gave no usage."""

    round: int
    kind: str
    tool_call_ids: list[str]
    token_count: int | None


class TraceView(_Out):
    """What a Run did, for operators."""

    run_id: str
    internal_state: RunState
    stop_reason: str | None
    usage: dict[str, Any]
    events: list[TraceEventView]
    steps: list[AgentStepView]


class CancelView(_Out):
    """How the Run stands: `CANCEL_REQUESTED`, or how it had ended before."""

    run_id: str
    state: RunState


class HealthView(_Out):
    """The process answers."""

    status: Literal["ok"] = "ok"


def moment(seconds: float) -> str:
    """Write a time as RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
