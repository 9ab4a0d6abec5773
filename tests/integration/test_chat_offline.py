"""The assembled chat on SQLite with the offline model: sessions, follow-ups, answers, leaks (R55, R95-R100)."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from graph.contract import Intent, RunState
from graph.diagnosis import recursion_limit
from nodes.ports import RunRecord
from service.app import App, open_app
from service.settings import Settings
from tests.data import ROOT

OPERATORS = (
    "NO_GAIN",
    "GAINED",
    "budget",
    "ledger",
    "stop_reason",
    "usage",
    "threshold",
    "model_calls",
    "internal_state",
)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    settings = Settings(home=tmp_path, catalog=ROOT / "examples" / "shop" / "superbiz.toml")
    async with open_app(settings, env={}) as opened:
        yield opened


async def ask(app: App, question: str, session: str | None = None) -> dict[str, Any]:
    context = app.settings.context()
    config: Any = {
        "configurable": {"thread_id": str(uuid.uuid4())},
        "run_id": uuid.uuid4(),
        "recursion_limit": recursion_limit(context.budget),
    }
    state = await app.chat.ainvoke({"query": question, "session_id": session}, config, context=context)
    return dict(state)


async def record(app: App, state: dict[str, Any]) -> RunRecord:
    found = await app.runs.get(state["run_id"])
    assert found is not None
    return found


async def searched(app: App, state: dict[str, Any]) -> str:
    """What the Run asked the knowledge base."""
    results = await app.journal.archived(state["run_id"], "agent_result")
    (search,) = [each for each in results.values() if each["tool_name"] == "search_runbooks"]
    return str(search["request"]["query"])


async def test_r97_each_intent_with_the_offline_model(app: App) -> None:
    talked = await ask(app, "你能查哪些数据源和日志主题？")
    assert talked["release_outcome"] == "CHAT"
    for each in (*app.catalog.topics, *app.catalog.datasources):
        assert each.name in talked["published_result"]["text"]
    known = await ask(app, "如何回滚配置？")
    assert known["release_outcome"] == "KNOWLEDGE_ANSWER"
    documents = [each for item in known["published_result"]["items"] for each in item["documents"]]
    assert any("config-rollback" in each["source"] for each in documents)
    assert {item["tool_call_id"] for item in known["published_result"]["items"]} == {"lookup-1"}
    found = await ask(app, "结算为什么失败？")
    assert found["release_outcome"] == "CONCLUSION"
    assert "连接池" in found["published_result"]["conclusion"]
    intents = [(await record(app, each)).intent for each in (talked, known, found)]
    assert intents == [Intent.SYSTEM_CHAT, Intent.KNOWLEDGE_QUERY, Intent.DIAGNOSIS]
    for each in (talked, known, found):
        assert (await record(app, each)).internal_state is RunState.SUCCESS
        assert not [name for name in OPERATORS if name in json.dumps(each, ensure_ascii=False)]


async def test_r95_what_no_document_holds_is_not_made_up(app: App) -> None:
    state = await ask(app, "how do I bake sourdough bread with rye flour?")
    assert state["release_outcome"] == "KNOWLEDGE_ANSWER"
    assert state["published_result"]["not_found"] is True
    assert state["published_result"]["items"] == []


async def test_r97_documents_are_named_by_their_titles_once_they_are_indexed(app: App) -> None:
    before = (await ask(app, "list the runbooks"))["published_result"]["text"]
    assert "checkout-failures.zh [runbooks]" in before
    await ask(app, "如何回滚配置？")
    after = (await ask(app, "list the runbooks"))["published_result"]["text"]
    assert "checkout-failures.zh" not in after
    assert "(8)" in after


@pytest.mark.parametrize(
    ("first", "second"),
    [("为什么失败了？", "结算服务，支付超时"), ("why did it fail?", "it is the checkout, pool exhausted")],
)
async def test_r85_r99_a_follow_up_after_missing_context_uses_it(app: App, first: str, second: str) -> None:
    lacking = await ask(app, first, "s")
    assert lacking["fallback"]["reason"] == "MISSING_REQUIRED_CONTEXT"
    found = await ask(app, second, "s")
    assert found["release_outcome"] == "CONCLUSION"
    assert await searched(app, found) == f"{first} {second}"
    question = (await app.journal.archived(found["run_id"], "question"))["question"]
    assert "MISSING_REQUIRED_CONTEXT" in question["previous_turn"]


async def test_r99_the_previous_turn_is_the_latest_published_diagnosis_of_the_session(app: App) -> None:
    async def previous(session: str) -> str | None:
        asked = await ask(app, "谢谢", session)
        question = (await app.journal.archived(asked["run_id"], "question"))["question"]
        return question.get("previous_turn")

    assert await previous("s") is None
    await ask(app, "结算为什么失败？", "s")
    await ask(app, "你好", "s")
    await ask(app, "如何回滚配置？", "s")
    await ask(app, "退款为什么积压？", "other")
    text = await previous("s")
    assert text is not None
    assert len(text.encode()) <= 2048
    assert json.loads(text)["query"] == "结算为什么失败？"
    assert "offline-1" not in text
    assert json.loads(await previous("other") or "{}")["query"] == "退款为什么积压？"
    assert await previous("third") is None


async def test_r99_a_follow_up_goes_on_with_the_diagnosis_before_it(app: App) -> None:
    await ask(app, "结算为什么失败？", "s")
    state = await ask(app, "那数据库呢？", "s")
    assert (await record(app, state)).intent is Intent.DIAGNOSIS
    assert state["release_outcome"] == "CONCLUSION"
    assert await searched(app, state) == "结算为什么失败？ 那数据库呢？"
    assert await searched(app, await ask(app, "那数据库呢？")) == "那数据库呢？"
