"""The chat graph on the real framework: each branch and its ends (R94, R95, R97)."""

from __future__ import annotations

from graph.contract import Intent, RunState
from tests.chat_loop import by_component, knowledge, make_chat, routed
from tests.fakes import call, draft, text

CONCLUSION = draft("it is the pool", [("A1", "OBSERVATION", "line about found a", ["c1"])])
USERS = {"run_id", "intent", "release_outcome", "published_result", "fallback", "error_code"}


async def test_r97_a_diagnosis_is_a_subgraph_in_the_same_run() -> None:
    chat = make_chat(
        by_component(intent_router=routed(Intent.DIAGNOSIS), diagnosis_agent=[call("c1", "found a"), CONCLUSION])
    )
    state = await chat.run("why do orders fail?")
    assert state["release_outcome"] == "CONCLUSION"
    assert state["published_result"]["conclusion"] == "it is the pool"
    assert set(state) <= USERS
    (record,) = await chat.runs.runs()
    assert (record.intent, record.internal_state) == (Intent.DIAGNOSIS, RunState.SUCCESS)
    assert record.run_id == state["run_id"]
    assert [event["type"] for event in await chat.events()][:4] == [
        "RUN_STARTED",
        "MODEL_CALL",
        "INTENT_ROUTED",
        "MODEL_CALL",
    ]
    assert len(await chat.events("RUN_STARTED")) == len(await chat.events("RUN_ENDED")) == 1
    assert record.usage["components"] == {"INTENT_ROUTER": 1, "DIAGNOSIS_AGENT": 2, "SEMANTIC_GUARD": 1}


async def test_r97_system_chat() -> None:
    chat = make_chat(by_component(intent_router=routed(Intent.SYSTEM_CHAT), system_chat=text("I know app.")))
    state = await chat.run("what can you do?")
    assert state["release_outcome"] == "CHAT"
    assert state["published_result"] == {"query": "what can you do?", "outcome": "CHAT", "text": "I know app."}
    assert set(state) <= USERS
    record = await chat.record()
    assert (record.intent, record.internal_state) == (Intent.SYSTEM_CHAT, RunState.SUCCESS)


async def test_r95_knowledge_answer() -> None:
    answer = knowledge(("Raise the pool.", "lookup-1", ["runbooks/pool.md#2", "runbooks/pool.md#1"]))
    chat = make_chat(by_component(intent_router=routed(Intent.KNOWLEDGE_QUERY), knowledge_answer=answer))
    state = await chat.run("how to raise the pool?")
    assert state["release_outcome"] == "KNOWLEDGE_ANSWER"
    (item,) = state["published_result"]["items"]
    assert item["tool_call_id"] == "lookup-1"
    assert [each["document_id"] for each in item["documents"]] == ["runbooks/pool.md#1", "runbooks/pool.md#2"]
    record = await chat.canonical.get(state["run_id"], "lookup-1")
    assert record is not None
    assert record.status == "READY"
    (completed,) = await chat.events("TOOL_CALL_COMPLETED")
    assert completed["tool_call_id"] == "lookup-1"
