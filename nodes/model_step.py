"""Node `model_step`: one turn of the Diagnosis Agent, ending in tool calls, a Draft, or the end of collection."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

from graph.contract import Component, DiagnosisStopReason, TraceEventType
from graph.state import DiagnosisState, cleared, load_budget, load_ledger, load_tracker, tracker_update
from graph.tracker import DiagnosisProgressTracker
from nodes.contract import CollectionEnd, EndCause
from nodes.events import event, saturation
from nodes.model_calls import ModelCallOutcome, ModelTask, call_model
from nodes.node_run import NodeResult, NodeRun
from nodes.ports import AgentStepRow, ModelReply
from nodes.ports import RequestedCall as AskedCall
from nodes.prompts import previous_turn_message, prompt
from release.contract import AgentOutputFailure, DiagnosisDraft
from release.draft import parse_draft
from tools.contract import TOOL_CALL_ID_PATTERN

_SAFE_ID = re.compile(TOOL_CALL_ID_PATTERN)
_UNSAFE_NAME = re.compile(r"[^A-Za-z0-9_.\-]")
MAX_NAME_CHARS = 64


async def model_step(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Ask the model once, within the budget; its answer decides where the graph goes (R37, R72, R77, R117)."""
    turn = state["position"]["turn"] + 1
    return replace(await _turn(state, run, turn), position={"turn": turn})


async def _turn(state: DiagnosisState, run: NodeRun, turn: int) -> NodeResult:
    tracker = load_tracker(state)
    base: dict[str, Any] = {**cleared(state, "requested", "call", "rejection")}
    ended = CollectionEnd.model_validate(state["ended"]) if state.get("ended") else run.ended_on_entry()
    if ended is not None:
        return NodeResult(_ended(base, ended), f"Did not ask the model: the run is {ended.cause.value.lower()}.")
    task = ModelTask(
        component=Component.DIAGNOSIS_AGENT,
        messages=_conversation(state, run),
        tools=tuple(run.resources.tools.values()),
        output=DiagnosisDraft,
    )
    outcome = await call_model(run, task, load_budget(state), load_ledger(state))
    base |= outcome.accounts()
    if not await run.still_active():
        return _late(base, outcome)
    if outcome.reply is None:
        return _without_reply(base, outcome, tracker)
    return _with_reply(state, base, outcome, outcome.reply, turn, run.resources.tools)


def _conversation(state: DiagnosisState, run: NodeRun) -> list[BaseMessage]:
    system = SystemMessage(content=prompt("diagnosis", run.run.language))
    return [system, *previous_turn_message(state.get("previous_turn"), run.run.language), *state["messages"]]


def _ended(base: dict[str, Any], end: CollectionEnd) -> dict[str, Any]:
    return {**base, "ended": end.model_dump(mode="json")}


def _late(base: dict[str, Any], outcome: ModelCallOutcome) -> NodeResult:
    return NodeResult(
        _ended(base, CollectionEnd(cause=EndCause.CANCELLED)),
        "The run was cancelled while the model answered: its answer is dropped.",
        events=[*outcome.events, event(TraceEventType.LATE_RESULT_DROPPED, stage="model")],
        archive=outcome.archive,
    )


def _without_reply(base: dict[str, Any], outcome: ModelCallOutcome, tracker: DiagnosisProgressTracker) -> NodeResult:
    # A call that failed stays a fault, also where the budget forbids its second attempt (R60).
    if outcome.crossed is not None and outcome.failure is None:
        stopped = tracker.stopped(DiagnosisStopReason.BUDGET_LIMIT_REACHED)
        end = CollectionEnd(cause=EndCause.BUDGET, dimension=outcome.crossed)
        update = _ended(base, end) | tracker_update(tracker, stopped)
        step = f"Did not ask the model again: the budget of {outcome.crossed.value} is used up."
        return NodeResult(update, step, [*outcome.events, *saturation(tracker, stopped)], archive=outcome.archive)
    failure = outcome.failure.value if outcome.failure else "UNKNOWN"
    row = AgentStepRow(outcome.round_, "failed", (), None)
    end = CollectionEnd(cause=EndCause.FAULT, fault=f"MODEL_{failure}")
    return NodeResult(
        _ended(base, end), f"The model could not be reached: {failure}.", outcome.events, [row], outcome.archive
    )


def _with_reply(
    state: DiagnosisState,
    base: dict[str, Any],
    outcome: ModelCallOutcome,
    reply: ModelReply,
    turn: int,
    known_tools: Collection[str],
) -> NodeResult:
    tokens = reply.usage.total_tokens if reply.usage else None
    if reply.calls:
        problem = not _ids_are_sound(reply, _known_ids(state["messages"]))
        ids = () if problem else tuple(call.tool_call_id for call in reply.calls)
        if problem:
            update, step = _output_failed(base, AgentOutputFailure.INVALID_TOOL_CALL_ID, 0)
        else:
            update, step = _requested(base, reply, turn, known_tools)
    else:
        ids = ()
        update, step = _final_text(base, reply, turn)
    kind = "tool_calls" if ids else ("draft" if update.get("draft") else "output_failure")
    row = AgentStepRow(outcome.round_, kind, ids, tokens)
    return NodeResult(update, step, outcome.events, [row], outcome.archive)


def _requested(
    base: dict[str, Any], reply: ModelReply, turn: int, known_tools: Collection[str]
) -> tuple[dict[str, Any], str]:
    sent = {call["id"]: call["args"] for call in reply.message.tool_calls}
    calls = [_requested_call(call, sent, known_tools) for call in reply.calls]
    update = {
        **base,
        "messages": [_with_id(reply.message, turn)],
        "requested": calls,
    }
    names = ", ".join(call["tool_name"] for call in calls[:3])
    return update, f"The model asked for {len(calls)} tool call{'s' * (len(calls) > 1)}: {names}."


def _requested_call(call: AskedCall, sent: dict[str | None, Any], known_tools: Collection[str]) -> dict[str, Any]:
    name = _safe_name(call.tool_name, known_tools)
    requested: dict[str, Any] = {"tool_call_id": call.tool_call_id, "tool_name": name}
    # The message holds the arguments already; they are kept apart only where the adapter read them otherwise.
    if call.arguments != sent.get(call.tool_call_id):
        requested["arguments"] = call.arguments
    return requested


def _final_text(base: dict[str, Any], reply: ModelReply, turn: int) -> tuple[dict[str, Any], str]:
    parsed = parse_draft(reply.text)
    if isinstance(parsed, AgentOutputFailure):
        # The illegal text is discarded here and enters neither the state nor the trace (R77, R79).
        size = reply.text_bytes or len(reply.text.encode("utf-8", "surrogatepass"))
        return _output_failed(base, parsed, size)
    update = _ended(base, CollectionEnd(cause=EndCause.DRAFT))
    update |= {"messages": [_with_id(reply.message, turn)], "draft": parsed.model_dump(mode="json")}
    what = "a conclusion" if parsed.conclusion else "no conclusion"
    return update, f"The model wrote a draft with {what} and {len(parsed.analyses)} analyses."


def _output_failed(base: dict[str, Any], failure: AgentOutputFailure, size: int) -> tuple[dict[str, Any], str]:
    update = _ended(base, CollectionEnd(cause=EndCause.OUTPUT_FAILURE))
    update["output_failure"] = {"failure": failure.value, "output_bytes": size}
    return update, f"The model's output was discarded: {failure.value}."


def _ids_are_sound(reply: ModelReply, known: set[str]) -> bool:
    ids = [call.tool_call_id for call in reply.calls]
    return all(_SAFE_ID.fullmatch(i) for i in ids) and len(set(ids)) == len(ids) and known.isdisjoint(ids)


def _known_ids(messages: list[BaseMessage]) -> set[str]:
    return {
        call["id"] or ""
        for message in messages
        if isinstance(message, AIMessage)
        for call in [*message.tool_calls, *message.invalid_tool_calls]
    }


def _safe_name(name: str, known_tools: Collection[str]) -> str:
    if name in known_tools:
        return name
    safe = _UNSAFE_NAME.sub("_", name)[:MAX_NAME_CHARS] or "_"
    # What is no tool's name must not become one by being cleaned (R28).
    return "_" if safe in known_tools else safe


def _with_id(message: AIMessage, turn: int) -> AIMessage:
    return message.model_copy(update={"id": f"turn-{turn}"})
