"""What nodes need from outside, as protocols and frozen values; tests pass fakes, `service` passes the real things."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from graph.context import DiagnosisContext
from graph.contract import Component, Intent, RunState, TraceEvent
from release.contract import ReleaseOutcome
from tools.canonical.store import CanonicalStore
from tools.evidence_tool import EvidenceTool

if TYPE_CHECKING:
    # Who only reads what Runs left has no messages.
    from langchain_core.messages import AIMessage, BaseMessage

TERMINAL = frozenset(
    {RunState.SUCCESS, RunState.FAILED, RunState.CANCELLED, RunState.TIMED_OUT, RunState.BUDGET_EXHAUSTED}
)
"""States that no transition leaves (R8)."""


class Clock(Protocol):
    """Wall clock of the Run; injected so that a replay reads the same times."""

    def now(self) -> float:
        """Seconds since the epoch."""


class IdSource(Protocol):
    """Source of fresh identifiers; injected so that a replay gets the same ones."""

    def new_id(self) -> str:
        """Return a UUID4 string."""


class ModelFailureKind(StrEnum):
    """Why a model call yielded nothing usable. Stable codes; provider text never leaves the adapter."""

    TIMEOUT = "TIMEOUT"
    CONNECTION = "CONNECTION"
    RATE_LIMITED = "RATE_LIMITED"
    UNAVAILABLE = "UNAVAILABLE"
    SERVER_ERROR = "SERVER_ERROR"
    AUTHENTICATION = "AUTHENTICATION"
    REQUEST_REFUSED = "REQUEST_REFUSED"
    CONTENT_FILTERED = "CONTENT_FILTERED"
    OUTPUT_TRUNCATED = "OUTPUT_TRUNCATED"
    MALFORMED_RESPONSE = "MALFORMED_RESPONSE"
    CUT_OFF = "CUT_OFF"


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Provider usage of one model call (R112), in tokens."""

    input_tokens: int
    output_tokens: int

    @property
    def total_tokens(self) -> int:
        """Sum of both."""
        return self.input_tokens + self.output_tokens


class ModelCallFailed(Exception):
    """One attempt of a model call failed.

    `answered` is True when part of an answer had arrived (then the Diagnosis Agent may not retry, R118).
    `retry_after` is the provider's own wish in seconds; `usage` what it charged for an answer that cannot be used (R112).
    """

    def __init__(
        self,
        kind: ModelFailureKind,
        *,
        answered: bool = False,
        retry_after: float | None = None,
        usage: TokenUsage | None = None,
    ) -> None:
        super().__init__(kind.value)
        self.kind = kind
        self.answered = answered
        self.retry_after = retry_after
        self.usage = usage


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """One tool call as the model asked for it, in message order.

    `arguments` is the parsed JSON object, or None when what the model sent is not one (then the envelope is malformed).
    `tool_call_id` is exactly what the provider sent, "" when it sent none; R72 judges it.
    """

    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One attempt of a model call. `round_` counts the component's calls from 1; answers are keyed by it (replay)."""

    component: Component
    round_: int
    messages: Sequence[BaseMessage]
    tools: Sequence[EvidenceTool] = ()
    output: type[BaseModel] | None = None
    timeout_seconds: float = 60.0
    language: str = "zh"


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A usable answer.

    `message` is ready for the state: bounded, no text beside tool calls, no reasoning unless the provider's profile
    demands it back (R55). `text` is the final text when there are no calls. `dropped_calls` counts calls that a
    `parallel_tool_calls: serialize` profile removed (R29).
    """

    message: AIMessage
    calls: tuple[RequestedCall, ...]
    text: str
    usage: TokenUsage | None
    dropped_calls: int = 0
    text_bytes: int | None = None
    """UTF-8 bytes of the text before the adapter bounded it (R79); None where nothing was cut."""


class ModelClient(Protocol):
    """A configured model. Makes exactly one attempt per call (R118)."""

    @property
    def name(self) -> str:
        """Name shown to operators, e.g. `offline` or `openai:NAME`."""

    @property
    def semantic_guard_is_lexical(self) -> bool:
        """True for the offline model: the semantic verdict is lexical containment, and the trace says so (R91)."""

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Make one attempt. Raises ModelCallFailed or CancelledError, nothing else."""


class ModelFactory(Protocol):
    """Gives the model client of a configured name."""

    def client(self, name: str | None) -> ModelClient:
        """Return the client; None means the configured default. Raises ValueError naming what is allowed."""


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """What the process that starts, or resumes, a Run says of it: `config["configurable"][ORIGIN]`.

    Only an instance counts, so nothing that came over a wire can pretend to be one. `run_id` names the Run that is started
    or resumed: entering its state is no fork. `owner` is who asked. With `alone_in_session` a session has one Run at a
    time (R134).
    """

    run_id: str
    owner: str | None = None
    alone_in_session: bool = False


ORIGIN = "run_origin"
"""Key of the RunOrigin in the config's `configurable`."""
LOCAL_CALLER = "(local)"
"""What a host calls whoever needs no token because it runs on this machine; no token can have this name."""


def owner_called(caller: str | None) -> str | None:
    """Return the owner of a caller's Runs; local use has none. Pure."""
    return None if caller == LOCAL_CALLER else caller


class SessionBusy(Exception):
    """The session has a Run that has not ended; no second one begins (R134)."""

    def __init__(self) -> None:
        super().__init__("session_id: the session has a run that has not ended")


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A Run as the run store keeps it (R8, R9, R98). Times are seconds since the epoch.

    `owner` is who asked, None for local use; `thread_id` where its checkpoints are; `session_lock` what no other active
    Run may hold, empty once the Run has ended; `context` its settings, where a host of ours can start it again; `intent`
    None until the question was routed: a Run whose routing failed is of no kind (R97).
    """

    run_id: str
    query: str
    session_id: str | None
    internal_state: RunState
    created_at: float
    execution_id: str | None = None
    lease_until: float | None = None
    forked_from: str | None = None
    intent: Intent | None = None
    release_outcome: ReleaseOutcome = ReleaseOutcome.NONE
    published_result: Mapping[str, Any] | None = None
    fallback: Mapping[str, Any] | None = None
    stop_reason: str | None = None
    error_code: str | None = None
    total_token_count: int = 0
    usage: Mapping[str, Any] = field(default_factory=dict)
    ended_at: float | None = None
    owner: str | None = None
    thread_id: str | None = None
    session_lock: str | None = None
    context: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What the terminal transition writes in the same statement as the state (R8, R94, R98)."""

    release_outcome: ReleaseOutcome
    ended_at: float
    published_result: Mapping[str, Any] | None = None
    fallback: Mapping[str, Any] | None = None
    stop_reason: str | None = None
    error_code: str | None = None
    total_token_count: int = 0
    usage: Mapping[str, Any] = field(default_factory=dict)


class RunStore(Protocol):
    """Durable Runs with compare-and-set transitions (R8)."""

    async def create(self, run: RunRecord) -> bool:
        """Insert; False when the run_id exists already (a re-executed node).

        Raises SessionBusy when another Run holds its session lock.
        """

    async def get(self, run_id: str) -> RunRecord | None:
        """Return the Run or None."""

    async def transition(
        self,
        run_id: str,
        expected: frozenset[RunState],
        to: RunState,
        end: RunEnd | None = None,
        *,
        holder: str | None = None,
    ) -> bool:
        """Move the Run atomically; False when its state is not among `expected`. `end` is written in the same update.

        With `holder`, an execution's id, also False when another execution has taken the Run over (R3).
        """

    async def take_lease(self, run_id: str, execution_id: str, now: float, lease_until: float, force: bool) -> bool:
        """Make `execution_id` the Run's execution if the lease is its own, free, expired, or `force`; False otherwise."""

    async def release_lease(self, run_id: str, execution_id: str | None, told: bool = False) -> None:
        """Give the lease back so that another execution may take the Run over at once.

        That of a Run that has ended is given back only once its trace has the end (`told`): by it a sweep finds an end
        whose writer died.
        """

    async def set_intent(self, run_id: str, intent: Intent) -> bool:
        """Record what the router decided (R97, R98); False when the Run has ended or does not exist."""

    async def previous_turn(self, session_id: str, owner: str | None = None) -> RunRecord | None:
        """Return the latest `DIAGNOSIS + SUCCESS` Run of the owner's session that published something (R99).

        Fallbacks included; sessions of the same name that belong to other owners are others.
        """


@dataclass(frozen=True, slots=True)
class AgentStepRow:
    """One round of the Diagnosis Agent (R114). `token_count` is None when the provider gave no usage (R116)."""

    round_: int
    kind: str
    tool_call_ids: tuple[str, ...]
    token_count: int | None


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """One archived value (R67).

    `kind` is question | settings | fork | system | model_answer | agent_result | clock | id | step | outside | result.
    """

    kind: str
    key: str
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """Everything one node writes down, stored in one transaction.

    `key` identifies the node's execution within the Run (e.g. "0007:dedup_scope"): writing the same key again changes
    nothing, so a re-executed node leaves no second trace. The store gives each event a `seq`, monotone per Run.
    """

    run_id: str
    key: str
    at: float
    events: Sequence[TraceEvent] = ()
    steps: Sequence[AgentStepRow] = ()
    archive: Sequence[ArchiveEntry] = ()


class Journal(Protocol):
    """Trace, agent steps and archive (R67, R103-R108). Fields are checked against the whitelist at write."""

    async def write(self, batch: JournalBatch) -> None:
        """Store the batch; idempotent by (run_id, key)."""

    async def archived(self, run_id: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """Return archived payloads of one kind by key; empty when none."""

    async def archived_one(self, run_id: str, kind: str, key: str) -> Mapping[str, Any] | None:
        """Return one archived payload, whatever its age; None when there is none."""


async def _nothing_to_describe() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Resources:
    """Everything outside the state that a node needs; closed over by `build_diagnosis_graph`.

    `tools` is the registry by wire name, in the order the model sees them.
    """

    models: ModelFactory
    tools: Mapping[str, EvidenceTool]
    canonical: CanonicalStore
    runs: RunStore
    journal: Journal
    clock: Clock
    ids: IdSource
    language: str = "zh"
    lease_seconds: float = 60.0
    run_timeout_seconds: float = 300.0
    model_timeout_seconds: float = 120.0
    host_serialises_threads: bool = False
    """True on a server that runs one execution per thread at a time: then a Run may be taken over at once (R3)."""
    on_host: bool = False
    """True on a server that begins Runs which the service has stored, and repeats executions whose process died."""
    one_run_per_thread: bool = False
    """True on a server that lets two executions loose on one thread: then the run store refuses the second (R134)."""
    default_context: DiagnosisContext = field(default_factory=DiagnosisContext)
    """The configured settings of a Run; a host's context overrides them field by field."""
    pause: Callable[[float], Awaitable[None]] | None = None
    """Waits before a model call's second attempt, in seconds; None really waits."""
    start_archive: Sequence[ArchiveEntry] = ()
    """What each Run archives of its surroundings when it starts (R67): catalogue view, tools, hashes of the prompts."""
    describe_system: Callable[[], Awaitable[Mapping[str, Any]]] = _nothing_to_describe
    """Names and descriptions of what the system knows (topics, datasources, documents), no addresses: what the router and
    the system chat see."""
