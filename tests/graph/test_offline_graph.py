"""The shop incident through the real graph, tools, guards and release, with the offline model."""

from __future__ import annotations

import uuid
from pathlib import Path

from langgraph.checkpoint.memory import InMemorySaver

from graph.context import DiagnosisContext
from graph.diagnosis import build_diagnosis_graph, recursion_limit
from nodes.ports import ModelClient, Resources, RunRecord
from service.offline.client import OfflineClient
from service.store.clock import FixedClock
from service.store.memory import InMemoryJournal, InMemoryRunStore
from tests.data import ROOT
from tests.integration.offline_loop import build_tools
from tests.loop import CountingIds
from tools.canonical.memory import MemoryCanonicalStore
from tools.catalog import load_catalog


class OnlyOffline:
    """Gives the offline client, whatever the name."""

    def __init__(self) -> None:
        self._client = OfflineClient()

    def client(self, name: str | None) -> ModelClient:
        return self._client


async def run(question: str, index_dir: Path) -> tuple[RunRecord, InMemoryJournal]:
    catalog = load_catalog(ROOT / "examples" / "shop" / "superbiz.toml")
    assert isinstance(catalog.now, float)
    clock, runs, journal = FixedClock(catalog.now), InMemoryRunStore(), InMemoryJournal()
    resources = Resources(
        models=OnlyOffline(),
        tools={tool.name: tool for tool in build_tools(catalog, index_dir)},
        canonical=MemoryCanonicalStore(clock.now),
        runs=runs,
        journal=journal,
        clock=clock,
        ids=CountingIds(),
    )
    graph, settings = build_diagnosis_graph(resources, InMemorySaver()), DiagnosisContext()
    config = {"configurable": {"thread_id": "t"}, "recursion_limit": recursion_limit(settings.budget)}
    state = await graph.ainvoke({"query": question}, {**config, "run_id": uuid.uuid4()}, context=settings)  # type: ignore[typeddict-item]
    record = await runs.get(state["run"]["run_id"])
    assert record is not None
    return record, journal


async def test_the_example_ends_with_a_conclusion_after_the_stop_directive(tmp_path: Path) -> None:
    record, journal = await run("结算为什么失败？", tmp_path)
    assert record.release_outcome == "CONCLUSION"
    assert record.stop_reason == "INFORMATION_SATURATED"
    assert record.published_result is not None
    assert "连接池" in record.published_result["conclusion"]
    kinds = [finding["kind"] for finding in record.published_result["findings"]]
    assert kinds.count("OBSERVATION") == 3
    assert kinds.count("NEGATIVE_OBSERVATION") == 3
    assert any("未使用语言模型" in note for note in record.published_result["limitations"]["unverified"])
    events = {row.type.value: row.fields for row in await journal.trace(record.run_id)}
    assert events["SEMANTIC_GUARD"]["lexical"] is True
    assert events["RUN_ENDED"]["tokens_reconciled"] is True
    assert "TOOL_REQUEST_REJECTED" not in events
