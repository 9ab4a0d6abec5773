"""Node `system_chat`: what the system can do and what it knows of, from the catalogue and nothing else (R97, R99)."""

from __future__ import annotations

from langchain_core.messages import HumanMessage, SystemMessage

from graph.contract import Component
from graph.state import ChatState, load_budget, load_ledger
from nodes.answers import Reply, late_answer, run_is_over, why_no_reply
from nodes.model_calls import ModelTask, call_model
from nodes.node_run import NodeResult, NodeRun
from nodes.prompts import data_message, previous_turn_message, prompt
from release.answers.publishing import publish_chat
from release.contract import ReleaseErrorCode


async def system_chat(state: ChatState, run: NodeRun) -> NodeResult:
    """Ask the model once (R118); its text is bounded and cleaned, nothing else of it is kept."""
    ended = run.ended_on_entry()
    if ended is not None:
        return run_is_over(ended)
    language = run.run.language
    messages = [
        SystemMessage(content=prompt("system_chat", language)),
        *data_message("system_view", await run.describe_system(), language),
        *previous_turn_message(state.get("previous_turn"), language),
        HumanMessage(content=state["query"]),
    ]
    task = ModelTask(Component.SYSTEM_CHAT, messages)
    outcome = await call_model(run, task, load_budget(state), load_ledger(state))
    if not await run.still_active():
        return late_answer(outcome)
    if outcome.reply is None:
        reply = Reply(error=why_no_reply(outcome, ReleaseErrorCode.ANSWER_FAULT))
    else:
        chat = publish_chat(state["query"], outcome.reply.text) if not outcome.reply.calls else None
        reply = Reply(chat=chat) if chat else Reply(error=ReleaseErrorCode.ANSWER_REJECTED)
    step = "Wrote an answer about the system." if reply.chat else f"Wrote no answer: {reply.error}."
    return NodeResult(reply.update() | outcome.accounts(), step, outcome.events, archive=outcome.archive)
