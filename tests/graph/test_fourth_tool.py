"""Adding a tool takes one small file and one line of the registry: graph, nodes and release are not touched."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

from nodes.ports import ModelReply
from service.models.profile import OPENAI
from service.models.schemas import tool_schema
from service.registry import BUILDERS, Site, build_tool, build_tools
from tests import metrics_tool
from tests.data import ROOT
from tests.fakes import by_round, calls, draft
from tests.loop import Loop, make_loop
from tests.metrics_tool import build_metrics_tool
from tests.scenes import write_scene
from tools.catalog import load_catalog
from tools.evidence_tool import EvidenceTool

NOW = 1_700_000_000
POINTS = f"{NOW - 7200},pool_in_use,3\n{NOW - 60},pool_in_use,64\n{NOW - 30},error_rate,0.4\n"
SOURCE = inspect.getsource(metrics_tool)
DOCUMENT = ROOT / "docs" / "adding-a-tool.md"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site whose registry has one line more."""
    monkeypatch.setitem(BUILDERS, "metrics", build_metrics_tool)
    (tmp_path / "metrics.csv").write_text(POINTS, encoding="utf-8")
    catalog = load_catalog(write_scene(tmp_path))
    return Site(catalog, tmp_path / "index", {"SHOP_METRICS": str(tmp_path / "metrics.csv")})


def asked(call_id: str, metric: str, previous: tuple[str, str] | None = None) -> ModelReply:
    arguments: dict[str, Any] = {"input": {"metric": metric, "lookback_minutes": 60}}
    if previous:
        arguments["previous_observation"] = {"tool_call_id": previous[0], "information_gain": previous[1]}
    return calls((call_id, "read_metrics", arguments))


async def ran(site: Site, *answers: ModelReply) -> Loop:
    loop = make_loop(by_round(answers), more_tools=build_tools(site).values())
    await loop.run()
    return loop


def test_the_tool_is_small_and_needs_nothing_of_graph_nodes_and_release() -> None:
    assert len(SOURCE.splitlines()) < 100
    imported = re.findall(r"^from (\w+)", SOURCE, re.MULTILINE)
    assert not {"graph", "nodes", "release"} & set(imported)
    assert "tools" in imported


def test_the_registry_builds_it_behind_the_others(site: Site) -> None:
    before = list(build_tools(Site(site.catalog, site.index_dir, {})))
    assert len(before) == 3
    assert list(build_tools(site)) == [*before, "read_metrics"]
    tool = build_tool("metrics", site)
    assert isinstance(tool, EvidenceTool)
    assert build_tool("metrics", Site(site.catalog, site.index_dir, {})) is None


def test_r22_the_provider_sees_every_field_of_it(site: Site) -> None:
    tool = build_tool("metrics", site)
    assert tool is not None
    function = tool_schema(tool, OPENAI)["function"]
    assert (function["name"], function["strict"]) == ("read_metrics", True)
    fields = function["parameters"]["properties"]
    assert set(fields) == {"previous_observation", "input"}
    assert set(fields["input"]["properties"]) == {"metric", "lookback_minutes"}
    assert "$ref" not in json.dumps(function)


async def test_a_conclusion_that_cites_it_is_published(site: Site) -> None:
    cited = ("A1", "OBSERVATION", f"`pool_in_use was 64 at {NOW - 60}` of 64.", ["m1"])
    loop = await ran(site, asked("m1", "pool_in_use"), draft("The pool is exhausted.", [cited]))
    assert "read_metrics" in [tool.name for tool in loop.model.requests[0].tools]
    (answer,) = loop.answers()
    assert answer["points"] == [f"pool_in_use was 64 at {NOW - 60}"]
    assert loop.outcome["release_outcome"] == "CONCLUSION"
    assert loop.outcome["published_result"]["findings"][0]["tool_call_ids"] == ["m1"]


async def test_what_it_never_said_is_not_published(site: Site) -> None:
    invented = ("A1", "OBSERVATION", f"`pool_in_use was 99 at {NOW - 60}`.", ["m1"])
    loop = await ran(site, asked("m1", "pool_in_use"), draft("The pool is exhausted.", [invented]))
    assert loop.outcome["release_outcome"] == "FALLBACK"
    assert f"pool_in_use was 64 at {NOW - 60}" in json.dumps(loop.outcome["fallback"]["observed_facts"])


async def test_the_harness_refuses_and_deduplicates_it_as_any_other(site: Site) -> None:
    loop = await ran(
        site,
        asked("m1", "no_such_metric"),
        asked("m2", "pool_in_use"),
        asked("m3", "pool_in_use", ("m2", "GAINED")),
        draft(None),
    )
    refused, found, repeated = loop.answers()
    assert refused["error_code"] == "INVALID_TOOL_REQUEST"
    assert "pool_in_use, error_rate" in json.dumps(refused)
    assert found["evidence_status"] == "EVIDENCE_FOUND"
    assert "points" not in repeated


async def test_a_file_that_cannot_be_read_is_a_stable_code(site: Site) -> None:
    absent = Site(site.catalog, site.index_dir, {"SHOP_METRICS": "no/such.csv"})
    loop = await ran(absent, asked("m1", "pool_in_use"), draft(None))
    (answer,) = loop.answers()
    assert answer["error_code"] == "BACKEND_UNAVAILABLE"


def test_the_document_shows_this_very_tool() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert f"```python\n{SOURCE}```" in text
    assert '"metrics": build_metrics_tool,' in text
