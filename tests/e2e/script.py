"""A scripted model for the example shop: it counts tokens, repeats a scope, finds nothing once, and once tells no usage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCRIPTED_QUESTION = "支付服务的连接池看起来不太对劲，是什么原因？"


def _call(call_id: str, name: str, asked: dict[str, Any], usage: list[int] | None, before: str = "") -> dict[str, Any]:
    arguments: dict[str, Any] = {"input": asked}
    if before:
        previous, gain = before.split()
        arguments["previous_observation"] = {"tool_call_id": previous, "information_gain": gain}
    return {"tool_calls": [{"id": call_id, "name": name, "arguments": arguments}], "usage": usage}


def _logs(query: str) -> dict[str, Any]:
    return {"topic": "payment", "query": query, "lookback_minutes": 180, "limit": 5}


def _draft() -> str:
    analyses = [
        ("A1", "OBSERVATION", "The pool reported `PaymentPool`.", ["s1"]),
        ("A2", "OBSERVATION", "There are orders with the status `PAYMENT_PENDING`.", ["s3"]),
        ("A3", "NEGATIVE_OBSERVATION", "Nothing says `no-such-word-anywhere`.", ["s4"]),
    ]
    return json.dumps(
        {
            "conclusion": {"statement": "The pool of payment-service ran out.", "supporting_analysis_ids": ["A1"]},
            "analyses": [
                {"analysis_id": each, "kind": kind, "statement": statement, "tool_call_ids": calls}
                for each, kind, statement, calls in analyses
            ],
            "limitations": {"missing_info": [], "unverified": []},
        }
    )


def write_script(folder: Path, *, gaps: bool = False) -> str:
    """Write the answers; return the model's name. With `gaps` one answer comes without usage (R116)."""
    pending = {"datasource": "shop", "sql": "SELECT status, COUNT(*) AS n FROM orders GROUP BY status", "params": []}
    answers = {
        "INTENT_ROUTER/1": {"text": "no JSON", "usage": [40, 3]},
        "INTENT_ROUTER/2": {"text": '{"intent": "DIAGNOSIS"}', "usage": [41, 4]},
        "DIAGNOSIS_AGENT/1": _call("s1", "query_logs", _logs("PaymentPool"), [100, 10]),
        "DIAGNOSIS_AGENT/2": _call("s2", "query_logs", _logs("PaymentPool"), None if gaps else [110, 11], "s1 GAINED"),
        "DIAGNOSIS_AGENT/3": _call("s3", "query_mysql", pending, [120, 12]),
        "DIAGNOSIS_AGENT/4": _call("s4", "query_logs", _logs("no-such-word-anywhere"), [130, 13], "s3 GAINED"),
        "DIAGNOSIS_AGENT/5": {"text": _draft(), "usage": [200, 50]},
        "SEMANTIC_GUARD/1": {"text": '{"verdict": "SUPPORTED", "unsupported_analysis_ids": []}', "usage": [60, 6]},
    }
    path = folder / "script.json"
    path.write_text(json.dumps({"answers": answers}, ensure_ascii=False), encoding="utf-8")
    return f"scripted:{path}"
