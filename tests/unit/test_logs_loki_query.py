"""LogQL: every match passes the filters, and what is sent is LogQL."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log_queries import LEVELS, SERVICES, documents, messages, queries
from tests.logql import ParseError, parse
from tools.catalog import TopicEntry
from tools.logs.backend import ParsedQuery
from tools.logs.events import EventView
from tools.logs.loki_query import Labels, log_query
from tools.logs.match import compile_predicate

SELECTOR = '{job="shop"}'
streams = st.fixed_dictionaries(
    {"job": st.just("shop")},
    optional={
        "level": st.sampled_from(LEVELS),
        "detected_level": st.sampled_from(("error", "info", "unknown")),
        "service_name": st.sampled_from(SERVICES),
        "app": st.sampled_from(SERVICES),
        "pod": st.sampled_from(("order-1", "pay-1")),
    },
)
lines = st.one_of(
    documents.map(lambda item: json.dumps(item)),
    documents.map(lambda item: json.dumps(item, ensure_ascii=False)),
    messages,
    messages.map(lambda text: f"2026-03-01 03:00:00 ERROR [main] {text}"),
    messages.map(lambda text: f'level=warn status=503 msg="{text}"'),
)


def topic(**keys: Any) -> TopicEntry:
    return TopicEntry(name="t", backend="loki", url="http://h", selector=SELECTOR, **keys)


ROLES = st.sampled_from(
    (
        {},
        {"level_field": "-"},
        {"level_field": "level"},
        {"service_field": "app"},
        {"service_field": "-"},
        {"instance_field": "pod"},
    )
)


@settings(max_examples=250, deadline=None)
@given(text=queries, roles=ROLES, line=lines, stream=streams)
def test_r128_every_match_passes_the_filters(
    text: str, roles: dict[str, str], line: str, stream: dict[str, str]
) -> None:
    labels = Labels.of(topic(**roles))
    query = ParsedQuery.of(text)
    if compile_predicate(query.node)(EventView(line.encode(), 0, labels.read(stream))):
        sent = log_query(SELECTOR, query.node, labels)
        assert parse(sent).passes(line, stream), sent


@given(text=st.text(max_size=60))
def test_any_text_becomes_logql(text: str) -> None:
    sent = log_query(SELECTOR, ParsedQuery.of(text).node, Labels.of(topic()))
    assert sent.startswith(SELECTOR)
    assert not parse(sent).passes("a line", {"job": "another"})


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("", SELECTOR),
        ("redis", SELECTOR + ' |~ "(?i)redis"'),
        ("a.b", SELECTOR + r' |~ "(?i)a\\.b"'),
        ("503", SELECTOR + ' |~ "(?:^|[^0-9])503(?:[^0-9]|$)"'),
        ("redis OR timeout", SELECTOR + ' |~ "(?:(?i)redis)|(?:(?i)timeout)"'),
        ("redis service:pay", SELECTOR + ' |~ "(?i)redis" | (app=~"(?is).*pay.*" or app="")'),
        ("redis OR service:pay", SELECTOR),
        ("NOT service:pay", SELECTOR + ' | app!~"(?is).*pay.*"'),
        ('"}|= `x"', SELECTOR + r' |~ "(?i)\\}\\|\\=" |~ "(?i)\\`x"'),
    ],
)
def test_what_is_sent(text: str, sent: str) -> None:
    assert log_query(SELECTOR, ParsedQuery.of(text).node, Labels.of(topic(service_field="app"))) == sent


@pytest.mark.parametrize(
    ("text", "line", "passes"),
    [
        ("NOT error", '{"error": null, "msg": "fine"}', True),
        ("NOT error", '{"msg": "an error"}', False),
        ("NOT error", "plain error line", False),
        ("level:debug", "anything", True),
    ],
)
def test_r128_not_leaves_keys_without_a_value_alone(text: str, line: str, passes: bool) -> None:
    sent = log_query(SELECTOR, ParsedQuery.of(text).node, Labels.of(topic()))
    assert parse(sent).passes(line, {"job": "shop"}) is passes


@pytest.mark.parametrize(
    "text", ["{", '{a="b"', '{a="b"} |= x', '{a=""}', '{a="b"} |~ "("', '{a="b"} | (b="c"', 'rate({a="b"}[5m])']
)
def test_the_evaluator_refuses_what_loki_refuses(text: str) -> None:
    with pytest.raises(ParseError, match="parse error"):
        parse(text)
