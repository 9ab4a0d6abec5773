from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.data import data_dir
from tools.catalog import Catalog, build_catalog, load_catalog
from tools.contract import EvidenceStatus, RelevanceLevel, ToolErrorCode
from tools.evidence_tool import CallContext, ToolFailure, ToolOutcome
from tools.rag import keeper as keeper_module
from tools.rag.backend_fts import FtsBackend
from tools.rag.index import IndexReport, index_catalog
from tools.rag.keeper import REFRESH_SECONDS, IndexKeeper
from tools.rag.request import RagRequest
from tools.rag.tool import RagTool, build_rag_tool

RUNBOOK = """---
title: 订单服务 5xx 突增
---
# 订单服务 5xx 突增

数据库连接池耗尽时, order-service 返回 HTTP 500.

```logs
topic: application-logs
query: "HikariPool"
```

```mysql
datasource: orders
SELECT status, count(*) FROM orders GROUP BY status
```
"""


def make_catalog(base: Path, *names: str, **entry: Any) -> Catalog:
    return build_catalog({"knowledge": [{"name": name, "path": name, **entry} for name in names]}, base)


def context(seconds: float = 5.0) -> CallContext:
    return CallContext(now=0.0, at_given=False, deadline_seconds=seconds)


async def run(tool: RagTool, query: str, top_k: int = 3) -> ToolOutcome:
    return await tool.run(RagRequest(query=query, top_k=top_k), context())


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "runbooks").mkdir()
    (tmp_path / "runbooks" / "orders-5xx.md").write_text(RUNBOOK)
    (tmp_path / "runbooks" / "disk.md").write_text("# Disk full\n\nRotate the logs when the disk fills up.")
    (tmp_path / "runbooks" / "redis.md").write_text("# Redis slow\n\nLook at slowlog when redis latency is high.")
    return tmp_path


def built(base: Path, *names: str, **entry: Any) -> RagTool:
    tool = build_rag_tool(make_catalog(base, *names, **entry), base / "index")
    assert tool is not None
    return tool


def test_no_knowledge_no_tool(tmp_path: Path) -> None:
    assert build_rag_tool(make_catalog(tmp_path), tmp_path / "index") is None


async def test_first_use_indexes_and_finds_the_runbook_with_its_checks(shop: Path) -> None:
    tool = built(shop, "runbooks")
    assert not (shop / "index").exists(), "building touches nothing"
    outcome = await run(tool, "订单服务 5xx 突增, 为什么?")
    assert outcome.evidence_status is EvidenceStatus.EVIDENCE_FOUND
    assert outcome.relevance_level is RelevanceLevel.HIGH
    (document,) = outcome.agent_result["documents"]
    assert document["document_id"] == "runbooks/orders-5xx.md#start"
    assert document["source"] == "orders-5xx.md"
    assert "```logs\ntopic: application-logs" in document["content"]
    assert "```mysql\ndatasource: orders" in document["content"]
    assert str(shop) not in json.dumps([outcome.raw_response, outcome.agent_result])
    assert set(outcome.raw_response) == {"documents", "relevance_level", "total"}


async def test_r54_nothing_relevant_is_no_evidence(shop: Path) -> None:
    outcome = await run(built(shop, "runbooks"), "how to bake sourdough bread at home")
    assert outcome.evidence_status is EvidenceStatus.NO_EVIDENCE
    assert outcome.relevance_level is None
    assert (outcome.returned_count, outcome.agent_result["documents"]) == (0, [])


async def test_r54_thresholds_come_from_the_catalogue(shop: Path) -> None:
    query = "redis latency of the payment gateway"
    levels = [
        (await run(built(shop, "runbooks", high=high, reference=reference), query)).relevance_level
        for high, reference in ((0.1, 0.1), (1.0, 0.1), (1.0, 1.0))
    ]
    assert levels == [RelevanceLevel.HIGH, RelevanceLevel.REFERENCE, None]


async def test_top_k_bounds_the_documents(shop: Path) -> None:
    tool = built(shop, "runbooks", reference=0.0, high=0.9)
    for top_k in (1, 2, 3):
        outcome = await run(tool, "disk redis 订单", top_k)
        assert outcome.returned_count == top_k
        assert outcome.agent_result["total"] == 3


async def test_several_folders_are_searched(shop: Path) -> None:
    (shop / "guides").mkdir()
    (shop / "guides" / "disk.md").write_text("# Disk full\n\nGrow the volume when the disk fills up.")
    outcome = await run(built(shop, "runbooks", "guides"), "disk full")
    assert {document["document_id"] for document in outcome.agent_result["documents"]} == {
        "runbooks/disk.md#start",
        "guides/disk.md#start",
    }


async def test_a_missing_folder_is_an_error_not_no_evidence(shop: Path) -> None:
    with pytest.raises(ToolFailure) as failure:
        await run(built(shop, "absent"), "disk full")
    assert failure.value.code is ToolErrorCode.BACKEND_UNAVAILABLE
    tool = built(shop, "runbooks", "absent")
    assert (await run(tool, "disk full")).returned_count == 1
    with pytest.raises(ToolFailure) as failure:
        await run(tool, "sourdough bread")
    assert failure.value.code is ToolErrorCode.PARTIAL_RESULT


async def test_an_index_made_by_the_command_is_used(shop: Path) -> None:
    catalog = make_catalog(shop, "runbooks")
    assert index_catalog(catalog, shop / "index").added == 3
    fresh = IndexKeeper(catalog, shop / "index")
    report = fresh.refresh()
    assert report is not None
    assert (await asyncio.wrap_future(report)).unchanged == 3


async def test_changes_are_found_after_the_refresh_interval(shop: Path) -> None:
    now = [0.0]
    catalog = make_catalog(shop, "runbooks")
    keeper = IndexKeeper(catalog, shop / "index", clock=lambda: now[0])
    tool = RagTool(FtsBackend(catalog, shop / "index", keeper), "runbooks")
    assert (await run(tool, "kafka lag")).returned_count == 0
    (shop / "runbooks" / "kafka.md").write_text("# Kafka lag\n\nConsumers fall behind.")
    (shop / "runbooks" / "disk.md").unlink()
    assert (await run(tool, "kafka lag")).returned_count == 0
    now[0] = REFRESH_SECONDS + 1
    refreshing = keeper.refresh()
    assert refreshing is not None
    await asyncio.wrap_future(refreshing)
    assert (await run(tool, "kafka lag")).returned_count == 1
    assert (await run(tool, "disk full")).returned_count == 0


async def test_a_long_first_indexing_is_a_timeout_and_goes_on(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def slow(catalog: Catalog, index_dir: Path) -> IndexReport:
        go_on.wait(30)
        return index_catalog(catalog, index_dir)

    monkeypatch.setattr(keeper_module, "index_catalog", slow)
    tool = built(shop, "runbooks")
    started = time.monotonic()
    with pytest.raises(ToolFailure) as failure:
        await tool.run(RagRequest(query="disk full"), context(0.6))
    assert failure.value.code is ToolErrorCode.TOOL_TIMEOUT
    assert time.monotonic() - started < 2
    go_on.set()
    assert (await run(tool, "disk full")).returned_count == 1


async def test_searches_do_not_block_the_loop_and_run_beside_each_other(shop: Path) -> None:
    tool = built(shop, "runbooks")
    outcomes = await asyncio.gather(*(run(tool, "disk full") for _ in range(20)))
    assert {outcome.returned_count for outcome in outcomes} == {1}


async def test_a_damaged_index_is_unavailable_and_heals(shop: Path) -> None:
    catalog = make_catalog(shop, "runbooks")
    index_catalog(catalog, shop / "index")
    (index_file,) = (shop / "index").glob("*.db")
    keeper = IndexKeeper(catalog, shop / "index", clock=lambda: 0.0)
    tool = RagTool(FtsBackend(catalog, shop / "index", keeper), "runbooks")
    await run(tool, "disk full")
    index_file.write_bytes(b"garbage " * 1000)
    with pytest.raises(ToolFailure) as failure:
        await run(tool, "disk full")
    assert failure.value.code is ToolErrorCode.BACKEND_UNAVAILABLE
    assert (await run(built(shop, "runbooks"), "disk full")).returned_count == 1


async def test_the_ten_incident_questions_are_answered_sensibly(tmp_path: Path) -> None:
    incidents = data_dir() / "incidents"
    expected = json.loads((incidents / "expected.json").read_text())
    levels: dict[str, RelevanceLevel | None] = {}
    for name, case in expected.items():
        tool = build_rag_tool(load_catalog(incidents / name / "superbiz.toml"), tmp_path / "index")
        assert tool is not None
        request = RagRequest(query=case["question"])
        outcome = await tool.run(request, context(30.0))
        observation = tool.observe("call-1", tool.scope(request), outcome.agent_result)
        levels[name] = outcome.relevance_level
        print(name, outcome.relevance_level, [entry["document_id"] for entry in observation["documents"]])
        if name == "55_kafka_runbook":
            assert "kafka_lag_instructions.md" in observation["documents"][0]["source"]
            assert "invoices-app" in observation["documents"][0]["content"]
    assert len(levels) == 10
    assert levels["55_kafka_runbook"] is RelevanceLevel.HIGH
