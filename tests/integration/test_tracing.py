"""LangSmith tracing of real runs against a recording endpoint: content stays, and a bad endpoint harms nothing."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import langsmith
import pytest
from langsmith import run_trees
from langsmith.utils import get_env_var

from graph.diagnosis import build_diagnosis_graph
from nodes.prompts import prompt
from service.app import App, open_app
from service.diagnosis import diagnose
from service.models.choice import ConfiguredModels
from service.offline.client import OfflineClient
from service.replay.engine import replay, replay_with
from service.replay.text import read_bundle
from service.settings import Settings, load_settings
from service.tracing import WithholdingClient, start_tracing
from tests.data import ROOT
from tests.scenes import conclusion, log_call, write_answers, write_scene
from tests.stub_model_server import answer, call, stub_server
from tests.trace_endpoint import TraceEndpoint, trace_endpoint

QUESTION, LOGGED, ASKED, SAID = "MARKQUESTION", "MARKLOGGED", "MARKASKED", "MARKSAID"
FAULT, SESSION, OUTSIDE = "MARKFAULT", "MARKSESSION", "MARKOUTSIDE"
VARIABLES = ("LANGSMITH_TRACING", "LANGSMITH_ENDPOINT", "LANGSMITH_API_KEY", "LANGSMITH_PROJECT", "LANGSMITH_NOTE")


@pytest.fixture(autouse=True)
def _untouched_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*VARIABLES, "LANGCHAIN_TRACING_V2"):
        monkeypatch.delenv(name, raising=False)
    get_env_var.cache_clear()
    level = logging.getLogger("langsmith").level
    yield
    client = run_trees._CLIENT
    if client is not None:
        client.close(timeout=0)
    langsmith.configure(client=None, enabled=None)
    logging.getLogger("langsmith").setLevel(level)
    get_env_var.cache_clear()


def ask_for_tracing(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    values = ("true", url, "key-of-the-endpoint", "shop", OUTSIDE)
    for name, value in zip(VARIABLES, values, strict=True):
        monkeypatch.setenv(name, value)
    get_env_var.cache_clear()


def scene(folder: Path, **more: Any) -> Settings:
    catalog = write_scene(folder)
    log = folder / "logs/app.log"
    log.write_text(log.read_text().replace("connection timeout", f"{LOGGED} {ASKED} connection timeout"))
    return load_settings(catalog=catalog, home=folder / "home", language="en", **more)


def delivered(endpoint: TraceEndpoint) -> str:
    client = run_trees._CLIENT
    assert isinstance(client, WithholdingClient)
    client.flush(timeout=20)
    assert endpoint.runs, "nothing arrived: the test would prove nothing"
    return endpoint.text


async def one_run(app: App) -> None:
    config: Any = {
        "configurable": {"thread_id": f"{SESSION}-thread"},
        "run_name": f"{OUTSIDE} run",
        "tags": [OUTSIDE],
        "metadata": {"note": OUTSIDE, "ls_model_name": f"{OUTSIDE} model"},
        "recursion_limit": 100,
    }
    asked: Any = {"query": f"Why do orders fail? {QUESTION}", "session_id": SESSION}
    await app.graph.ainvoke(asked, config, context=app.settings.context())


async def one_live_run(settings: Settings) -> None:
    arguments = json.dumps(log_call("c1", f"timeout {ASKED}")["tool_calls"][0]["arguments"])
    text = conclusion("c1")["text"].replace("order-service cannot", f"{SAID} cannot")
    script = [
        answer(calls=[call("c1", "query_logs", arguments)]),
        answer(text),
        answer('{"verdict": "SUPPORTED", "unsupported_analysis_ids": []}'),
    ]
    async with stub_server(*script) as server:
        live = settings.model_copy(update={"model": "openai:stub", "base_url": server.url})
        async with open_app(live, env={"OPENAI_API_KEY": "key-of-the-provider"}) as app:
            await one_run(app)
        sent = json.dumps(server.requests)
    # The markers did go where they belong: to the model.
    assert all(marker in sent for marker in (QUESTION, ASKED, LOGGED))


@pytest.mark.parametrize("compression", [True, False])
async def test_r104_content_stays_and_names_times_counts_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: bool
) -> None:
    settings = scene(tmp_path)
    with trace_endpoint(compression=compression) as endpoint:
        ask_for_tracing(monkeypatch, endpoint.url)
        await one_live_run(settings)
        text = delivered(endpoint)
    assert ("zstd" in endpoint.encodings) is compression
    assert not [marker for marker in (QUESTION, LOGGED, ASKED, SAID, SESSION, OUTSIDE) if marker in text]
    instructions = prompt("diagnosis", "en").splitlines()
    assert not [line for line in instructions if len(line) > 20 and line in text]
    assert "key-of-the-provider" not in text
    assert "127.0.0.1" not in text
    (root,) = [run for run in endpoint.runs.values() if not run.get("parent_run_id")]
    assert root["session_name"] == "shop"
    assert root["start_time"] < root["end_time"]
    (tool,) = endpoint.by_name("execute_tool")
    assert tool["inputs"]["position"] == {"turn": 1, "step": 4}
    models = [run for run in endpoint.runs.values() if run["run_type"] == "llm"]
    assert len(models) == 3
    tokens = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    assert all(run["extra"]["metadata"]["usage_metadata"] == tokens for run in models)
    (route,) = endpoint.by_name("after_dedup_scope")
    assert route["outputs"] == {"output": "execute_tool"}


async def test_an_operator_lets_out_field_by_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = scene(tmp_path, trace_fields="query,step,model_answers")
    with trace_endpoint() as endpoint:
        ask_for_tracing(monkeypatch, endpoint.url)
        await one_live_run(settings)
        text = delivered(endpoint)
    assert {QUESTION, ASKED, SAID} <= set(text.replace("\\", " ").replace('"', " ").replace("}", " ").split())
    assert not [marker for marker in (SESSION, OUTSIDE) if marker in text]
    (tool,) = endpoint.by_name("execute_tool")
    assert tool["outputs"]["step"].startswith("Ran query_logs")
    assert set(tool["inputs"]) == {"query", "step", "position", "run"}


class BrokenRuns:
    """A run store whose every use fails with a text that must not leave."""

    def __getattr__(self, name: str) -> Any:
        async def broken(*_: Any, **__: Any) -> Any:
            raise ConnectionResetError(f"{FAULT} password=hunter2")

        return broken


async def test_r105_an_exceptions_text_stays_and_its_type_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trace_endpoint() as endpoint:
        ask_for_tracing(monkeypatch, endpoint.url)
        async with open_app(scene(tmp_path)) as app:
            broken: Any = BrokenRuns()
            graph = build_diagnosis_graph(replace(app.resources, runs=broken))
            with pytest.raises(ConnectionResetError):
                await graph.ainvoke({"query": QUESTION}, context=app.settings.context())
        text = delivered(endpoint)
    assert FAULT not in text
    assert "Traceback" not in text
    (start,) = endpoint.by_name("start_run")
    assert start["error"] == "ConnectionResetError"


async def test_without_the_variable_nothing_is_sent_or_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with trace_endpoint() as endpoint:
        ask_for_tracing(monkeypatch, endpoint.url)
        monkeypatch.setenv("LANGSMITH_TRACING", "false")
        get_env_var.cache_clear()
        model = write_answers(tmp_path / "answers.json", [log_call("c1", "timeout"), conclusion("c1")])
        async with open_app(scene(tmp_path, model=model)) as app:
            assert (await diagnose(app, "Why do orders fail?", at="2026-03-01T03:10:00Z")).status == "SUCCESS"
    assert run_trees._CLIENT is None
    assert endpoint.received == []


@pytest.mark.parametrize("trouble", ["refused", "silent"])
async def test_a_bad_endpoint_neither_harms_nor_delays_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    monkeypatch.setattr("service.tracing.READ_SECONDS", 1.0)
    model = write_answers(tmp_path / "answers.json", [log_call("c1", "timeout"), conclusion("c1")])
    with silent_endpoint() if trouble == "silent" else refused_endpoint() as url:
        ask_for_tracing(monkeypatch, url)
        async with open_app(scene(tmp_path, model=model)) as app:
            assert (await diagnose(app, "Why do orders fail?", at="2026-03-01T03:10:00Z")).status == "SUCCESS"
        client = run_trees._CLIENT
        assert client is not None
        begun = time.monotonic()
        client.flush(timeout=30)
        assert time.monotonic() - begun < 15, "an exit would have waited"
    said = [record.getMessage() for record in caplog.records if record.name == "superbiz.tracing"]
    assert said
    assert all(line.startswith("part of a trace is lost: ") and url not in line for line in said)
    assert not [record for record in caplog.records if record.name.startswith("langsmith")]


@contextmanager
def silent_endpoint() -> Iterator[str]:
    """Takes connections and never answers."""
    import socket

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def refused_endpoint() -> Iterator[str]:
    import socket

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def test_where_no_client_can_be_made_tracing_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    ask_for_tracing(monkeypatch, "http://127.0.0.1:1")
    monkeypatch.setenv("LANGSMITH_RUNS_ENDPOINTS", '{"http://127.0.0.1:2": "key"}')
    start_tracing(())
    assert run_trees._CLIENT is None
    assert not langsmith.utils.tracing_is_enabled()


@pytest.mark.parametrize("with_model", [False, True])
async def test_r104_a_replay_sends_nothing(monkeypatch: pytest.MonkeyPatch, with_model: bool) -> None:
    bundle = read_bundle((ROOT / "tests/recordings/shop-slow-en.json").read_bytes())
    with trace_endpoint() as endpoint:
        ask_for_tracing(monkeypatch, endpoint.url)
        if with_model:
            models = ConfiguredModels(load_settings(model="offline"), {}, OfflineClient())
            assert (await replay_with(bundle, models)).outcome
        else:
            assert (await replay(bundle)).bundle
        # No tracer has so much as asked for a client.
        assert run_trees._CLIENT is None
        assert not endpoint.received
