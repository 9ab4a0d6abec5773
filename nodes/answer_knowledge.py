"""Node `answer_knowledge`: one lookup, then one answer bound to what it returned (R95, R96, R118)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage

from graph.contract import Component, TraceEvent, TraceEventType
from graph.state import ChatState, budget_update, load_budget, load_ledger
from nodes.answers import Reply, late_answer, run_is_over, why_no_reply
from nodes.contract import EndCause
from nodes.events import event
from nodes.lookup import Lookup, look_up
from nodes.model_calls import ModelCallOutcome, ModelTask, call_model
from nodes.node_run import NodeResult, NodeRun
from nodes.prompts import data_message, prompt
from release.answers.contract import KnowledgeAnswer
from release.answers.parsing import parse_knowledge_answer
from release.answers.publishing import document_refs, is_member, not_found, publish_knowledge
from release.contract import AgentOutputFailure, DocumentRef, ReleaseErrorCode, ViolationCode
from release.strict_json import text_bytes


async def answer_knowledge(state: ChatState, run: NodeRun) -> NodeResult:
    """Look up once, ask the model once, and verify that it cites nothing but what was found (R95)."""
    ended = run.ended_on_entry()
    if ended is not None:
        return run_is_over(ended)
    lookup = await look_up(state["query"], run, load_budget(state))
    without_model = _without_model(state["query"], lookup)
    if without_model is not None:
        return _after(lookup, NodeResult(without_model.update() | budget_update(lookup.budget), _step(without_model)))
    assert lookup.observation is not None
    task = _task(state["query"], lookup.observation, run.run.language)
    outcome = await call_model(run, task, lookup.budget, load_ledger(state))
    if not await run.still_active():
        return _after(lookup, late_answer(outcome))
    reply, events = _judged(state["query"], outcome, document_refs(lookup.observation))
    update = reply.update() | outcome.accounts()
    return _after(lookup, NodeResult(update, _step(reply), [*outcome.events, *events], archive=outcome.archive))


def _without_model(query: str, lookup: Lookup) -> Reply | None:
    """Answer where no model is needed: nothing found is an answer, a failed lookup is none."""
    if lookup.late:
        return Reply(end=EndCause.CANCELLED)
    if lookup.observation is None:
        return Reply(error=lookup.error)
    return None if lookup.observation.get("documents") else Reply(knowledge=not_found(query))


def _task(query: str, observation: dict[str, Any], language: str) -> ModelTask:
    messages = [
        SystemMessage(content=prompt("knowledge_answer", language)),
        *data_message("lookup", observation, language),
        HumanMessage(content=query),
    ]
    return ModelTask(Component.KNOWLEDGE_ANSWER, messages, output=KnowledgeAnswer)


def _judged(
    query: str, outcome: ModelCallOutcome, documents: Sequence[DocumentRef]
) -> tuple[Reply, Sequence[TraceEvent]]:
    if outcome.reply is None:
        return Reply(error=why_no_reply(outcome, ReleaseErrorCode.ANSWER_FAULT)), ()
    rejected = Reply(error=ReleaseErrorCode.ANSWER_REJECTED)
    text = "" if outcome.reply.calls else outcome.reply.text
    answer = parse_knowledge_answer(text)
    if isinstance(answer, AgentOutputFailure):
        size = outcome.reply.text_bytes or text_bytes(text)
        failed = {"failure": answer.value, "output_bytes": size, "has_publishable_progress": False}
        return rejected, [event(TraceEventType.AGENT_OUTPUT_REJECTED, **failed)]
    if not is_member(answer, documents):
        # One false citation discards the answer as a whole: what else it says is not to be trusted either.
        codes = [ViolationCode.REFERENCE_INVALID.value]
        return rejected, [event(TraceEventType.EVIDENCE_GUARD, violations=codes, passed=False)]
    return Reply(knowledge=publish_knowledge(query, answer, documents)), ()


def _after(lookup: Lookup, result: NodeResult) -> NodeResult:
    return replace(result, events=[*lookup.events, *result.events], archive=[*lookup.archive, *result.archive])


def _step(reply: Reply) -> str:
    if reply.knowledge is None:
        return f"Wrote no answer: {reply.error or reply.end}."
    found = reply.knowledge.items
    return f"Answered from documents in {len(found)} items." if found else "The documents hold no answer."
