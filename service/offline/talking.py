"""What the offline model says of the system: what it can do, and what the catalogue names (R97). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from service.offline.terms import language_of

MAX_LISTED = 30
"""Names told of one kind; the rest is counted."""
MAX_DESCRIPTION_CHARS = 120

_TEXTS = {
    "zh": {
        "hello": "我是故障排查助手（离线模式，未使用语言模型）。",
        "can": (
            "我能做三件事：\n"
            "- 排查故障：请描述现象、服务、时间和报错，我按运行手册检查日志和数据库，只给出有证据支持的结论。\n"
            "- 查知识库：问“怎么处理…”“…是什么意思”，我摘录相关文档并注明出处。\n"
            "- 说明能查什么：日志主题、数据源、文档。"
        ),
        "topics": "日志主题（{count}）：",
        "datasources": "数据源（{count}）：",
        "documents": "知识库文档（{count}）：",
        "tables": "；表：{names}",
        "none": "没有配置{kind}。",
        "kinds": {"topics": "日志主题", "datasources": "数据源", "documents": "知识库文档"},
        "more": "……等，共 {count} 项",
        "summary": "目前可查：{topics} 个日志主题、{datasources} 个数据源、{documents} 篇知识库文档。",
        "previous": "本会话上一次排查的问题是：{query}",
    },
    "en": {
        "hello": "This is the incident assistant in offline mode; no language model is used.",
        "can": (
            "It does three things:\n"
            "- investigate: describe the symptom with service, time and error, and the runbooks' checks are run "
            "against logs and databases; only what the evidence carries is concluded.\n"
            "- knowledge: ask how something is done or what it means, and the fitting passages are quoted "
            "with their sources.\n"
            "- tell what it has access to: log topics, datasources, documents."
        ),
        "topics": "Log topics ({count}):",
        "datasources": "Datasources ({count}):",
        "documents": "Knowledge documents ({count}):",
        "tables": "; tables: {names}",
        "none": "No {kind} are configured.",
        "kinds": {"topics": "log topics", "datasources": "datasources", "documents": "knowledge documents"},
        "more": "... {count} in all",
        "summary": (
            "It has access to {topics} log topics, {datasources} datasources and {documents} knowledge documents."
        ),
        "previous": "The last question investigated in this session: {query}",
    },
}
_ASKED = {
    "topics": r"topic|\blogs?\b|主题|日志",
    "datasources": r"datasource|database|\btables?\b|\bdata\b|\bsources?\b|数据源|数据库|数据表|哪些表|\bdb\b",
    "documents": r"document|runbook|playbook|manual|knowledge|文档|手册|知识|预案|资料",
}
_LAST = re.compile(
    r"\blast (?:time|question|turn)\b|\bprevious\b|\bremember\b|上一?(?:次|轮|个问题)|刚才|之前|记得", re.IGNORECASE
)


def talk(question: str, view: Mapping[str, Any], previous: Mapping[str, Any], language: str) -> str:
    """Answer from the view: the kinds that were asked for, listed; else what the system can do and how much there is."""
    texts: dict[str, Any] = _TEXTS[language_of(question) if question.strip() else ("zh" if language == "zh" else "en")]
    kinds = [kind for kind, words in _ASKED.items() if re.search(words, question, re.IGNORECASE)]
    if kinds:
        return "\n".join(line for kind in kinds for line in _listed(kind, view, texts))
    counts = {kind: _count(kind, view) for kind in _ASKED}
    lines = [texts["hello"], texts["can"], texts["summary"].format(**counts)]
    if previous.get("query") and _LAST.search(question):
        lines.append(texts["previous"].format(query=str(previous["query"])[:200]))
    return "\n".join(lines)


def _listed(kind: str, view: Mapping[str, Any], texts: Mapping[str, Any]) -> Iterator[str]:
    count, items = _count(kind, view), list(_items(kind, view, texts))
    if not count:
        yield texts["none"].format(kind=texts["kinds"][kind])
        return
    yield texts[kind].format(count=count)
    yield from (f"- {item}" for item in items[:MAX_LISTED])
    if count > min(len(items), MAX_LISTED):
        yield texts["more"].format(count=count)


def _items(kind: str, view: Mapping[str, Any], texts: Mapping[str, Any]) -> Iterator[str]:
    for each in _entries(kind, view):
        if kind == "documents":
            yield from (f"{title} [{each.get('knowledge')}]" for title in each.get("titles") or ())
            continue
        description = " ".join(str(each.get("description") or "").split())[:MAX_DESCRIPTION_CHARS]
        tables = each.get("tables")
        shown = texts["tables"].format(names=", ".join(map(str, list(tables)[:MAX_LISTED]))) if tables else ""
        yield f"{each.get('name')}{f': {description}' if description else ''}{shown}"


def _count(kind: str, view: Mapping[str, Any]) -> int:
    entries = _entries(kind, view)
    return sum(int(each.get("total") or 0) for each in entries) if kind == "documents" else len(entries)


def _entries(kind: str, view: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found = view.get(kind)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []
