"""One component's model call: budget, rounds, attempts, ledger, audit (R109-R118). The harness owns every retry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

from graph.budget import RunBudget
from graph.contract import BudgetDimension, Component, TraceEvent, TraceEventType
from graph.ledger import ModelCallLedger
from graph.state import budget_update
from nodes.events import event
from nodes.model_call import retry_allowed, retry_delay
from nodes.node_run import NodeRun
from nodes.ports import ArchiveEntry, ModelCallFailed, ModelFailureKind, ModelReply, ModelRequest, TokenUsage
from nodes.recall import ASKED, Answer, asked, recalled
from tools.evidence_tool import EvidenceTool

MODEL_ANSWER = "model_answer"
"""Kind of an archived attempt of a model call."""
AUDITED = (TraceEventType.MODEL_CALL, TraceEventType.PARALLEL_CALLS_DROPPED)
"""What the trace tells of a model call (R113, R29)."""
MAX_PAUSE_SECONDS = 1e9
"""The longest wish of a provider that is kept: an archive holds JSON numbers."""


@dataclass(frozen=True, slots=True)
class ModelCallOutcome:
    """What the attempts came to: a reply, or a failure, or a budget dimension that forbade the (next) attempt."""

    budget: RunBudget
    ledger: ModelCallLedger
    reply: ModelReply | None = None
    failed: ModelCallFailed | None = None
    crossed: BudgetDimension | None = None
    round_: int = 0
    events: tuple[TraceEvent, ...] = ()
    archive: tuple[ArchiveEntry, ...] = ()

    @property
    def failure(self) -> ModelFailureKind | None:
        """Stable code of what failed, if the last attempt failed."""
        return self.failed.kind if self.failed else None

    def accounts(self) -> dict[str, Any]:
        """Update of the state's budget and ledger."""
        return {**budget_update(self.budget), "ledger": self.ledger.model_dump(mode="json")}


@dataclass(frozen=True, slots=True)
class ModelTask:
    """What a component asks of the model. `usable` judges the text where a format failure allows a second attempt."""

    component: Component
    messages: Sequence[BaseMessage]
    tools: Sequence[EvidenceTool] = ()
    output: type[BaseModel] | None = None
    usable: Callable[[str], bool] | None = None

    @property
    def for_guard(self) -> bool:
        """Whether the call may use the reserve (R117)."""
        return self.component in (Component.EVIDENCE_REPAIR, Component.SEMANTIC_GUARD)


async def call_model(run: NodeRun, task: ModelTask, budget: RunBudget, ledger: ModelCallLedger) -> ModelCallOutcome:
    """Make the allowed attempts one by one; each is audited before anything else happens with it (R112)."""
    outcome = ModelCallOutcome(budget, ledger)
    attempt = 0
    while True:
        attempt += 1
        now = run.clock.now()
        crossed = _crossed(outcome.budget, task, now)
        if crossed is not None:
            return _replace(outcome, crossed=crossed)
        outcome = await _attempt(run, task, outcome, now)
        if outcome.reply is not None and (task.usable is None or task.usable(outcome.reply.text)):
            return outcome
        failure = _failure_of(outcome)
        if failure.kind is ModelFailureKind.CUT_OFF:
            # By a process that stopped, before this one took the Run up: no answer, so no attempt of R118.
            attempt -= 1
            continue
        if not retry_allowed(task.component, failure, attempt):
            return outcome
        delay = retry_delay(failure, _seconds_left(run, outcome.budget, task))
        if delay is None:
            return outcome
        await (run.resources.pause or asyncio.sleep)(delay)
        if not await run.still_active():
            return outcome


async def _attempt(run: NodeRun, task: ModelTask, before: ModelCallOutcome, now: float) -> ModelCallOutcome:
    round_ = before.ledger.next_round(task.component)
    timeout = min(
        run.resources.model_timeout_seconds, max(1.0, before.budget.seconds_left(now, for_guard=task.for_guard))
    )
    request = ModelRequest(
        component=task.component,
        round_=round_,
        messages=task.messages,
        tools=task.tools,
        output=task.output,
        timeout_seconds=timeout,
        language=run.run.language,
    )
    digests, key = asked(task.messages, task.tools, task.output), _key(task.component, round_)
    known = recalled(await run.resources.journal.archived_one(run.run.run_id, MODEL_ANSWER, key), digests)
    if known is None:
        # Should its answer never come, what it cost is unknown, not nothing (R116).
        run.attempts.append(_archived(key, digests, None, ModelCallFailed(ModelFailureKind.CUT_OFF)))
        known = await _complete(run, request)
        run.attempts.pop()
    archived = _archived(key, digests, *known)
    run.attempts.append(archived)
    return _counted(before, task.component, round_, known, archived)


def _counted(
    before: ModelCallOutcome, component: Component, round_: int, answer: Answer, archived: ArchiveEntry
) -> ModelCallOutcome:
    """Audit one attempt: trace, ledger and budget have the same pair of tokens, or the same gap (R112, R116). Pure."""
    reply, failed = answer
    # A truncated or filtered answer was paid for too (R112).
    usage = reply.usage if reply else (failed.usage if failed else None)
    audit = event(
        TraceEventType.MODEL_CALL,
        component=component.value,
        component_round=round_,
        usage_available=usage is not None,
        **_token_fields(usage),
    )
    dropped = reply.dropped_calls if reply else 0
    events = [audit] + ([event(TraceEventType.PARALLEL_CALLS_DROPPED, count=dropped)] if dropped else [])
    return ModelCallOutcome(
        budget=before.budget.with_model_call(usage.total_tokens if usage else None),
        ledger=before.ledger.with_call(component, (usage.input_tokens, usage.output_tokens) if usage else None),
        reply=reply,
        failed=failed,
        round_=round_,
        events=(*before.events, *events),
        archive=(*before.archive, archived),
    )


def recounted(budget: RunBudget, ledger: ModelCallLedger, answers: Mapping[str, Mapping[str, Any]]) -> ModelCallOutcome:
    """Audit what is archived beyond the ledger: calls of a node that was cut off before it could say so (R116). Pure."""
    outcome = ModelCallOutcome(budget, ledger)
    for component in Component:
        while (payload := answers.get(key := _key(component, outcome.ledger.next_round(component)))) is not None:
            answer = recalled(payload, payload.get(ASKED) or {})
            if answer is None:
                break
            round_, archived = outcome.ledger.next_round(component), ArchiveEntry(MODEL_ANSWER, key, payload)
            outcome = _counted(outcome, component, round_, answer, archived)
    return outcome


async def _complete(run: NodeRun, request: ModelRequest) -> tuple[ModelReply | None, ModelCallFailed | None]:
    try:
        async with asyncio.timeout(request.timeout_seconds + 1):
            return await run.model().complete(request), None
    except ModelCallFailed as failed:
        return None, failed
    except TimeoutError:
        return None, ModelCallFailed(ModelFailureKind.TIMEOUT)


def _key(component: Component, round_: int) -> str:
    return f"{component.value}/{round_}"


def _archived(
    key: str, digests: Mapping[str, str], reply: ModelReply | None, failed: ModelCallFailed | None
) -> ArchiveEntry:
    payload: dict[str, Any] = {ASKED: digests, "failure": failed.kind.value if failed else None}
    if failed is not None:
        payload |= {
            "answered": failed.answered,
            "retry_after": None if failed.retry_after is None else min(failed.retry_after, MAX_PAUSE_SECONDS),
            "usage": [failed.usage.input_tokens, failed.usage.output_tokens] if failed.usage else None,
        }
    if reply is not None:
        payload |= {
            "message": reply.message.model_dump(mode="json"),
            "calls": [
                {"tool_call_id": c.tool_call_id, "tool_name": c.tool_name, "arguments": c.arguments}
                for c in reply.calls
            ],
            "text": reply.text,
            "usage": [reply.usage.input_tokens, reply.usage.output_tokens] if reply.usage else None,
            "dropped_calls": reply.dropped_calls,
            "text_bytes": reply.text_bytes,
        }
    return ArchiveEntry(MODEL_ANSWER, key, payload)


def _token_fields(usage: TokenUsage | None) -> dict[str, int]:
    if usage is None:
        return {}
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }


def _failure_of(outcome: ModelCallOutcome) -> ModelCallFailed:
    # A reply that does not parse is a format failure: something of an answer did arrive.
    return outcome.failed or ModelCallFailed(ModelFailureKind.MALFORMED_RESPONSE, answered=True)


def _crossed(budget: RunBudget, task: ModelTask, now: float) -> BudgetDimension | None:
    return budget.crossed_before_guard_call(now) if task.for_guard else budget.crossed_before_agent_call(now)


def _seconds_left(run: NodeRun, budget: RunBudget, task: ModelTask) -> float:
    return budget.seconds_left(run.clock.now(), for_guard=task.for_guard)


def _replace(outcome: ModelCallOutcome, crossed: BudgetDimension) -> ModelCallOutcome:
    return ModelCallOutcome(
        budget=outcome.budget,
        ledger=outcome.ledger,
        failed=outcome.failed,
        crossed=crossed,
        round_=outcome.round_,
        events=outcome.events,
        archive=outcome.archive,
    )
