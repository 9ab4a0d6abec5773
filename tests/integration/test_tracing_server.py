"""LangGraph Server with tracing on: what a client sends and what the run holds stays."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from langgraph_sdk import get_client

from tests.langgraph_dev import langgraph_dev
from tests.scenes import conclusion, log_call, write_answers, write_scene
from tests.trace_endpoint import trace_endpoint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("langgraph_api") is None, reason="the extra `server` is not installed"),
]


async def test_r104_on_the_server_content_stays(tmp_path: Path) -> None:
    script = [log_call("c1", "timeout"), conclusion("c1")]
    with trace_endpoint() as endpoint:
        variables = {
            "SUPERBIZ_CATALOG": str(write_scene(tmp_path)),
            "SUPERBIZ_HOME": str(tmp_path / "home"),
            "SUPERBIZ_LANGUAGE": "en",
            "SUPERBIZ_MODEL": write_answers(tmp_path / "answers.json", script),
            "LANGSMITH_TRACING": "true",
            "LANGCHAIN_TRACING_V2": "true",
            "LANGSMITH_ENDPOINT": endpoint.url,
            "LANGSMITH_API_KEY": "key-of-the-endpoint",
        }
        with langgraph_dev(tmp_path, variables) as url:
            async with get_client(url=url) as client:
                thread = await client.threads.create(metadata={"note": "MARKTHREAD"})
                state = await client.runs.wait(
                    thread["thread_id"],
                    "diagnosis",
                    input={"query": "Why? MARKQUESTION", "session_id": "MARKSESSION"},
                    metadata={"note": "MARKNOTE"},
                    config={"tags": ["MARKTAG"], "configurable": {"mine": "MARKCONFIG"}},
                )
                assert isinstance(state, dict)
                assert state["outcome"]["release_outcome"] == "CONCLUSION"
                endpoint.wait_for_the_end_of("diagnosis")
    (root,) = endpoint.by_name("diagnosis")
    assert root["end_time"] > root["start_time"]
    assert root["extra"]["metadata"]["thread_id"] == thread["thread_id"]
    assert endpoint.by_name("release")
    assert "MARK" not in endpoint.text
    assert "redis-01" not in endpoint.text
