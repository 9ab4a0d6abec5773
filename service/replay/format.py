"""What a run bundle holds: one strict payload per kind of entry. Format `superbiz.run/1`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, Json, StringConstraints, field_validator

from graph.context import DiagnosisContext
from graph.contract import Intent, RunState, TraceEventType
from graph.tracker import DiagnosisProgressTracker
from nodes.ports import ModelFailureKind
from release.contract import ReleaseOutcome
from tools.contract import CanonicalRecord

FORMAT: Final = "superbiz.run/1"
NODE_KEY = r"^[0-9]{4,6}:[a-z_]{1,64}$"
RUN_ID = r"^[A-Za-z0-9_.:\-]{1,128}$"

NodeKey = Annotated[str, StringConstraints(pattern=NODE_KEY)]
RunId = Annotated[str, StringConstraints(pattern=RUN_ID)]
Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
Seconds = Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]
"""Seconds since the epoch."""
Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Payload(BaseModel):
    """Base of all payloads: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RunPayload(Payload):
    """The Run's row: how it began and ended. `has_execution` says that its host told an execution id."""

    run_id: RunId
    query: str = Field(max_length=4000)
    session_id: str | None = Field(max_length=128)
    intent: Intent | None
    internal_state: RunState
    release_outcome: ReleaseOutcome
    published_result: dict[str, Any] | None
    fallback: dict[str, Any] | None
    stop_reason: str | None
    error_code: str | None
    total_token_count: Count
    usage: dict[str, Any]
    created_at: Seconds
    ended_at: Seconds
    forked_from: RunId | None
    has_execution: bool


class QuestionPayload(Payload):
    """What was asked, in which session."""

    query: str = Field(max_length=4000)
    session_id: str | None = Field(max_length=128)
    previous_turn: str | None = None


class PreviousTurnPayload(Payload):
    """What the session's previous turn had published (R99)."""

    query: str = Field(max_length=4000)
    published_result: dict[str, Any] | None
    fallback: dict[str, Any] | None


class ContextPayload(DiagnosisContext):
    """The settings of this Run, and the name of the model that answered."""

    model_name: str = Field(max_length=200)


class HarnessPayload(Payload):
    """What the assembly decided for all its Runs."""

    language: str
    lease_seconds: float = Field(gt=0)
    run_timeout_seconds: float = Field(gt=0)
    host_serialises_threads: bool
    semantic_guard_is_lexical: bool


class NamedView(Payload):
    """A topic or a knowledge folder as the model sees it."""

    name: str
    description: str


class DatasourceView(NamedView):
    """A datasource as the model sees it. `kind` decides how table names are compared."""

    kind: str = Field(pattern=r"^(sqlite|server)$")
    timezone: str
    tables: dict[str, list[str]]


class CatalogPayload(Payload):
    """The catalogue without addresses."""

    now: float | str | None
    topics: list[NamedView]
    datasources: list[DatasourceView]
    knowledge: list[NamedView]


class ToolsPayload(BaseModel):
    """Description and schema of each tool, by wire name."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, ToolView] = Field(init=False)


class ToolView(Payload):
    """What the model was told about one tool."""

    description: str
    schema_: dict[str, Any] = Field(alias="schema")


class PromptsPayload(BaseModel):
    """SHA-256 of each prompt, by component and language."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, Hash] = Field(init=False)


class ForkPayload(Payload):
    """The state in which a fork began, and the node that it entered."""

    node: str = Field(pattern=r"^[a-z_]{1,64}$")
    state: dict[str, Any]


class CallPayload(Payload):
    """One requested tool call."""

    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any] | None


class AskedPayload(Payload):
    """SHA-256 of what a model was shown: system prompt, other messages, tools, form of the output."""

    prompt: Hash
    messages: Hash
    tools: Hash
    output: Hash


class AnswerPayload(Payload):
    """One attempt of a model call: a reply, or a failure.

    `asked` says what the model was shown; bundles of earlier versions have one digest of it all, or none.
    """

    asked: AskedPayload | Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$")] = ""
    failure: ModelFailureKind | None
    answered: bool = False
    retry_after: float | None = None
    message: dict[str, Any] | None = None
    calls: list[CallPayload] = Field(default_factory=list)
    text: str = ""
    usage: tuple[Count, Count] | None = None
    dropped_calls: Count = 0
    text_bytes: Count | None = None


class ResultRecordPayload(CanonicalRecord):
    """The canonical record of one call, without the backend's raw answer."""

    @field_validator("raw_response")
    @classmethod
    def _no_raw_response(cls, value: Any) -> Any:
        raise ValueError("raw_response: a bundle holds no raw answers")


class ClockPayload(Payload):
    """What the clock told one node, in order."""

    readings: list[Seconds]


class IdPayload(Payload):
    """The fresh ids one node was given, in order."""

    ids: list[RunId]


class TrackerPayload(DiagnosisProgressTracker):
    """The tracker after a node that moved it; its index is the agent results'."""


class StepPayload(Payload):
    """What one node decided, in words; the tracker, if it moved; how many trace events and agent steps it wrote.

    `messages` is the SHA-256 of what it added to the conversation; bundles of earlier versions lack it.
    """

    step: str
    events: Count
    agent_steps: Count
    tracker: TrackerPayload | None = None
    messages: Hash | None = None


class SystemPayload(Payload):
    """What one node was told of the system, as JSON text: topics, datasources, knowledge, titles of documents."""

    view: Json[dict[str, Any]]


class OutsidePayload(BaseModel):
    """Answers of the stores in order, by operation, where one was unusual."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, list[str]] = Field(init=False)


class EndPayload(Payload):
    """Where a host's cancel met the Run; `finished` says that the node had its result already."""

    node: NodeKey
    finished: bool


class TracePayload(Payload):
    """One trace event. `node` is the node execution that wrote it, None for what came from outside the graph."""

    seq: int = Field(ge=1)
    at: Seconds
    type: TraceEventType
    fields: dict[str, Any]
    fields_refused: Count
    node: NodeKey | None


class AgentStepPayload(Payload):
    """One round of the Diagnosis Agent (R114)."""

    round: Count
    kind: str
    tool_call_ids: list[str]
    token_count: Count | None


class ResultPayload(BaseModel):
    """What the graph published, as its state holds it."""

    model_config = ConfigDict(frozen=True, extra="allow")


PAYLOADS: Final[Mapping[tuple[str, str | None], type[BaseModel]]] = {
    ("run", "run"): RunPayload,
    ("question", "question"): QuestionPayload,
    ("question", "previous_turn"): PreviousTurnPayload,
    ("settings", "context"): ContextPayload,
    ("settings", "harness"): HarnessPayload,
    ("settings", "catalog"): CatalogPayload,
    ("settings", "tools"): ToolsPayload,
    ("settings", "prompts"): PromptsPayload,
    ("fork", "state"): ForkPayload,
    ("step", None): StepPayload,
    ("clock", None): ClockPayload,
    ("id", None): IdPayload,
    ("system", None): SystemPayload,
    ("outside", "end"): EndPayload,
    ("outside", None): OutsidePayload,
    ("model_answer", None): AnswerPayload,
    ("agent_result", None): ResultRecordPayload,
    ("agent_step", None): AgentStepPayload,
    ("trace", None): TracePayload,
    ("result", "result"): ResultPayload,
}
"""Payload by kind and key; None stands for any key. The order is the order of entries in a file."""

KINDS: Final = tuple(dict.fromkeys(kind for kind, _ in PAYLOADS))


def payload_model(kind: str, key: str) -> type[BaseModel] | None:
    """Return the model of an entry's payload; None when the format knows no such entry."""
    return PAYLOADS.get((kind, key)) or PAYLOADS.get((kind, None))
