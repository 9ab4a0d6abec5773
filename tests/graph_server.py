"""`langgraph dev` over a small incident, with a scripted model by default and a slow one on request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodes.ports import RunRecord
from service.home import open_canonical, open_stores
from service.replay.bundle import Bundle
from service.replay.export import export_run
from service.settings import Settings
from tests.langgraph_dev import langgraph_dev
from tests.scenes import conclusion, log_call, write_answers, write_scene
from tests.slow_model import SlowModel, slow_model
from tests.stub_model_server import call, completion
from tools.contract import CanonicalRecord

ROUTED = {"text": '{"intent": "DIAGNOSIS"}', "usage": [20, 5]}
SCRIPT = [log_call("c1", "timeout"), log_call("c2", "pool", ("c1", "GAINED")), conclusion("c1")]


@dataclass(frozen=True)
class GraphServer:
    """Where it listens, and what it wrote down."""

    url: str
    settings: Settings
    model: SlowModel

    async def record(self, run_id: str) -> RunRecord:
        async with open_stores(self.settings) as (runs, _):
            record = await runs.get(run_id)
        assert record is not None
        return record

    async def bundle(self, run_id: str) -> Bundle:
        async with open_stores(self.settings) as (runs, journal):
            record = await runs.get(run_id)
            assert record is not None
            return await export_run(record, journal)

    async def newest(self, count: int) -> tuple[RunRecord, ...]:
        async with open_stores(self.settings) as (runs, _):
            return await runs.runs(count)

    async def trace(self, run_id: str) -> list[tuple[str, dict[str, Any]]]:
        async with open_stores(self.settings) as (_, journal):
            return [(row.type.value, dict(row.fields)) for row in await journal.trace(run_id)]

    async def canonical(self, run_id: str, call_id: str) -> CanonicalRecord | None:
        async with open_canonical(self.settings) as store:
            return await store.get(run_id, call_id)


@contextmanager
def graph_server(folder: Path, tokens: str = "") -> Iterator[GraphServer]:
    """Start it; with `tokens` (NAME:TOKEN pairs) only their holders may call. Collection stops after 1 without gain.

    `context={"model": "openai:slow-SECONDS"}` of a run makes the same model slow.
    """
    catalog, home = write_scene(folder), folder / "home"
    with slow_model(_completions()) as model:
        variables = {
            "SUPERBIZ_CATALOG": str(catalog),
            "SUPERBIZ_HOME": str(home),
            "SUPERBIZ_LANGUAGE": "en",
            "SUPERBIZ_NO_GAIN_THRESHOLD": "1",
            "SUPERBIZ_MODEL": write_answers(folder / "answers.json", SCRIPT, **{"INTENT_ROUTER/1": ROUTED}),
            "SUPERBIZ_BASE_URL": model.url,
            "SUPERBIZ_API_KEY": "any-word",
            **({"SUPERBIZ_API_TOKENS": tokens} if tokens else {}),
        }
        with langgraph_dev(folder, variables) as url:
            yield GraphServer(url, Settings(home=home), model)


def _completions() -> list[dict[str, Any]]:
    return [
        completion(None, [call(c["id"], c["name"], json.dumps(c["arguments"])) for c in answer["tool_calls"]])
        if "tool_calls" in answer
        else completion(answer["text"])
        for answer in SCRIPT
    ]
