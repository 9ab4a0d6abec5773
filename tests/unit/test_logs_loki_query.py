"""LogQL: every match passes the filters, and what is sent is LogQL."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log_queries import LEVELS, SERVICES, make_document, queries
from tests.logql import ParseError, parse
from tools.catalog import TopicEntry
from tools.logs.backend import ParsedQuery
from tools.logs.events import EventView
from tools.logs.loki_labels import Labels
from tools.logs.loki_query import log_query
from tools.logs.match import compile_predicate

SELECTOR = '{job="shop"}'


def _corpus() -> list[tuple[str, dict[str, str]]]:
    """Lines as programs write them, in streams with some of the usual labels; the same ones in every run."""
    dice = random.Random(11)
    usual = (("level", LEVELS), ("detected_level", ("error", "info", "unknown")), ("service_name", SERVICES))
    usual += (("app", SERVICES), ("pod", ("order-1", "pay-1")))
    made = []
    for _ in range(400):
        document = make_document(dice)
        plain = document["message"]
        ways = (
            json.dumps(document),
            json.dumps(document, ensure_ascii=False),
            plain,
            f"2026-03-01 03:00:00 {dice.choice(('ERROR', 'INFO', 'DEBUG'))} [main] {plain}",
            f'level=warn status=503 service=payment msg="{plain}"',
        )
        share = dice.choice((0.0, 0.3, 0.7))
        labels = {name: dice.choice(values) for name, values in usual if dice.random() < share}
        made.append((dice.choice(ways), {"job": "shop"} | labels))
    return made


CORPUS = _corpus()


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
@given(text=queries, roles=ROLES)
def test_r128_every_match_passes_the_filters(text: str, roles: dict[str, str]) -> None:
    labels = Labels.of(topic(**roles))
    query = ParsedQuery.of(text)
    predicate, sent = compile_predicate(query.node), log_query(SELECTOR, query.node, labels)
    evaluated = parse(sent)
    for line, stream in CORPUS:
        if predicate(EventView(line.encode(), 0, labels.read(stream))):
            assert evaluated.passes(line, stream), (sent, line, stream)


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
