"""How chat Runs end where all does not go well: failures, budgets, cancels, timeouts (R94, R97, R118-R120)."""

from __future__ import annotations

from typing import Any

import pytest

from graph.contract import BudgetLimits, Component, Intent, RunState
from nodes.ports import ModelFailureKind, ModelRequest
from tests.chat_loop import Chat, by_component, knowledge, make_chat, routed
from tests.fakes import Answer, call, calls, draft, envelope, text

CHAT, ASK, WHY = routed(Intent.SYSTEM_CHAT), routed(Intent.KNOWLEDGE_QUERY), routed(Intent.DIAGNOSIS)
ANSWER = knowledge(("Raise the pool.", "lookup-1", ["runbooks/pool.md#1"]))
NOT_JSON: list[Answer] = [
    text("DIAGNOSIS"),
    text('```json\n{"intent":"DIAGNOSIS"}\n```'),
    text('{"intent":"diagnosis"}'),
    text('{"intent":"DIAGNOSIS","why":"x"}'),
    text('{"intent":"DIAGNOSIS","intent":"SYSTEM_CHAT"}'),
    text("{}"),
    text(""),
    calls(("c1", "query_probe", envelope("found a"))),
]


async def ended(chat: Chat, state: RunState, code: str) -> None:
    """The Run ended once, without a result, with a code."""
    assert chat.state["release_outcome"] == "NONE"
    assert chat.state["error_code"] == code
    assert chat.state["published_result"] is None
    record = await chat.record()
    assert (record.internal_state, record.error_code) == (state, code)
    assert len(await chat.events("RUN_ENDED")) == 1


@pytest.mark.parametrize("bad", NOT_JSON)
async def test_r97_two_bad_answers_fail_closed_and_both_are_audited(bad: Answer) -> None:
    chat = make_chat(by_component(intent_router=[bad, bad, WHY]))
    await chat.run()
    await ended(chat, RunState.FAILED, "INTENT_ROUTING_FAILED")
    assert len(chat.model.asked(Component.INTENT_ROUTER)) == len(chat.model.requests) == 2
    calls_ = await chat.events("MODEL_CALL")
    assert [(each["component"], each["component_round"]) for each in calls_] == [
        ("INTENT_ROUTER", 1),
        ("INTENT_ROUTER", 2),
    ]
    (failed,) = await chat.events("INTENT_ROUTED")
    assert failed == {"type": "INTENT_ROUTED", "error_code": "INTENT_ROUTING_FAILED", "attempt": 2}
    record = await chat.record()
    assert record.intent is None, "a run whose routing failed is no diagnosis"
    assert record.usage["components"] == {"INTENT_ROUTER": 2}
    assert record.usage["tokens_reconciled"] is True


@pytest.mark.parametrize("first", [*NOT_JSON[:2], ModelFailureKind.TIMEOUT, ModelFailureKind.SERVER_ERROR])
async def test_r118_the_second_attempt_of_the_router_counts(first: Answer) -> None:
    chat = make_chat(by_component(intent_router=[first, CHAT], system_chat=text("hi")))
    await chat.run()
    assert chat.state["release_outcome"] == "CHAT"
    (event,) = await chat.events("INTENT_ROUTED")
    assert event["attempt"] == 2


async def test_r118_a_refused_request_is_not_repeated() -> None:
    chat = make_chat(by_component(intent_router=[ModelFailureKind.AUTHENTICATION, CHAT]))
    await chat.run()
    await ended(chat, RunState.FAILED, "INTENT_ROUTING_FAILED")
    assert len(chat.model.requests) == 1


@pytest.mark.parametrize(
    ("script", "component"),
    [
        ({"intent_router": CHAT, "system_chat": [ModelFailureKind.TIMEOUT, text("hi")]}, Component.SYSTEM_CHAT),
        ({"intent_router": ASK, "knowledge_answer": [ModelFailureKind.TIMEOUT, ANSWER]}, Component.KNOWLEDGE_ANSWER),
    ],
)
async def test_r118_chat_and_knowledge_have_one_attempt(script: dict[str, Any], component: Component) -> None:
    chat = make_chat(by_component(**script))
    await chat.run()
    await ended(chat, RunState.FAILED, "ANSWER_FAULT")
    assert len(chat.model.asked(component)) == 1
    assert (await chat.record()).usage["usage_unavailable"] == 1


@pytest.mark.parametrize("bad", [text("   \n"), calls(("c1", "query_probe", envelope("found a"))), text("\u200b\x07")])
async def test_r97_a_chat_answer_that_is_no_text_is_not_published(bad: Answer) -> None:
    chat = make_chat(by_component(intent_router=CHAT, system_chat=bad))
    await chat.run()
    await ended(chat, RunState.FAILED, "ANSWER_REJECTED")


async def test_r97_a_chat_answer_is_bounded_plain_text() -> None:
    chat = make_chat(by_component(intent_router=CHAT, system_chat=text("a\x1b[31m\u202e" + "x" * 9000)))
    await chat.run()
    published = chat.state["published_result"]["text"]
    assert len(published) == 4000
    assert published.startswith("a[31mxxx")


BAD_ANSWERS = {
    "another call": knowledge(("x", "lookup-2", ["runbooks/pool.md#1"])),
    "another document": knowledge(("x", "lookup-1", ["runbooks/pool.md#3"])),
    "one of two is false": knowledge(
        ("x", "lookup-1", ["runbooks/pool.md#1"]), ("y", "lookup-1", ["runbooks/pool.md#1", "secret.md#1"])
    ),
    "other letters": knowledge(("x", "lookup-1", ["Runbooks/pool.md#1"])),
    "no document": knowledge(("x", "lookup-1", [])),
    "six documents": knowledge(("x", "lookup-1", ["runbooks/pool.md#1"] * 6)),
    "nothing, but found": knowledge(not_found=False),
    "something, but not found": knowledge(("x", "lookup-1", ["runbooks/pool.md#1"]), not_found=True),
    "prose": text("Raise the pool."),
    "empty": text(""),
    "a tool call": calls(("c1", "search_documents", envelope("found a"))),
}


@pytest.mark.parametrize("bad", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
async def test_r95_membership_is_exact_and_one_false_citation_discards_the_answer(bad: Answer) -> None:
    documents_asked = make_chat(by_component(intent_router=ASK, knowledge_answer=bad))
    await documents_asked.run("how to raise the pool?")
    await ended(documents_asked, RunState.FAILED, "ANSWER_REJECTED")
    kinds = {each["type"] for each in await documents_asked.events()}
    assert kinds & {"EVIDENCE_GUARD", "AGENT_OUTPUT_REJECTED"}


async def test_r95_nothing_found_is_an_answer_and_asks_no_model() -> None:
    chat = make_chat(by_component(intent_router=ASK))
    await chat.run("none of this is written down")
    assert chat.state["release_outcome"] == "KNOWLEDGE_ANSWER"
    assert chat.state["published_result"]["not_found"] is True
    assert chat.state["published_result"]["items"] == []
    assert chat.model.asked(Component.KNOWLEDGE_ANSWER) == []
    assert (await chat.events("RELEASE_DECIDED"))[0]["reason"] == "KNOWLEDGE_NOT_FOUND"


async def test_r95_documents_that_do_not_answer_are_an_answer_too() -> None:
    chat = make_chat(by_component(intent_router=ASK, knowledge_answer=knowledge()))
    await chat.run("how to bake bread?")
    assert chat.state["published_result"] == {
        "query": "how to bake bread?",
        "outcome": "KNOWLEDGE_ANSWER",
        "items": [],
        "not_found": True,
    }


@pytest.mark.parametrize("question", ["error of the search", "violate the contract", "crash"])
async def test_r95_a_lookup_that_failed_answers_nothing(question: str) -> None:
    chat = make_chat(by_component(intent_router=ASK, knowledge_answer=ANSWER))
    await chat.run(question)
    await ended(chat, RunState.FAILED, "KNOWLEDGE_LOOKUP_FAILED")
    assert chat.model.asked(Component.KNOWLEDGE_ANSWER) == []
    (completed,) = await chat.events("TOOL_CALL_COMPLETED")
    assert completed["evidence_status"] == "ERROR"


async def test_r95_without_a_knowledge_base_there_is_no_answer() -> None:
    chat = make_chat(by_component(intent_router=ASK, knowledge_answer=ANSWER), more_tools=())
    await chat.run()
    await ended(chat, RunState.FAILED, "KNOWLEDGE_LOOKUP_FAILED")


@pytest.mark.parametrize("operation", ["begin", "finish"])
async def test_r65_a_lookup_that_cannot_be_recorded_answers_nothing(operation: str) -> None:
    from tools.canonical.store import CanonicalStoreUnavailable

    chat = make_chat(by_component(intent_router=ASK, knowledge_answer=ANSWER))

    def fail(name: str, count: int) -> None:
        if name == operation:
            raise CanonicalStoreUnavailable

    chat.canonical.on = fail
    await chat.run()
    await ended(chat, RunState.FAILED, "KNOWLEDGE_LOOKUP_FAILED")


LITTLE = {"reserve_model_calls": 0, "reserve_tokens": 0, "reserve_seconds": 0}


@pytest.mark.parametrize(("script", "asked"), [({"intent_router": CHAT}, 1), ({"intent_router": ASK}, 1)])
async def test_r117_a_budget_crossed_after_routing_ends_without_an_answer(script: dict[str, Any], asked: int) -> None:
    chat = make_chat(by_component(**script))
    await chat.run(budget=BudgetLimits(model_calls=1, **LITTLE))
    await ended(chat, RunState.BUDGET_EXHAUSTED, "BUDGET_LIMIT_REACHED")
    assert len(chat.model.requests) == asked


async def test_r117_a_budget_crossed_at_routing_asks_nobody() -> None:
    chat = make_chat(by_component(intent_router=WHY))

    def late(_: Any) -> None:
        chat.clock.advance(250)

    chat.journal.after["start_run"] = late
    await chat.run()
    await ended(chat, RunState.BUDGET_EXHAUSTED, "BUDGET_LIMIT_REACHED")
    assert chat.model.requests == []


async def test_r117_no_lookup_beyond_the_budget_of_tools() -> None:
    chat = make_chat(by_component(intent_router=ASK))
    await chat.run(budget=BudgetLimits(tool_calls=0))
    await ended(chat, RunState.BUDGET_EXHAUSTED, "BUDGET_LIMIT_REACHED")
    assert await chat.events("TOOL_CALL_COMPLETED") == []


async def test_r60_a_failed_attempt_stays_a_fault_where_the_budget_forbids_the_second() -> None:
    chat = make_chat(by_component(intent_router=[text("no"), WHY]))
    await chat.run(budget=BudgetLimits(model_calls=1, **LITTLE))
    await ended(chat, RunState.FAILED, "INTENT_ROUTING_FAILED")


async def test_r83_a_diagnosis_without_budget_after_routing_is_its_own_fallback() -> None:
    chat = make_chat(by_component(intent_router=WHY))
    await chat.run(budget=BudgetLimits(model_calls=1, **LITTLE))
    assert chat.state["release_outcome"] == "FALLBACK"
    assert chat.state["fallback"]["limitations"]["notes"] == ["STOPPED_BUDGET"]
    assert (await chat.record()).internal_state is RunState.BUDGET_EXHAUSTED


@pytest.mark.parametrize("place", ["start_run", "route_intent", "system_chat", "answer_knowledge"])
async def test_r119_a_cancel_between_two_nodes_ends_the_run_at_once(place: str) -> None:
    intent = ASK if place == "answer_knowledge" else CHAT
    chat = make_chat(by_component(intent_router=intent, system_chat=text("MARKER"), knowledge_answer=ANSWER))
    chat.journal.after[place] = chat.cancel
    await chat.run()
    await ended(chat, RunState.CANCELLED, "CANCELLED")
    asked = {"start_run": 0, "route_intent": 1}.get(place, 2)
    assert len(chat.model.requests) == asked


@pytest.mark.parametrize("component", ["intent_router", "system_chat", "knowledge_answer"])
async def test_r120_an_answer_after_a_cancel_is_dropped(component: str) -> None:
    scripts: dict[str, Any] = {
        "intent_router": ASK if component == "knowledge_answer" else CHAT,
        "system_chat": text("hi"),
        "knowledge_answer": ANSWER,
    }
    answer = scripts[component]

    async def cancelled_meanwhile(_: ModelRequest) -> Any:
        await chat.cancel()
        return answer

    chat = make_chat(by_component(**{**scripts, component: cancelled_meanwhile}))
    await chat.run()
    await ended(chat, RunState.CANCELLED, "CANCELLED")
    (late,) = await chat.events("LATE_RESULT_DROPPED")
    assert late["stage"] == "model"
    assert (await chat.record()).usage["total_tokens"] > 0


async def test_r120_a_lookup_after_a_cancel_is_dropped() -> None:
    chat = make_chat(by_component(intent_router=ASK, knowledge_answer=ANSWER))
    tool: Any = chat.resources.tools["search_documents"]
    tool.before_run = chat.cancel
    await chat.run()
    await ended(chat, RunState.CANCELLED, "CANCELLED")
    assert (await chat.events("LATE_RESULT_DROPPED"))[0]["stage"] == "tool"
    assert chat.model.asked(Component.KNOWLEDGE_ANSWER) == []


async def test_r94_a_timeout_ends_the_run_without_an_answer() -> None:
    chat = make_chat(by_component(intent_router=CHAT, system_chat=text("hi")))

    def late(_: Any) -> None:
        chat.clock.advance(400)

    chat.journal.after["system_chat"] = late
    await chat.run()
    await ended(chat, RunState.TIMED_OUT, "RUN_TIMED_OUT")


async def test_r119_a_cancel_inside_the_diagnosis_ends_the_chat_run() -> None:
    chat = make_chat(
        by_component(intent_router=WHY, diagnosis_agent=[call("c1", "found a"), draft(missing_info=["x"])])
    )
    chat.journal.after["execute_tool"] = chat.cancel
    await chat.run()
    await ended(chat, RunState.CANCELLED, "CANCELLED")
