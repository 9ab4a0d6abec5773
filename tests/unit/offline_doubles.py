"""Small stand-ins for the three tools and the harness loop: observation shapes and protocol as the spec writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from service.offline.planner import FinalText, plan

Reply = dict[str, Any]
NO_GAIN_THRESHOLD = 3


def tool_schema(name: str, description: str, fields: dict[str, Any]) -> dict[str, Any]:
    """An OpenAI-style tool whose envelope refers to its request by `$ref`, as pydantic writes it."""
    parameters = {
        "type": "object",
        "properties": {"previous_observation": {"type": "object"}, "input": {"$ref": "#/$defs/Request"}},
        "required": ["input"],
        "$defs": {"Request": {"type": "object", "properties": fields}},
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TEXT, NUMBER = {"type": "string"}, {"type": "integer", "maximum": 10080}
SEARCH = tool_schema("find_docs", "Searches runbooks.", {"query": TEXT, "top_k": NUMBER})


def logs_schema(*topics: str) -> dict[str, Any]:
    """The logs tool with topics `name: description`."""
    text = "Reads logs. Topics:\n" + "\n".join(f"- {topic}" for topic in topics)
    return tool_schema("read_logs", text, {"topic": TEXT, "query": TEXT, "lookback_minutes": NUMBER, "limit": NUMBER})


def sql_schema(*datasources: str) -> dict[str, Any]:
    """The database tool with datasources `name: description`."""
    text = "Runs SELECT. Datasources:\n" + "\n".join(f"- {item}" for item in datasources)
    return tool_schema("ask_db", text, {"datasource": TEXT, "sql": TEXT, "params": {"type": "array"}})


def found_logs(*messages: str, level: str = "ERROR") -> Reply:
    """A log result with these events."""
    events = [
        {"timestamp": f"2026-03-01T03:{i:02d}:00Z", "level": level, "message": message, "attributes": {}}
        for i, message in enumerate(messages)
    ]
    return {
        "evidence_status": "EVIDENCE_FOUND",
        "total": len(events),
        "events": events,
        "patterns": [],
        "truncated": False,
    }


def found_docs(*documents: tuple[str, str, str]) -> Reply:
    """A search result of (title, content, level)."""
    docs = [
        {"document_id": f"d{i}", "title": t, "source": f"{t}.md", "content": c, "relevance_level": level}
        for i, (t, c, level) in enumerate(documents)
    ]
    return {"evidence_status": "EVIDENCE_FOUND", "relevance_level": "HIGH", "documents": docs, "truncated": False}


def found_rows(columns: Sequence[str], *rows: Sequence[Any]) -> Reply:
    """A database result."""
    table = [list(row) for row in rows]
    return {"evidence_status": "EVIDENCE_FOUND", "columns": list(columns), "rows": table, "truncated": False}


NOTHING: Reply = {"evidence_status": "NO_EVIDENCE", "truncated": False}


@dataclass
class Session:
    """A conversation with the planner under the envelope protocol; `answer` maps (tool, input) to a result."""

    question: str
    tools: list[dict[str, Any]]
    answer: Callable[[str, dict[str, Any]], Reply]
    messages: list[BaseMessage] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    violations: int = 0
    stopped: bool = False

    def run(self) -> str:
        """Drive the planner to its draft; fail when it needs more than 24 turns."""
        self.messages = [SystemMessage("You diagnose incidents."), HumanMessage(self.question)]
        pending, count, done = "", 0, set[str]()
        for _ in range(24):
            action = plan(self.messages, self.tools)
            if isinstance(action, FinalText):
                return action.text
            assert not self.stopped, "asked for a tool after the stop directive"
            previous = action.args.get("previous_observation")
            self.calls.append({"id": action.id, "name": action.name, **action.args})
            if (previous or {}).get("tool_call_id", "") != pending:
                self.violations += 1
                reply: Reply = {"error_code": "INVALID_PROGRESS_PROTOCOL", "repair_required": True}
                reply |= {"expected_previous_tool_call_id": pending} if pending else {}
                self._append(action.id, action.name, action.args, reply)
                continue
            if previous:
                count = 0 if previous["information_gain"] == "GAINED" else count + 1
            reply = {"tool_call_id": action.id, **self._result(action.name, action.args["input"], done, count)}
            status = reply.get("evidence_status")
            pending = action.id if status == "EVIDENCE_FOUND" else ""
            count += status == "NO_EVIDENCE" or reply.get("error_code") == "DUPLICATE_SCOPE"
            if count >= NO_GAIN_THRESHOLD:
                self.stopped = True
                reply |= {"stop_required": True, "reason": "INFORMATION_SATURATED"}
            self._append(action.id, action.name, action.args, reply)
        raise AssertionError("no draft after 24 turns")

    def _result(self, name: str, request: dict[str, Any], done: set[str], count: int) -> Reply:
        key = json.dumps([name, request], sort_keys=True)
        if count >= NO_GAIN_THRESHOLD:
            return {}
        if key in done:
            return {"error_code": "DUPLICATE_SCOPE", "previous_observation_applied": True}
        done.add(key)
        return self.answer(name, request)

    def _append(self, call_id: str, name: str, args: dict[str, Any], reply: Reply) -> None:
        call = {"name": name, "args": args, "id": call_id, "type": "tool_call"}
        self.messages.append(AIMessage(content="", tool_calls=[call]))
        self.messages.append(ToolMessage(content=json.dumps(reply, ensure_ascii=False), tool_call_id=call_id))


def log_folder(topics: dict[str, list[Path]]) -> Callable[[str, dict[str, Any]], Reply]:
    """A naive log reader over real files: every line an event, newest last in the file; OR of AND of words."""
    lines = {topic: [line for path in paths for line in _read(path)] for topic, paths in topics.items()}

    def answer(name: str, request: dict[str, Any]) -> Reply:
        if "topic" not in request:
            return NOTHING
        hits = [event for event in lines[request["topic"]] if _matches(request["query"], event)]
        if not hits:
            return NOTHING
        groups: dict[str, list[dict[str, Any]]] = {}
        for event in hits:
            groups.setdefault(re.sub(r"\d+", "0", event["message"]), []).append(event)
        patterns = [
            {"template": key[:200], "count": len(g), "first": g[0]["timestamp"], "last": g[-1]["timestamp"]}
            for key, g in sorted(groups.items(), key=lambda item: -len(item[1]))[:12]
        ]
        return {
            "evidence_status": "EVIDENCE_FOUND",
            "total": len(hits),
            "events": hits[::-1][:20],
            "patterns": patterns,
            "truncated": len(hits) > 20,
        }

    return answer


def _read(path: Path) -> list[dict[str, Any]]:
    events = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.strip():
            continue
        event: dict[str, Any] = {"timestamp": "", "level": "", "message": line[:500]}
        if line.startswith("{"):
            try:
                value = json.loads(line)
            except ValueError:
                value = {}
            event |= {key: value[key] for key in ("timestamp", "level", "message") if isinstance(value.get(key), str)}
        events.append(event)
    return events


def _matches(query: str, event: dict[str, Any]) -> bool:
    text = f"{event['level']} {event['message']}".lower()
    if not query:
        return True
    return any(
        all(word.strip().strip('"').lower().removeprefix("level:") in text for word in part.split(" AND "))
        for part in query.split(" OR ")
    )
