"""`plan`: from the conversation to the next action, a tool call or the final draft (R20-R42, R56-R61). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import BaseMessage

from release.contract import FallbackReason
from service.offline.blocks import data_block
from service.offline.bound_tools import read_tools
from service.offline.drafting import draft
from service.offline.reading import gained
from service.offline.routing import is_follow_up
from service.offline.strategy import Journal, Step, strategy
from service.offline.taken import Taken
from service.offline.terms import Question, read_question
from service.offline.transcript import Exchange, Transcript, pending_call, read_transcript

MAX_JOINED_CHARS = 1000
"""Characters of a question joined with the one before it."""
MAX_STEPS = 15
"""Own tool calls per question; below the default tool budget (R117)."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model wants one tool called; `args` is the envelope `{previous_observation?, input}`."""

    id: str
    name: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FinalText:
    """The model is done; `text` is the JSON of a DiagnosisDraft."""

    text: str


NextAction = ToolCall | FinalText


def plan(messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]]) -> NextAction:
    """Decide the next action from the conversation alone. Same conversation, same action."""
    transcript = read_transcript(messages)
    question = _asked(transcript, data_block(messages, "previous_turn"))
    bound = read_tools(tools)
    stopped = any(exchange.stop_required for exchange in transcript.exchanges)
    journal = Journal()
    step, taken = _replay(question, strategy(question, bound, journal), transcript.exchanges)
    if question.says_too_little:
        step = None
    if stopped or step is None or transcript.calls_made >= MAX_STEPS + transcript.calls_before:
        journal.cut_short = journal.cut_short or step is not None
        result = draft(question, bound, taken, journal, stopped=stopped and step is not None)
        return FinalText(json.dumps(result.model_dump(mode="json"), ensure_ascii=False))
    args: dict[str, Any] = {}
    verdict = _verdict(question, transcript.exchanges, taken)
    if verdict is not None:
        args["previous_observation"] = verdict
    args["input"] = step.request
    return ToolCall(f"offline-{transcript.calls_made + 1}", step.tool_name, args)


def _asked(transcript: Transcript, previous: Mapping[str, Any]) -> Question:
    """The question, joined with the one before it where it says too little alone or answers what that one lacked (R99)."""
    question, before = read_question(transcript.question, transcript.system), str(previous.get("query") or "").strip()
    lacked = previous.get("reason") == FallbackReason.MISSING_REQUIRED_CONTEXT
    if not before or not (lacked or is_follow_up(question.text) or question.says_too_little):
        return question
    return replace(
        read_question(f"{before} {question.text}"[:MAX_JOINED_CHARS], transcript.system), language=question.language
    )


def _replay(question: Question, script: Any, exchanges: Sequence[Exchange]) -> tuple[Step | None, list[Taken]]:
    """Drive the script with what came back; the step it wants next (None: done) and the steps taken so far."""
    taken: list[Taken] = []
    step: Step | None = next(script, None)
    repaired = False
    for exchange in exchanges:
        if step is None:
            break
        if exchange.error_code == "INVALID_PROGRESS_PROTOCOL" and not repaired:
            repaired = True
            continue
        repaired = False
        taken.append(Taken(step, exchange))
        try:
            step = script.send(exchange)
        except StopIteration:
            step = None
    script.close()
    return step, taken


def _verdict(question: Question, exchanges: Sequence[Exchange], taken: Sequence[Taken]) -> dict[str, str] | None:
    """`previous_observation` of the next call: the pending result's verdict; None: nothing is pending (R25, R26)."""
    pending = pending_call(exchanges)
    last = exchanges[-1] if exchanges else None
    expected = ""
    if last is not None and last.error_code == "INVALID_PROGRESS_PROTOCOL":
        expected = str(last.answer.get("expected_previous_tool_call_id") or "")
        if not expected:
            return None
    if not expected:
        if pending is None:
            return None
        expected = pending.tool_call_id
    judged = next((item for item in taken if item.exchange.tool_call_id == expected), None)
    if judged is None:
        return {"tool_call_id": expected, "information_gain": "NO_GAIN"}
    earlier = [item.exchange for item in taken[: taken.index(judged)]]
    good = gained(judged.exchange, judged.step.check, earlier, question)
    return {"tool_call_id": expected, "information_gain": "GAINED" if good else "NO_GAIN"}
