"""The query DSL against a running server: it finds every match, and only matches where it says so."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tests.log_queries import make_document, queries
from tests.opensearch import index_of, send
from tools.catalog import TopicEntry
from tools.logs.backend import ParsedQuery
from tools.logs.document import Roles, make_view
from tools.logs.elasticsearch_query import Target, is_tight, search_query
from tools.logs.match import compile_predicate

KEYWORDS = {name: {"type": "keyword"} for name in ("level", "service", "error")}


_dice = random.Random(7)
DOCUMENTS = [{"@timestamp": "2026-03-01T03:00:00Z", "n": f"doc{at}"} | make_document(_dice) for at in range(200)]


@pytest.fixture(scope="module", params=[{}, KEYWORDS], ids=["dynamic", "keywords"])
def search_url(request: pytest.FixtureRequest, opensearch: str) -> Iterator[str]:
    with index_of(opensearch, DOCUMENTS, request.param) as index:
        yield f"{opensearch}/{index}/_search"


def found_by_server(url: str, query: ParsedQuery, target: Target) -> set[str]:
    body = {"size": 1000, "_source": ["n"], "query": search_query(query.node, target) or {"match_all": {}}}
    return {hit["_source"]["n"] for hit in send("POST", url, body)["hits"]["hits"]}


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=queries)
def test_r128_the_server_finds_every_match(search_url: str, text: str) -> None:
    target = Target(("*",), Roles.of(TopicEntry(name="t", backend="elasticsearch", url="http://h", index="i")))
    query = ParsedQuery.of(text)
    predicate = compile_predicate(query.node)
    matching = {str(item["n"]) for item in DOCUMENTS if predicate(make_view(item, target.roles))}
    found = found_by_server(search_url, query, target)
    assert matching <= found, (text, json.dumps(search_query(query.node, target)))
    if is_tight(query.node) and "level" not in text:
        assert found == matching, text


@pytest.mark.parametrize(
    ("text", "tight"),
    [
        ("", True),
        ("timeout", True),
        ("timeout redis NOT refused", True),
        ("level:error OR fatal", True),
        ("500", False),
        ('"connection refused"', False),
        ("time*out", False),
        ("10.0.0.7", False),
        ("status:503", False),
        ("连接", False),
    ],
)
def test_r128_only_what_is_the_same_is_counted_by_the_server(text: str, tight: bool) -> None:
    assert is_tight(ParsedQuery.of(text).node) is tight


@given(st.data())
def test_any_text_becomes_a_query(data: DataObject) -> None:
    text = data.draw(st.text(max_size=80))
    target = Target(("*",), Roles.of(TopicEntry(name="t", backend="elasticsearch", url="http://h", index="i")))
    json.dumps(search_query(ParsedQuery.of(text).node, target))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet=st.characters(codec="utf-8", categories=("P", "S", "L", "N", "Zs")), max_size=30))
def test_no_text_breaks_out_of_the_query(search_url: str, text: str) -> None:
    target = Target(("*",), Roles.of(TopicEntry(name="t", backend="elasticsearch", url="http://h", index="i")))
    found_by_server(search_url, ParsedQuery.of(text), target)  # an error status raises
