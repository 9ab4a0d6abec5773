"""Node `route_intent`: what the question is about, or nothing: it never guesses (R97, R118)."""

from __future__ import annotations

from langchain_core.messages import HumanMessage, SystemMessage

from graph.contract import Component, Intent, TraceEventType
from graph.state import ChatState, load_budget, load_ledger
from nodes.answers import Reply, late_answer, run_is_over, why_no_reply
from nodes.contract import CollectionEnd, EndCause
from nodes.events import event
from nodes.model_calls import ModelCallOutcome, ModelTask, call_model
from nodes.node_run import NodeResult, NodeRun
from nodes.prompts import data_message, previous_turn_message, prompt
from release.answers.contract import IntentDecision
from release.answers.parsing import parse_intent
from release.contract import ReleaseErrorCode


async def route_intent(state: ChatState, run: NodeRun) -> NodeResult:
    """Ask the router, at most twice; the intent is recorded with the Run before anything acts on it (R98)."""
    ended = run.ended_on_entry()
    if ended is not None:
        return run_is_over(ended)
    known = run.context.intent
    if known is not None:
        return await _known(run, known)
    outcome = await call_model(run, await _task(state, run), load_budget(state), load_ledger(state))
    if not await run.still_active():
        return late_answer(outcome)
    intent = parse_intent(outcome.reply.text) if outcome.reply is not None and not outcome.reply.calls else None
    if intent is None:
        return _failed(outcome)
    if not await run.resources.runs.set_intent(run.run.run_id, intent):
        return late_answer(outcome)
    routed = event(TraceEventType.INTENT_ROUTED, intent=intent.value, attempt=_attempts(outcome))
    update = {"intent": intent.value, **outcome.accounts()}
    return NodeResult(update, f"The question is {_KIND[intent]}.", [*outcome.events, routed], archive=outcome.archive)


async def _known(run: NodeRun, intent: Intent) -> NodeResult:
    """Take over what was known before: whoever asked said so, and no model is needed for it."""
    if not await run.resources.runs.set_intent(run.run.run_id, intent):
        return run_is_over(CollectionEnd(cause=EndCause.CANCELLED))
    routed = event(TraceEventType.INTENT_ROUTED, intent=intent.value, attempt=0)
    return NodeResult({"intent": intent.value}, f"The question is {_KIND[intent]}, as was said.", [routed])


_KIND = {
    Intent.DIAGNOSIS: "about an incident",
    Intent.KNOWLEDGE_QUERY: "for the knowledge base",
    Intent.SYSTEM_CHAT: "about the system itself",
}


async def _task(state: ChatState, run: NodeRun) -> ModelTask:
    language = run.run.language
    known = {name: part for name, part in (await run.describe_system()).items() if name != "documents"}
    return ModelTask(
        Component.INTENT_ROUTER,
        [
            SystemMessage(content=prompt("intent_router", language)),
            *data_message("system_view", known, language),
            *previous_turn_message(state.get("previous_turn"), language),
            HumanMessage(content=state["query"]),
        ],
        output=IntentDecision,
        usable=lambda text: parse_intent(text) is not None,
    )


def _failed(outcome: ModelCallOutcome) -> NodeResult:
    code = why_no_reply(outcome, ReleaseErrorCode.INTENT_ROUTING_FAILED)
    routed = event(TraceEventType.INTENT_ROUTED, error_code=code.value, attempt=_attempts(outcome))
    update = Reply(error=code).update() | outcome.accounts()
    return NodeResult(
        update, f"The question could not be routed: {code.value}.", [*outcome.events, routed], archive=outcome.archive
    )


def _attempts(outcome: ModelCallOutcome) -> int:
    return sum(each.type is TraceEventType.MODEL_CALL for each in outcome.events)
