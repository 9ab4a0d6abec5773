"""A recorded Run's surroundings: clock, ids, model, tools and stores that answer as they did then, by node execution."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from langchain_core.messages import AIMessage
from pydantic import BaseModel

from graph.contract import Intent, RunState, TraceEvent, TraceEventType
from nodes import outside
from nodes.model_calls import AUDITED
from nodes.node_run import CURRENT_NODE
from nodes.ports import (
    JournalBatch,
    ModelCallFailed,
    ModelFailureKind,
    ModelReply,
    ModelRequest,
    RequestedCall,
    RunEnd,
    RunRecord,
    TokenUsage,
)
from release.contract import ReleaseOutcome
from service.replay.bundle import Bundle
from service.replay.export import RELEASING
from service.store.memory import InMemoryJournal, InMemoryRunStore
from service.store.status import TERMINAL
from tools.canonical.memory import MemoryCanonicalStore
from tools.canonical.store import CanonicalRecordTooLarge, CanonicalStoreUnavailable
from tools.contract import CanonicalRecord, EvidenceStatus, InvocationStatus, Scope, ToolErrorCode
from tools.evidence_tool import CallContext, EvidenceTool, ToolFailure, ToolOutcome

_WITH_THE_END = frozenset({TraceEventType.RUN_ENDED, *AUDITED})
FOR_EVER_DAYS = 1_000_000.0


class OffTheRecord(Exception):
    """The graph entered a node execution that the recorded Run does not have."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class ReleaseUntold(Exception):
    """The process died in its release: the Run had its end in the store, and nothing of it was written down."""


class Recording:
    """What the recorded Run met, by node execution. `strict` stops at the first node execution it does not have."""

    def __init__(self, bundle: Bundle, *, strict: bool) -> None:
        self.bundle = bundle
        self.strict = strict
        self._path = frozenset(bundle.path)
        self._told_no_release = released_untold(bundle)
        self._told: Counter[tuple[str, str]] = Counter()

    def take(self, what: str, values: list[Any]) -> Any:
        """Return the next of `values` for the node execution in hand; None past their end."""
        place = (CURRENT_NODE.get(), what)
        self._told[place] += 1
        number = self._told[place] - 1
        return values[number] if number < len(values) else None

    def answer(self, operation: str) -> str | None:
        """Return what a store answered then, if this node execution met something unusual in this operation."""
        unusual = self.bundle.by_kind["outside"].get(CURRENT_NODE.get(), {})
        return self.take(operation, unusual[operation]) if operation in unusual else None

    def entered(self) -> None:
        """Stop where the recorded Run never was. Raises OffTheRecord."""
        key = CURRENT_NODE.get()
        if self.strict and key and key not in self._path and not self.dies_in(key):
            raise OffTheRecord(key)

    def dies_in(self, key: str) -> bool:
        """Say whether the recorded process died in this node execution, after it had ended the Run."""
        return self._told_no_release and key.endswith(RELEASING)


class RecordedClock:
    """Tells each node execution the times it was told then; elsewhere, the time of the last reading."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._last = recording.bundle.run.created_at

    def now(self) -> float:
        """Seconds since the epoch."""
        key = CURRENT_NODE.get()
        recorded = self._recording.bundle.by_kind["clock"].get(key)
        value = self._recording.take("clock", recorded["readings"]) if recorded else None
        if value is None and key not in self._recording.bundle.by_kind["clock"] and self._recording.strict:
            value = self._recording.bundle.run.ended_at
        self._last = self._last if value is None else value
        return self._last


class RecordedIds:
    """Gives each node execution the ids it was given then."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def new_id(self) -> str:
        """Return an id; past the recorded ones, one that says so."""
        recorded = self._recording.bundle.by_kind["id"].get(CURRENT_NODE.get())
        value = self._recording.take("id", recorded["ids"]) if recorded else None
        return str(value) if value is not None else f"not-recorded-{self._recording.take('more', [])}"


class RecordedModel:
    """The recorded answers by (component, round); serves as its own factory."""

    def __init__(self, bundle: Bundle) -> None:
        self._answers = bundle.by_kind["model_answer"]
        self.name = str(bundle.settings["context"]["model_name"])
        self.semantic_guard_is_lexical = bool(bundle.settings["harness"]["semantic_guard_is_lexical"])

    def client(self, name: str | None) -> RecordedModel:
        """Return the one model there is."""
        return self

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the recorded answer. Raises ModelCallFailed, also where none was recorded."""
        answer = self._answers.get(f"{request.component.value}/{request.round_}")
        if answer is None:
            raise ModelCallFailed(ModelFailureKind.UNAVAILABLE)
        if answer["failure"] is None:
            return _reply(answer)
        raise ModelCallFailed(
            ModelFailureKind(answer["failure"]),
            answered=bool(answer.get("answered", False)),
            retry_after=answer.get("retry_after"),
            usage=_usage(answer.get("usage")),
        )


def _reply(answer: Mapping[str, Any]) -> ModelReply:
    calls = tuple(RequestedCall(c["tool_call_id"], c["tool_name"], c["arguments"]) for c in answer["calls"])
    message = AIMessage.model_validate(answer["message"])
    usage, text_bytes = _usage(answer["usage"]), answer.get("text_bytes")
    return ModelReply(message, calls, answer["text"], usage, answer["dropped_calls"], text_bytes)


def _usage(pair: Any) -> TokenUsage | None:
    return TokenUsage(pair[0], pair[1]) if pair else None


class Execution(Protocol):
    """How a recorded tool runs: returns the record of the call in hand, None where there is none."""

    def __call__(self, tool_name: str, request: BaseModel) -> Mapping[str, Any] | None:
        """Return the canonical record's archived part."""


class RecordedTool:
    """An evidence tool that runs from the record; its envelope, checks, scope and projections are the real ones."""

    def __init__(self, real: EvidenceTool, run: Execution) -> None:
        self._real = real
        self._run = run
        self.name = real.name
        self.description = real.description
        self.envelope = real.envelope
        self.kind = real.kind
        self.timeout_seconds = real.timeout_seconds
        self.check = real.check
        self.scope = real.scope
        self.control = real.control
        self.observe = real.observe
        self.facts = real.facts

    async def run(self, request: BaseModel, context: CallContext) -> ToolOutcome:
        """Give the recorded result. Raises ToolFailure: a recorded error, or a call that is not on record."""
        record = self._run(self.name, request)
        if record is None:
            raise ToolFailure(ToolErrorCode.BACKEND_ERROR)
        if record["status"] != InvocationStatus.READY or record["agent_result"] is None:
            raise ToolFailure(ToolErrorCode(record["error_code"] or ToolErrorCode.BACKEND_ERROR))
        status = EvidenceStatus(record["evidence_status"])
        return ToolOutcome(None, dict(record["agent_result"]), status, 0, truncated=False)


class RecordedRunStore(InMemoryRunStore):
    """A run store in which others act where they acted then."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    async def create(self, run: RunRecord) -> bool:
        """Insert; a Run that a service had stored before its graph began keeps that time."""
        bundle = self._recording.bundle
        stored, first = bundle.run.created_at, next(iter(bundle.path), "")
        readings = bundle.by_kind["clock"].get(first, {}).get("readings", ())
        if run.run_id == bundle.run_id and all(stored < each for each in readings):
            run = replace(run, created_at=stored)
        return await super().create(run)

    async def get(self, run_id: str) -> RunRecord | None:
        """Return the Run in the state that was seen then."""
        self._recording.entered()
        seen = self._recording.answer(outside.GET_RUN)
        if seen is not None and seen != outside.MISSING:
            self._others_moved(run_id, RunState(seen))
        return await super().get(run_id)

    async def transition(
        self,
        run_id: str,
        expected: frozenset[RunState],
        to: RunState,
        end: RunEnd | None = None,
        *,
        holder: str | None = None,
    ) -> bool:
        """Move the Run, unless another was faster then."""
        if self._recording.answer(outside.MOVE_RUN) == outside.NO:
            self._others_moved(run_id, RunState.CANCEL_REQUESTED)
        return await super().transition(run_id, expected, to, end, holder=holder)

    async def set_intent(self, run_id: str, intent: Intent) -> bool:
        """Record the intent, unless the Run was over by then."""
        return self._recording.answer(outside.SET_INTENT) != outside.NO and await super().set_intent(run_id, intent)

    async def previous_turn(self, session_id: str, owner: str | None = None) -> RunRecord | None:
        """Return what the session's previous turn had published then."""
        before = self._recording.bundle.by_kind["question"].get("previous_turn")
        if before is None:
            return None
        return RunRecord("previous", before["query"], session_id, RunState.SUCCESS, 0.0, **_published(before))

    async def find(self, run_id: str) -> RunRecord | None:
        """Return the Run as it stands, outside of the recorded order."""
        return await super().get(run_id)

    def _others_moved(self, run_id: str, state: RunState) -> None:
        run, end = self._runs.get(run_id), self._recording.bundle.run
        if run is None or run.internal_state is state or run.internal_state in TERMINAL:
            return
        changes: dict[str, Any] = {"internal_state": state}
        if state in TERMINAL:
            changes |= {name: getattr(end, name) for name in RunEnd.__dataclass_fields__}
        self._runs[run_id] = replace(run, **changes)


def _published(before: Mapping[str, Any]) -> dict[str, Any]:
    return {name: before[name] for name in ("published_result", "fallback")}


class RecordedCanonicalStore(MemoryCanonicalStore):
    """Canonical records in memory, with the outages and losses of then. `calling` is the call that last began."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(lambda: 0.0)
        self._recording = recording
        self.calling = ""

    async def begin(self, record: CanonicalRecord) -> CanonicalRecord:
        """Store a PROJECTING record, or return what an earlier execution of the node had left."""
        self.calling = record.tool_call_id
        kept = self._recording.bundle.by_kind["agent_result"].get(record.tool_call_id)
        if self._failing(outside.BEGIN) == outside.SETTLED and kept is not None:
            settled = CanonicalRecord.model_validate(kept)
            await super().begin(record)
            await super().finish(settled)
        return await super().begin(record)

    async def finish(self, record: CanonicalRecord) -> bool:
        """Move PROJECTING to READY or ERROR, unless the record was gone."""
        return self._failing(outside.FINISH) != outside.NO and await super().finish(record)

    async def reject(self, record: CanonicalRecord) -> bool:
        """Replace READY by ERROR, unless the record was gone."""
        return self._failing(outside.REJECT) != outside.NO and await super().reject(record)

    async def get(self, run_id: str, tool_call_id: str) -> CanonicalRecord | None:
        """Return the record as it was found then."""
        found = self._failing(outside.GET)
        record = await super().get(run_id, tool_call_id)
        if found == outside.MISSING or record is None:
            return None
        changes: dict[str, dict[str, Any]] = {
            outside.FOREIGN: {"run_id": outside.FOREIGN},
            InvocationStatus.PROJECTING.value: {"status": InvocationStatus.PROJECTING},
        }
        return record.model_copy(update=changes.get(found or "", {}))

    def _failing(self, operation: str) -> str | None:
        answer = self._recording.answer(operation)
        if answer == outside.UNAVAILABLE:
            raise CanonicalStoreUnavailable
        if answer == outside.TOO_LARGE:
            raise CanonicalRecordTooLarge
        return answer


class RecordedJournal(InMemoryJournal):
    """A journal into which others write where they wrote then, and in which a host's cancel may strike."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(_Still(), archive_days=FOR_EVER_DAYS, strict=False)
        self._recording = recording
        self._rows = iter(recording.bundle.trace)
        self._next = next(self._rows, None)
        self._struck = False

    async def write(self, batch: JournalBatch) -> None:
        """Store the batch. Raises CancelledError, ReleaseUntold where a cancel or death met this very write."""
        end = self._recording.bundle.by_kind["outside"].get("end")
        if end is not None and end["finished"] and end["node"] == batch.key and not self._struck:
            self._struck = True
            raise asyncio.CancelledError
        await self.written_by_others()
        if self._recording.dies_in(batch.key):
            raise ReleaseUntold
        await super().write(batch)
        for _ in batch.events:
            self._next = next(self._rows, None)

    async def of_another(self, batch: JournalBatch) -> None:
        """Store what another Run, or another process, had written."""
        await super().write(batch)

    async def written_by_others(self) -> None:
        """Write what came from outside the graph up to here, but for the end of the Run and what it comes with."""
        while (row := self._next) is not None and row["node"] is None and row["type"] not in _WITH_THE_END:
            written = TraceEvent(type=TraceEventType(row["type"]), fields=dict(row["fields"]))
            run_id = self._recording.bundle.run_id
            await super().write(JournalBatch(run_id, f"outside:{row['seq']}", row["at"], events=[written]))
            self._next = next(self._rows, None)


def released_untold(bundle: Bundle) -> bool:
    """Say whether the Run was released in the store by a process that died before it wrote that down."""
    released = bundle.run.release_outcome is not ReleaseOutcome.NONE
    return released and not any(key.endswith(RELEASING) for key in bundle.path)


class _Still:
    """A clock for what a replay does not time."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return 0.0


def parent_of(bundle: Bundle, seen: str) -> RunRecord:
    """Return the Run that a fork left, as far as the fork saw it."""
    run = bundle.run
    state = RunState(seen)
    return RunRecord(
        run_id=str(run.forked_from),
        query=run.query,
        session_id=run.session_id,
        internal_state=state,
        created_at=run.created_at,
        ended_at=run.created_at if state in TERMINAL else None,
        release_outcome=ReleaseOutcome.NONE,
    )


def recorded_tools(tools: Mapping[str, EvidenceTool], run: Execution) -> dict[str, EvidenceTool]:
    """Put the record behind each tool."""
    return {name: RecordedTool(tool, run) for name, tool in tools.items()}


def recorded_system(bundle: Bundle) -> Callable[[], Awaitable[Mapping[str, Any]]]:
    """Tell each node of the system what it was told then."""

    async def described() -> Mapping[str, Any]:
        told = bundle.by_kind["system"].get(CURRENT_NODE.get())
        return dict(json.loads(told["view"])) if told else {}

    return described


class ByScope:
    """Runs a call whose normalized scope was asked then from that record; other calls are kept in `unrecorded`."""

    def __init__(self, bundle: Bundle, tools: Mapping[str, EvidenceTool]) -> None:
        self._tools = tools
        self._results: dict[str, list[Mapping[str, Any]]] = {}
        for record in sorted(bundle.by_kind["agent_result"].values(), key=lambda each: float(each["created_at"])):
            self._results.setdefault(record["scope"]["key"], []).append(record)
        self.recorded = 0
        self.unrecorded: list[Scope] = []

    def __call__(self, tool_name: str, request: BaseModel) -> Mapping[str, Any] | None:
        """Return the record of this scope: the next one where it was asked again after an error."""
        scope = self._tools[tool_name].scope(request)
        results = self._results.get(scope.key)
        if not results:
            self.unrecorded.append(scope)
            return None
        self.recorded += 1
        return results.pop(0) if len(results) > 1 else results[0]


def by_call_id(bundle: Bundle, calling: Callable[[], str]) -> Execution:
    """Run from the record of the call that has just begun."""
    results = bundle.by_kind["agent_result"]
    return lambda tool_name, request: results.get(calling())
