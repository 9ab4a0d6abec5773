from __future__ import annotations

import json

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage

from graph.contract import Component, Intent
from nodes.ports import ModelRequest, TokenUsage
from release.contract import DiagnosisDraft, SemanticJudgement
from service.offline.client import OfflineClient
from service.offline.model import OfflineModel
from service.offline.other_components import route
from tests.unit.offline_doubles import SEARCH, logs_schema


def request(component: Component, text: str) -> ModelRequest:
    return ModelRequest(component, 1, [SystemMessage("system"), HumanMessage(text)])


def test_is_a_chat_model_that_takes_openai_style_tools() -> None:
    model = OfflineModel()
    assert isinstance(model, BaseChatModel)
    bound = model.bind_tools([SEARCH, logs_schema("app: logs")])
    message = bound.invoke([HumanMessage("why does billing fail?")])  # type: ignore[attr-defined]
    (call,) = message.tool_calls
    assert call["name"] == "find_docs"
    assert call["args"] == {"input": {"query": "why does billing fail?", "top_k": 3}}


async def test_r116_uses_no_tokens_and_says_so() -> None:
    reply = await OfflineClient().complete(request(Component.DIAGNOSIS_AGENT, "why?"))
    assert reply.usage == TokenUsage(0, 0)
    assert reply.calls == ()
    assert DiagnosisDraft.model_validate_json(reply.text).conclusion is None


async def test_r91_its_verdicts_are_lexical_and_its_own_is_cautious() -> None:
    client = OfflineClient()
    assert client.semantic_guard_is_lexical
    reply = await client.complete(request(Component.SEMANTIC_GUARD, "{}"))
    assert SemanticJudgement.model_validate_json(reply.text).verdict == "UNSUPPORTED"


async def test_r90_a_repair_by_it_concludes_nothing() -> None:
    reply = await OfflineClient().complete(request(Component.EVIDENCE_REPAIR, "{}"))
    assert DiagnosisDraft.model_validate_json(reply.text).conclusion is None


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("你好", Intent.SYSTEM_CHAT),
        ("hello!", Intent.SYSTEM_CHAT),
        ("what can you do?", Intent.SYSTEM_CHAT),
        ("如何回滚配置变更？", Intent.KNOWLEDGE_QUERY),
        ("How do I restart the indexer?", Intent.KNOWLEDGE_QUERY),
        ("结算为什么失败？", Intent.DIAGNOSIS),
        ("hi, why does the export hang", Intent.DIAGNOSIS),
        ("what's wrong with the export job?", Intent.DIAGNOSIS),
        ("订单服务 5xx 突增", Intent.DIAGNOSIS),
    ],
)
async def test_r97_routes_by_plain_rules(text: str, intent: Intent) -> None:
    assert route(text) is intent
    reply = await OfflineClient().complete(request(Component.INTENT_ROUTER, text))
    assert json.loads(reply.text) == {"intent": intent.value}


async def test_r95_knowledge_answers_cite_the_lookups_documents() -> None:
    document = {"document_id": "runbooks/a.md#x", "title": "Rollback", "content": "1. Find the change.\n2. Roll back."}
    block = json.dumps({"tool_call_id": "lookup-1", "documents": [document]})
    reply = await OfflineClient().complete(request(Component.KNOWLEDGE_ANSWER, f"how to roll back?\n{block}"))
    answer = json.loads(reply.text)
    assert answer["not_found"] is False
    assert answer["items"] == [
        {
            "text": "Rollback: 1. Find the change. 2. Roll back.",
            "tool_call_id": "lookup-1",
            "document_ids": ["runbooks/a.md#x"],
        }
    ]


async def test_r95_without_documents_nothing_is_made_up() -> None:
    reply = await OfflineClient().complete(request(Component.KNOWLEDGE_ANSWER, "how to roll back?"))
    assert json.loads(reply.text) == {"items": [], "not_found": True}


async def test_small_talk_says_that_no_language_model_is_used() -> None:
    reply = await OfflineClient().complete(request(Component.SYSTEM_CHAT, "hello"))
    assert "no language model" in reply.text
