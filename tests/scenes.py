"""A small incident written into a folder: a catalogue, a log file, runbooks, and recorded answers about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CATALOG = """
now = "2026-03-01T03:10:00Z"
[[topic]]
name = "app"
description = "the shop's services"
path = "logs/app.log"
[[knowledge]]
name = "runbooks"
path = "runbooks"
[[datasource]]
name = "shop"
path = "shop.db"
tables.orders = ["id", "status"]
"""
LOG = "\n".join(
    [
        "2026-03-01T03:00:01Z INFO order-service started",
        "2026-03-01T03:05:00Z ERROR order-service connection timeout to redis-01",
        "2026-03-01T03:05:30Z ERROR order-service pool exhausted",
        "2026-03-01T03:06:00Z WARN order-service retrying",
    ]
)
RUNBOOK = "# Redis timeouts\n\nWhen order-service reports a connection timeout, check redis.\n"


def write_scene(folder: Path) -> Path:
    """Write the incident; return its catalogue."""
    import sqlite3

    for name, text in (("superbiz.toml", CATALOG), ("logs/app.log", LOG + "\n"), ("runbooks/redis.md", RUNBOOK)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT)")
        database.execute("INSERT INTO orders (status) VALUES ('FAILED')")
    database.close()
    return folder / "superbiz.toml"


def log_call(call_id: str, query: str, previous: tuple[str, str] | None = None) -> dict[str, Any]:
    """A recorded answer that asks for logs."""
    arguments: dict[str, Any] = {"input": {"topic": "app", "query": query, "lookback_minutes": 60}}
    if previous:
        arguments["previous_observation"] = {"tool_call_id": previous[0], "information_gain": previous[1]}
    return {"tool_calls": [{"id": call_id, "name": "query_logs", "arguments": arguments}], "usage": [100, 10]}


def conclusion(*call_ids: str) -> dict[str, Any]:
    """A recorded answer that is a Draft with a conclusion."""
    body = {
        "conclusion": {"statement": "order-service cannot reach redis-01.", "supporting_analysis_ids": ["A1"]},
        "analyses": [
            {
                "analysis_id": "A1",
                "kind": "OBSERVATION",
                "statement": "order-service logged `connection timeout to redis-01`.",
                "tool_call_ids": list(call_ids),
            }
        ],
        "limitations": {"missing_info": [], "unverified": []},
    }
    return {"text": json.dumps(body), "usage": [200, 50]}


def write_answers(path: Path, agent: list[dict[str, Any]], **others: dict[str, Any]) -> str:
    """Write recorded answers of the Diagnosis Agent and a SUPPORTED verdict; return the model's name."""
    answers = {f"DIAGNOSIS_AGENT/{round_}": answer for round_, answer in enumerate(agent, start=1)}
    supported = {"text": '{"verdict": "SUPPORTED", "unsupported_analysis_ids": []}', "usage": [50, 5]}
    answers |= {"SEMANTIC_GUARD/1": supported, **others}
    path.write_text(json.dumps({"answers": answers}), encoding="utf-8")
    return f"scripted:{path}"
