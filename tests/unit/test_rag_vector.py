"""Vector stores by configuration: what is read from them, what is refused, and how they stand beside folders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from service.registry import Site, build_tool
from service.vector_store import open_vector_store
from tests.rag_backends import entry
from tools.catalog import Catalog, CatalogError, build_catalog
from tools.contract import ToolErrorCode
from tools.evidence_tool import CallContext, ToolFailure
from tools.rag.backend_joined import JoinedBackend
from tools.rag.backend_vector import StoredText, VectorBackend, shown_source, store_hits
from tools.rag.request import RagRequest

STORES = """
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from tests.rag_backends import WordEmbedding, filled

calls = []
nothing = None


def wiki():
    calls.append(1)
    return filled(InMemoryVectorStore(WordEmbedding()), {"wiki/redis.md": "redis latency slowlog"})


def broken():
    raise ValueError("MARKER-KEY")
"""


class Fixed:
    """A store that gives the same answer to everything."""

    def __init__(self, *found: tuple[StoredText, float], error: Exception | None = None) -> None:
        self.found, self.error = found, error

    async def similarity_search_with_score(self, query: str, k: int) -> Sequence[tuple[StoredText, float]]:
        if self.error is not None:
            raise self.error
        return self.found


class Slow:
    """A store that never answers."""

    async def similarity_search_with_score(self, query: str, k: int) -> Sequence[tuple[StoredText, float]]:
        await asyncio.Event().wait()
        return ()


def text(source: str = "a.md", content: str = "text", **metadata: Any) -> StoredText:
    return StoredText(content, {"source": source} | metadata)


async def found(store: Any, **changes: Any) -> dict[str, Any]:
    raw = await VectorBackend([(entry(**changes), store)]).search(RagRequest(query="x", top_k=5), 0.2)
    return dict(raw)


async def code_of(*stores: Any) -> ToolErrorCode:
    backend = VectorBackend([(entry(f"kb{number}"), store) for number, store in enumerate(stores)])
    with pytest.raises(ToolFailure) as failure:
        await backend.search(RagRequest(query="x"), 0.05)
    return failure.value.code


@pytest.mark.parametrize(("kind", "scores"), [("cosine", (0.5, 0.3, 0.29)), ("cosine_distance", (0.5, 0.7, 0.71))])
async def test_r54_levels_come_from_cosine_and_the_entry(kind: str, scores: tuple[float, ...]) -> None:
    store = Fixed(*((text(f"{number}.md"), score) for number, score in enumerate(scores)))
    raw = await found(store, score=kind)
    assert [(document["source"], document["relevance_level"]) for document in raw["documents"]] == [
        ("0.md", "HIGH"),
        ("1.md", "REFERENCE"),
    ]


@pytest.mark.parametrize("score", [1.01, 17.3, -1.5, float("nan"), float("inf")])
async def test_r54_a_score_that_is_no_cosine_gives_no_level(score: float) -> None:
    assert await code_of(Fixed((text(), 0.9), (text("b.md"), score))) is ToolErrorCode.BACKEND_ERROR


async def test_r54_where_scores_only_rank_the_level_comes_from_coverage() -> None:
    """The order is the store's; the score has nothing of its numbers, whatever they are."""
    store = Fixed(
        (text("half.md", "redis is slow"), 0.033),
        (text("whole.md", "redis replication lag", title="Lag"), float("nan")),
        (text("none.md", "something else"), -812.0),
    )
    raw = await VectorBackend([(entry(score="coverage"), store)]).search(RagRequest(query="redis lag"), 1.0)
    told = [(each["source"], each["score"], each["relevance_level"]) for each in raw["documents"]]
    assert told == [("half.md", 0.5, "HIGH"), ("whole.md", 1.0, "HIGH")]


async def test_scores_a_rounding_away_are_bounded() -> None:
    hits = await store_hits(entry(), Fixed((text("a"), 1.0000002), (text("b"), -0.4)), "x", 1)
    assert [hit.score for hit in hits] == [1.0, 0.0]


async def test_r55_failures_have_codes_and_no_text(caplog: pytest.LogCaptureFixture) -> None:
    assert await code_of(Fixed(error=RuntimeError("MARKER"))) is ToolErrorCode.BACKEND_UNAVAILABLE
    assert await code_of(Slow()) is ToolErrorCode.TOOL_TIMEOUT
    assert await code_of(Fixed((text(), 0.1)), Slow()) is ToolErrorCode.PARTIAL_RESULT
    assert "RuntimeError" in caplog.text
    assert "MARKER" not in caplog.text


async def test_one_store_that_fails_does_not_hide_the_other() -> None:
    backend = VectorBackend([(entry("a"), Slow()), (entry("b"), Fixed((text(), 0.9)))])
    assert (await backend.search(RagRequest(query="x"), 0.05))["total"] == 1


async def test_a_text_stored_twice_is_one_document() -> None:
    assert (await found(Fixed((text(), 0.9), (text(), 0.9), (text(content="more"), 0.8))))["total"] == 2


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("a/b/c/d.md", "a/b/c/d.md"),
        ("/data/shared/wiki/ops/a.md", "wiki/ops/a.md"),
        ("https://user:secret@host.example/space/page?token=abc", "space/page"),
        (r"C:\docs\wiki\ops\a.md", "wiki/ops/a.md"),
        ("../../etc/x.md", "etc/x.md"),
        ("http://[bad", ""),
        (None, ""),
        (7, ""),
    ],
)
def test_a_source_is_shown_without_its_place(source: object, shown: str) -> None:
    assert shown_source(source) == shown


async def test_joined_backends_fail_only_when_nothing_is_found() -> None:
    good, empty, bad = (
        VectorBackend([(entry(name), store)])
        for name, store in (("a", Fixed((text(), 0.9))), ("b", Fixed()), ("c", Slow()))
    )
    request = RagRequest(query="x")
    assert (await JoinedBackend([bad, good]).search(request, 0.05))["total"] == 1
    for backends, code in (([bad, empty], ToolErrorCode.PARTIAL_RESULT), ([bad], ToolErrorCode.TOOL_TIMEOUT)):
        with pytest.raises(ToolFailure) as failure:
            await JoinedBackend(backends).search(request, 0.05)
        assert failure.value.code is code


async def test_joined_documents_alternate_high_first() -> None:
    first = VectorBackend([(entry("a"), Fixed((text("a1"), 0.4), (text("a2"), 0.35)))])
    second = VectorBackend([(entry("b"), Fixed((text("b1"), 0.9), (text("b2"), 0.8)))])
    raw = await JoinedBackend([first, second]).search(RagRequest(query="x", top_k=3), 1)
    assert [document["source"] for document in raw["documents"]] == ["b1", "a1", "b2"]
    assert (raw["relevance_level"], raw["total"]) == ("HIGH", 4)


def catalog(base: Path, **changes: Any) -> Catalog:
    (base / "stores.py").write_text(STORES)
    knowledge = {"name": "wiki", "store": "stores.py:wiki", "score": "cosine", "high": 0.5, "reference": 0.3}
    return build_catalog({"knowledge": [knowledge | changes]}, base)


async def test_a_langchain_store_by_configuration_answers_the_tool(tmp_path: Path) -> None:
    tool = build_tool("rag", Site(catalog(tmp_path), tmp_path / "index", {}))
    assert tool is not None
    context = CallContext(now=0.0, at_given=False, deadline_seconds=5.0)
    for _ in range(2):
        outcome = await tool.run(RagRequest(query="redis latency slowlog"), context)
        assert outcome.agent_result["documents"][0]["source"] == "wiki/redis.md"
        assert outcome.agent_result["relevance_level"] == "HIGH"


@pytest.mark.parametrize("store", ["stores.py:missing", "stores.py:nothing", "gone.py:wiki", "no_such_module:wiki"])
def test_a_store_that_cannot_be_found_is_named(tmp_path: Path, store: str) -> None:
    known = catalog(tmp_path, store=store)
    with pytest.raises(CatalogError, match="knowledge wiki: store: ") as error:
        open_vector_store(known, known.knowledge[0])
    assert str(tmp_path) not in str(error.value)


async def test_what_a_store_raises_is_told_to_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    known = catalog(tmp_path, store="stores.py:broken")
    with pytest.raises(ToolFailure) as failure:
        await store_hits(known.knowledge[0], open_vector_store(known, known.knowledge[0]), "x", 1)
    assert failure.value.code is ToolErrorCode.BACKEND_UNAVAILABLE
    assert "MARKER" not in caplog.text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"path": "docs"}, "exactly one of path"),
        ({"store": None}, "exactly one of path"),
        ({"store": "wiki"}, "knowledge.0.store"),
        ({"store": "a b:wiki"}, "knowledge.0.store"),
        ({"score": "l2"}, "knowledge.0.score"),
        ({"score": None}, "store needs score"),
        ({"store": None, "path": "docs"}, "score goes with store"),
    ],
)
def test_bad_entries_are_refused_by_key(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(CatalogError, match=says):
        catalog(tmp_path, **changes)


def test_thresholds_of_a_store_have_no_default(tmp_path: Path) -> None:
    knowledge = {"name": "wiki", "store": "stores.py:wiki", "score": "cosine", "high": 0.5}
    with pytest.raises(CatalogError, match="store needs score"):
        build_catalog({"knowledge": [knowledge]}, tmp_path)
