"""What the offline model says where no diagnosis is asked of it: routing, chat, knowledge answers, guards. Pure.

Guards with this model are lexical and belong to the harness; should they ask anyway, the answer is the cautious one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage

from graph.contract import Component, Intent
from service.offline.phrases import excerpt
from service.offline.terms import language_of
from service.offline.transcript import text_of

MAX_ITEMS = 3
MAX_ITEM_CHARS = 400

_GREETING = re.compile(
    r"^\W*(?:hi|hello|hey|thanks|thank you|good (?:morning|evening)|你好|您好|谢谢|早上好|晚上好|嗨|在吗)(?:\W+\w{0,12})?\W*$",
    re.IGNORECASE,
)
_ABOUT_SELF = re.compile(r"who are you|what can you do|你是谁|你能做什么|你会什么|介绍一下你", re.IGNORECASE)
_KNOWLEDGE = re.compile(
    r"^\W*how (?:do|to|can|should)\b|^\W*what (?:is|are|does) (?:an? |the )?[\w\- ]{2,40}\??$|^\W*(?:explain|define)\b"
    r"|^\W*where (?:is|can i find)\b|(?:如何|怎么|怎样)(?:处理|配置|排查|操作|设置|升级|扩容|重启|回滚|处置|恢复)"
    r"|是什么[?？]?$|什么是|步骤|流程|手册|文档|规范",
    re.IGNORECASE,
)
_DIAGNOSIS = re.compile(r"\bwhy\b|what'?s wrong|为什么|为何|怎么回事|什么原因|根因|诊断", re.IGNORECASE)

_CHAT = {
    "zh": "我是离线模式的故障诊断助手：未使用语言模型。请描述服务、时间和报错，我会按运行手册检查日志和数据库。",
    "en": "This is the incident-diagnosis assistant in offline mode: no language model is used. Describe the service, "
    "the time and the error, and the runbooks' checks will be run against logs and databases.",
}


def answer(component: Component, messages: Sequence[BaseMessage], language: str) -> str:
    """Return a bounded, valid answer of the component's contract."""
    question = next((text_of(m) for m in reversed(messages) if isinstance(m, HumanMessage)), "")
    if component is Component.INTENT_ROUTER:
        return json.dumps({"intent": route(question).value})
    if component is Component.SYSTEM_CHAT:
        return _CHAT[language_of(question) if question.strip() else ("zh" if language == "zh" else "en")]
    if component is Component.KNOWLEDGE_ANSWER:
        return json.dumps(knowledge_answer(messages), ensure_ascii=False)
    if component is Component.SEMANTIC_GUARD:
        return json.dumps({"verdict": "UNSUPPORTED", "unsupported_analysis_ids": []})
    return json.dumps({"conclusion": None, "analyses": [], "limitations": {"missing_info": [], "unverified": []}})


def route(question: str) -> Intent:
    """Route by plain rules: greetings are chat, how-to questions are knowledge, everything else is an incident."""
    text = question.strip()
    if not text or _GREETING.match(text) or _ABOUT_SELF.search(text):
        return Intent.SYSTEM_CHAT
    if _KNOWLEDGE.search(text) and not _DIAGNOSIS.search(text):
        return Intent.KNOWLEDGE_QUERY
    return Intent.DIAGNOSIS


def knowledge_answer(messages: Sequence[BaseMessage]) -> dict[str, Any]:
    """Answer with excerpts of the documents that the one lookup returned; `not_found` when it returned none."""
    for value in _json_objects(messages):
        documents = value.get("documents")
        if isinstance(documents, list) and documents:
            call_id = str(value.get("tool_call_id") or "lookup-1")
            items = [_item(document, call_id) for document in documents[:MAX_ITEMS] if isinstance(document, dict)]
            return {"items": [item for item in items if item["text"]], "not_found": False}
    return {"items": [], "not_found": True}


def _item(document: dict[str, Any], call_id: str) -> dict[str, Any]:
    title, content = str(document.get("title") or ""), str(document.get("content") or "")
    body = excerpt(" ".join(content.replace("`", " ").split()), MAX_ITEM_CHARS)
    text = f"{title}: {body}" if title and body else body or title
    return {"text": text, "tool_call_id": call_id, "document_ids": [str(document.get("document_id") or "")]}


def _json_objects(messages: Sequence[BaseMessage]) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    for message in reversed(messages):
        text = text_of(message)
        for match in re.finditer(r"\{\s*\"", text):
            try:
                value, _ = decoder.raw_decode(text, match.start())
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value
