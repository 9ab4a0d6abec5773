"""What every log backend does alike: same events, same queries, same answers (R128)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.log_topics import NOW, STORES, Happened, Topic
from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.logs.backend import Lookback, ParsedQuery
from tools.logs.request import QueryLogsResponse

EVENTS = [
    Happened(30, "ERROR", "order", "order-1", "SocketTimeoutException calling redis 10.0.0.7:6379 after 500ms"),
    Happened(60, "WARN", "payment", "pay-1", "retry 3 of 5 for payment 15003", (("status", 503), ("retried", True))),
    Happened(90, "INFO", "order", "order-2", "GET /api/v1/orders took 12ms", (("status", 200), ("user_id", "u-17"))),
    Happened(120, "DEBUG", "order", "order-2", "cache miss, timeout set to 500", (("status", 500),)),
    Happened(
        150,
        "ERROR",
        "inventory",
        "inv-1",
        "连接超时: 库存服务不可用",
        (("trace", {"id": "abc123", "note": "Connection refused"}),),
    ),
    Happened(180, "INFO", "payment", "pay-2", 'answer was "connection refused" (code=E42)', (("status", 50),)),
    Happened(3000, "FATAL", "order", "order-1", "redis is gone, giving up"),
]
CASES = {
    "": [0, 1, 2, 3, 4, 5],
    "redis": [0],
    "REDIS": [0],
    "timeout": [0, 3],
    "sockettime": [0],
    "timeout redis": [0],
    "redis OR retry": [0, 1],
    "timeout NOT redis": [3],
    "NOT timeout": [1, 2, 4, 5],
    "NOT (timeout OR retry)": [2, 4, 5],
    '"connection refused"': [4, 5],
    '"refused connection"': [],
    "(redis OR 连接超时) level:error": [0, 4],
    "库存服务": [4],
    "存库": [],
    "level:error": [0, 4],
    "level:warning": [1],
    "NOT level:info": [0, 1, 3, 4],
    "timeout NOT level:debug": [0],
    "level:error OR level:warn": [0, 1, 4],
    "service:payment": [1, 5],
    "service:pay": [1, 5],
    "service:pay NOT level:info": [1],
    "instance:order-2": [2, 3],
    "status:503": [1],
    "status:5*": [1, 3, 5],
    "status:50": [5],
    "retried:true": [1],
    "user_id:u-17": [2],
    "id:abc123": [4],
    "15003": [1],
    "1500": [],
    "500": [0, 3],
    "10.0.0.7:6379": [0],
    "/api/v1/orders": [2],
    "conn*refused": [],
    "sock*exception": [0],
    "E42": [5],
    "nothing-like-this": [],
}


@pytest.fixture(params=list(STORES))
async def topic(request: pytest.FixtureRequest, tmp_path: Path, opensearch: str) -> AsyncIterator[Topic]:
    async with STORES[request.param](EVENTS, tmp_path, opensearch) as made:
        yield made


async def ask(
    topic: Topic, query: str, minutes: int = 10, limit: int = 20, now: float | None = NOW
) -> QueryLogsResponse:
    lookback = Lookback(minutes, now, NOW)
    return await topic.backend.query(topic.entry, ParsedQuery.of(query), lookback, limit, 10.0)


async def test_r128_same_queries_same_answers(topic: Topic) -> None:
    wrong = {}
    for query, wanted in CASES.items():
        response = await ask(topic, query)
        got = [event.message for event in response.events]
        if got != [EVENTS[at].message for at in wanted]:
            wrong[query] = got
        assert (response.total, response.returned) == (len(got), len(got)), query
        assert (response.total_is_lower_bound, response.truncated) == (False, False), query
        assert sum(pattern.count for pattern in response.patterns) == len(got), query
        assert response.levels == Counter(EVENTS[at].level for at in wanted), query
    assert wrong == {}


async def test_r128_events_have_the_same_parts(topic: Topic) -> None:
    response = await ask(topic, "")
    for event, wanted in zip(response.events, EVENTS, strict=False):
        assert (event.level, event.service, event.instance) == (wanted.level, wanted.service, wanted.instance)
        assert event.timestamp == wanted.stamp.replace("Z", "+00:00")
        for key, value in wanted.more:
            assert isinstance(value, dict) or event.attributes[key] == value
    assert response.events[4].attributes["trace.id"] == "abc123"


async def test_r128_the_window_is_the_lookback(topic: Topic) -> None:
    response = await ask(topic, "redis", minutes=60)
    assert [event.level for event in response.events] == ["ERROR", "FATAL"]
    assert (response.from_, response.to) == ("2026-03-01T02:05:00.000+00:00", "2026-03-01T03:05:00.000+00:00")
    assert (await ask(topic, "redis", minutes=60, now=NOW - 600)).total == 1
    edge = EVENTS[1].epoch
    assert [event.level for event in (await ask(topic, "", minutes=1, now=edge)).events] == ["WARN", "INFO", "DEBUG"]


async def test_r128_the_topics_newest_event_may_end_the_window(topic: Topic) -> None:
    response = await ask(topic, "", minutes=1, now=None)
    assert response.to == "2026-03-01T03:04:30.000+00:00"
    assert [event.level for event in response.events] == ["ERROR", "WARN", "INFO"]


async def test_r128_a_limit_truncates_but_counts_all(topic: Topic) -> None:
    response = await ask(topic, "", limit=2)
    assert (response.total, response.total_is_lower_bound, response.returned, response.truncated) == (6, False, 2, True)
    assert sum(pattern.count for pattern in response.patterns) == 6
    # Gravest first: the order tells people where to look.
    assert list(response.levels.items()) == [("ERROR", 2), ("WARN", 1), ("INFO", 2), ("DEBUG", 1)]


@pytest.mark.parametrize("name", list(STORES))
async def test_r128_events_without_a_level_are_counted_as_such(name: str, tmp_path: Path, opensearch: str) -> None:
    silent = [Happened(30, "", "order", "order-1", "all is quiet"), Happened(60, "ERROR", "order", "order-1", "boom")]
    async with STORES[name](silent, tmp_path, opensearch) as made:
        assert (await ask(made, "")).levels == {"ERROR": 1, "NONE": 1}


async def test_r128_nothing_is_made_up(topic: Topic) -> None:
    response = await ask(topic, "nothing-like-this")
    assert (response.total, response.events, response.patterns, response.notes) == (0, [], [], [])
    assert response.levels == {}


@pytest.mark.parametrize("name", list(STORES))
async def test_r128_a_store_that_is_away_is_no_empty_answer(name: str, tmp_path: Path, opensearch: str) -> None:
    async with STORES[name](EVENTS, tmp_path, opensearch) as made:
        gone = {"path": "gone.log"} if made.entry.backend == "files" else {"url": "http://127.0.0.1:9"}
        entry = made.entry.model_copy(update=gone)
        with pytest.raises(ToolFailure) as failure:
            await ask(Topic(entry, made.backend), "")
        assert failure.value.code is ToolErrorCode.BACKEND_UNAVAILABLE


@pytest.mark.parametrize("name", list(STORES))
async def test_r128_many_events(name: str, tmp_path: Path, opensearch: str) -> None:
    noise = [Happened(number / 10, "INFO", "order", "order-1", f"order {number} done") for number in range(1, 301)]
    rare = [
        Happened(29.95, "ERROR", "order", "order-1", "disk full"),
        Happened(0.05, "WARN", "order", "order-1", "slow"),
    ]
    async with STORES[name](noise + rare, tmp_path, opensearch) as made:
        if made.entry.backend != "files":
            made = Topic(made.entry.model_copy(update={"max_events": 150}), made.backend)
        bounded = made.entry.backend != "files"
        response = await ask(made, "")
        assert response.truncated
        assert response.total_is_lower_bound == bounded
        # A store that counts tells its count; the others tell what they looked at.
        assert response.total == (149 if made.entry.backend == "loki" else 302)
        looked_at = {"files": 302, "elasticsearch": 150, "loki": 149}[made.entry.backend]
        assert sum(response.levels.values()) == sum(each.count for each in response.patterns) == looked_at
        assert [event.level for event in response.events].count("WARN") == 1
        found = await ask(made, "full")
        assert (found.total, found.total_is_lower_bound, found.events[0].message) == (1, False, "disk full")
