"""What every knowledge backend promises (R54, R55, R129)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rag_backends import BACKENDS, Documents
from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.rag import observation
from tools.rag.backend import RagBackend
from tools.rag.request import RagRequest
from tools.rag.scope import project_scope

DOCUMENTS = {
    "redis.md": "# Redis latency\n\nRedis latency is high: look at slowlog. password: hunter2secret",
    "orders.md": "# 订单服务\n\n订单服务 数据库连接池耗尽",
    "disk.md": "# Disk full\n\nDisk full: rotate logs",
    "kafka.md": "# Kafka lag\n\nKafka consumer lag grows: add a consumer",
    "kafka-broker.md": "# Kafka broker\n\nKafka broker lag: restart the broker",
    "kafka-disk.md": "# Kafka disk\n\nKafka lag after a full disk: grow the disk",
    "dns.md": "# DNS\n\nDNS lookups fail: check resolver",
    "clock.md": "# Clock\n\nClock drift: check NTP",
}
Make = Callable[[Documents], RagBackend]


@pytest.fixture(params=list(BACKENDS))
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Builds the backend under test, each time in a folder of its own."""
    numbers = iter(range(10))

    def build(documents: Documents) -> RagBackend:
        base = tmp_path / str(next(numbers))
        base.mkdir()
        return BACKENDS[request.param](base, documents)

    return build


@pytest.fixture
def backend(make: Make) -> RagBackend:
    return make(DOCUMENTS)


async def search(backend: RagBackend, query: str, top_k: int = 3, seconds: float = 5.0) -> dict[str, Any]:
    """Search, and check what holds of every answer."""
    request = RagRequest(query=query, top_k=top_k)
    raw = await backend.search(request, seconds)
    documents = raw["documents"]
    assert json.loads(json.dumps(raw)) == raw, "JSON data"
    observation.agent_result(raw, project_scope(request))
    assert len(documents) <= top_k
    assert raw["total"] >= len(documents)
    assert all(0 <= document["score"] <= 1 for document in documents)
    assert all(document["document_id"].startswith("kb/") for document in documents)
    assert len({document["document_id"] for document in documents}) == len(documents)
    levels = {document["relevance_level"] for document in documents}
    assert raw["relevance_level"] == ("HIGH" if "HIGH" in levels else "REFERENCE" if levels else None)
    return dict(raw)


@pytest.mark.parametrize(
    ("query", "source"),
    [
        ("redis latency slowlog", "redis.md"),
        ("订单服务 数据库连接池耗尽", "orders.md"),
        ("clock drift NTP", "clock.md"),
    ],
)
async def test_r129_what_fits_comes_first_and_is_high(backend: RagBackend, query: str, source: str) -> None:
    raw = await search(backend, query)
    assert raw["documents"][0]["source"] == source
    assert raw["documents"][0]["relevance_level"] == "HIGH"


async def test_r54_what_does_not_fit_is_dropped(backend: RagBackend) -> None:
    assert await search(backend, "espresso grinder maintenance") == {
        "documents": [],
        "relevance_level": None,
        "total": 0,
    }


async def test_r129_top_k_cuts_but_total_stays(backend: RagBackend) -> None:
    one, five = await search(backend, "kafka lag", top_k=1), await search(backend, "kafka lag", top_k=5)
    assert len(one["documents"]) == 1
    assert {document["source"] for document in five["documents"]} >= {"kafka.md", "kafka-broker.md"}
    assert one["documents"] == five["documents"][:1]
    assert one["total"] == five["total"] == len(five["documents"])


async def test_document_ids_stay_the_same(make: Make) -> None:
    more = DOCUMENTS | {"tea.md": "# Tea\n\nTea is in the kitchen"}
    assert await search(make(DOCUMENTS), "kafka lag") == await search(make(more), "kafka lag")


async def test_r55_secrets_are_masked_before_anything_is_stored(backend: RagBackend) -> None:
    raw = await search(backend, "redis latency slowlog")
    assert "look at slowlog" in json.dumps(raw)
    assert "hunter2secret" not in json.dumps(raw)


@pytest.mark.parametrize("query", ['"', "NOT (", "a\0b", "*", "😀", "' OR 1=1 --", "kafka" * 100, "\n \t.", "磁" * 500])
async def test_no_query_text_fails(backend: RagBackend, query: str) -> None:
    await search(backend, query)


async def test_searches_at_once_do_not_mix(backend: RagBackend) -> None:
    queries = ["redis latency", "clock drift", "disk full", "DNS lookups"] * 5
    raws = await asyncio.gather(*(search(backend, query) for query in queries))
    sources = [raw["documents"][0]["source"] for raw in raws]
    assert sources == ["redis.md", "clock.md", "disk.md", "dns.md"] * 5


async def test_no_time_is_a_timeout(backend: RagBackend) -> None:
    with pytest.raises(ToolFailure) as failure:
        await search(backend, "redis latency", seconds=0.0)
    assert failure.value.code is ToolErrorCode.TOOL_TIMEOUT
    assert (await search(backend, "redis latency"))["total"] == 1, "the next search has time"


async def test_an_empty_knowledge_base_finds_nothing(make: Make) -> None:
    assert (await search(make({}), "redis latency"))["total"] == 0
