"""Log servers that behave badly: one attempt each, bounded, answered with a stable code; nothing of them leaks."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from tests.log_topics import NOW, Happened
from tests.loki_server import TIMED_OUT, TOO_MANY, Refusal, Stream, loki_server
from tests.opensearch import index_of
from tests.stub_model_server import Behaviour, cut_off, http, raw, stub_server
from tools.catalog import Catalog, TopicEntry, build_catalog
from tools.contract import ToolErrorCode
from tools.evidence_tool import CallContext, EvidenceTool, ToolFailure, ToolOutcome
from tools.logs import backend_elasticsearch
from tools.logs import http as logs_http
from tools.logs.backend import Lookback, ParsedQuery
from tools.logs.backend_elasticsearch import ElasticsearchBackend
from tools.logs.backend_loki import LokiBackend
from tools.logs.request import QueryLogsRequest, QueryLogsResponse
from tools.logs.tool import build_logs_tool

SECRET = "s3cr3t-value"
NANO = 10**9


def topic(kind: str, url: str, **keys: Any) -> TopicEntry:
    where = {"index": "logs"} if kind == "elasticsearch" else {"selector": '{job="shop"}'}
    return TopicEntry.model_validate({"name": "app", "backend": kind, "url": url, **where, **keys})


async def ask(
    entry: TopicEntry, query: str = "", env: dict[str, str] | None = None, deadline: float = 5.0
) -> QueryLogsResponse:
    kind = ElasticsearchBackend if entry.backend == "elasticsearch" else LokiBackend
    backend = kind(env or {}, Path())
    return await backend.query(entry, ParsedQuery.of(query), Lookback(30, NOW, NOW), 20, deadline)


async def failure(entry: TopicEntry, **options: Any) -> str:
    with pytest.raises(ToolFailure) as caught:
        await ask(entry, **options)
    assert caught.value.__cause__ is None
    return caught.value.code.value


def elastic_answer(found: list[dict[str, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    kept = found or []
    return {
        "took": 1,
        "timed_out": False,
        "_shards": {"total": 3, "successful": 3, "skipped": 0, "failed": 0},
        "hits": {"total": {"value": len(kept), "relation": "eq"}, "hits": kept},
    } | changes


def hit(message: str, **source: Any) -> dict[str, Any]:
    moment = str(int((NOW - 5) * 1000))
    return {"_id": "1", "_source": {"message": message} | source, "fields": {"@timestamp": [moment]}}


def loki_answer(lines: list[str], **changes: Any) -> dict[str, Any]:
    values = [[str(int(NOW - 5) * NANO), line] for line in lines]
    result = [{"stream": {"job": "shop"}, "values": values}] if lines else []
    return {"status": "success", "data": {"resultType": "streams", "result": result, "stats": {}}} | changes


GOOD = {"elasticsearch": elastic_answer([hit("a timeout")]), "loki": loki_answer(["a timeout"])}
KINDS = pytest.mark.parametrize("kind", list(GOOD))


def body(value: Any) -> Behaviour:
    return http(json.dumps(value).encode())


@KINDS
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (204, "BACKEND_ERROR"),
        (400, "BACKEND_ERROR"),
        (401, "BACKEND_ERROR"),
        (403, "BACKEND_ERROR"),
        (404, "BACKEND_ERROR"),
        (408, "TOOL_TIMEOUT"),
        (413, "BACKEND_ERROR"),
        (429, "BACKEND_UNAVAILABLE"),
        (500, "BACKEND_ERROR"),
        (502, "BACKEND_UNAVAILABLE"),
        (503, "BACKEND_UNAVAILABLE"),
        (504, "TOOL_TIMEOUT"),
    ],
)
async def test_r118_one_attempt_whatever_the_status(kind: str, status: int, code: str) -> None:
    async with stub_server(http(b"no", status=status, retry_after="0")) as stub:
        assert await failure(topic(kind, f"http://127.0.0.1:{stub.port}")) == code
        assert (len(stub.requests), stub.connections) == (1, 1)


@KINDS
async def test_redirects_are_not_followed(kind: str) -> None:
    async with stub_server(body(GOOD[kind])) as target:
        for status in (301, 302, 307, 308):
            async with stub_server(http(b"", status=status, location=target.url)) as stub:
                assert await failure(topic(kind, f"http://127.0.0.1:{stub.port}")) == "BACKEND_ERROR"
        assert target.requests == []


async def _silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def _trickle(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    for _ in range(300):
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.1)


@KINDS
@pytest.mark.parametrize("behaviour", [_silent, _trickle], ids=["silent", "trickle"])
async def test_r55_a_slow_server_ends_at_the_deadline(kind: str, behaviour: Behaviour) -> None:
    async with stub_server(behaviour) as stub:
        started = time.monotonic()
        assert await failure(topic(kind, f"http://127.0.0.1:{stub.port}"), deadline=0.5) == "TOOL_TIMEOUT"
        assert time.monotonic() - started < 2.0
        assert len(stub.requests) == 1


@KINDS
async def test_a_cancelled_call_ends_at_once(kind: str) -> None:
    async with stub_server(_silent) as stub:
        task = asyncio.create_task(ask(topic(kind, f"http://127.0.0.1:{stub.port}"), deadline=20.0))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@KINDS
async def test_an_answer_too_large_to_read_is_no_answer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_http, "MAX_BODY_BYTES", 10_000)
    async with stub_server(http(b" " * 9_000 + json.dumps(GOOD[kind]).encode())) as stub:
        assert (await ask(topic(kind, f"http://127.0.0.1:{stub.port}"))).total == 1
    async with stub_server(http(b" " * 10_000 + json.dumps(GOOD[kind]).encode())) as stub:
        assert await failure(topic(kind, f"http://127.0.0.1:{stub.port}")) == "PARTIAL_RESULT"


BROKEN: dict[str, Behaviour] = {
    "no http": raw(b"SSH-2.0-OpenSSH\r\n"),
    "cut off": cut_off(b'{"status": "succ', 500, reset=False),
    "no json": http(b"<html>login</html>", content_type="text/html"),
    "a list": http(b"[]"),
    "not a number": http(b'{"took": NaN}'),
    "deep": http(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "empty object": http(b"{}"),
    "gzip": http(b"\x1f\x8b\x08", content_encoding="gzip"),
    "wrong types": http(
        b'{"status":"success","data":{"resultType":"streams","result":[{"stream":[],"values":[[1]]}]},'
        b'"timed_out":false,"_shards":{"total":"x"},"hits":{"hits":[3]}}'
    ),
}


@KINDS
@pytest.mark.parametrize("name", list(BROKEN))
async def test_what_is_no_answer_is_an_error(kind: str, name: str) -> None:
    async with stub_server(BROKEN[name]) as stub:
        assert await failure(topic(kind, f"http://127.0.0.1:{stub.port}")) == "BACKEND_ERROR"
        assert len(stub.requests) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"timed_out": True},
        {"_shards": {"total": 3, "successful": 2, "skipped": 0, "failed": 1}},
        {"terminated_early": True},
        {"_clusters": {"total": 2, "successful": 1, "skipped": 1}},
    ],
    ids=["timed out", "failed shard", "terminated early", "cluster skipped"],
)
async def test_r128_elasticsearch_partial_answers_are_never_no_evidence(changes: dict[str, Any]) -> None:
    async with stub_server(body(elastic_answer(**changes))) as stub:
        assert await failure(topic("elasticsearch", f"http://127.0.0.1:{stub.port}")) == "PARTIAL_RESULT"
    async with stub_server(body(elastic_answer([hit("a timeout")], **changes))) as stub:
        response = await ask(topic("elasticsearch", f"http://127.0.0.1:{stub.port}"))
    assert (response.total, response.total_is_lower_bound, response.truncated) == (1, True, True)
    assert response.notes == ["the server's answer was partial"]


async def test_r128_elasticsearch_without_an_index_is_an_error() -> None:
    none = {"_shards": {"total": 0, "successful": 0, "skipped": 0, "failed": 0}}
    async with stub_server(body(elastic_answer(**none))) as stub:
        assert await failure(topic("elasticsearch", f"http://127.0.0.1:{stub.port}")) == "BACKEND_ERROR"


async def test_r128_candidates_that_do_not_match_are_no_evidence_only_when_all_were_seen() -> None:
    near = [hit("connection to redis refused")]
    async with stub_server(body(elastic_answer(near))) as stub:
        assert (await ask(topic("elasticsearch", stub.url), '"redis connection"')).total == 0
    more = {"hits": {"total": {"value": 10_000, "relation": "gte"}, "hits": near}}
    async with stub_server(body(elastic_answer(**more))) as stub:
        assert await failure(topic("elasticsearch", stub.url), query='"redis connection"') == "PARTIAL_RESULT"
    async with stub_server(body(elastic_answer(**more))) as stub:
        response = await ask(topic("elasticsearch", stub.url), '"redis refused" OR "redis"')
    assert (response.total, response.total_is_lower_bound, response.from_) == (1, True, "2026-03-01T03:04:55.000+00:00")


@pytest.mark.parametrize("mapping", [{}, {"@timestamp": {"type": "date_nanos"}}], ids=["date", "date_nanos"])
async def test_r128_a_count_the_server_stopped_is_a_lower_bound(
    mapping: dict[str, Any], monkeypatch: pytest.MonkeyPatch, opensearch: str
) -> None:
    monkeypatch.setattr(backend_elasticsearch, "COUNT_UP_TO", 120)
    events = [Happened(number, "INFO", "order", "o-1", f"order {number}") for number in range(1, 161)]
    with index_of(opensearch, [event.as_json("@timestamp") for event in events], mapping) as index:
        response = await ask(topic("elasticsearch", opensearch, index=index, max_events=101))
        assert response.total >= 120
        assert (response.total_is_lower_bound, response.truncated, response.returned) == (True, True, 20)
        assert response.events[0].timestamp == "2026-03-01T03:04:59.000+00:00"


async def test_r128_what_opensearch_refuses_is_an_error(opensearch: str) -> None:
    with index_of(opensearch, [{"@timestamp": "2026-03-01T03:04:00Z", "message": "x"}]) as index:
        assert (await ask(topic("elasticsearch", opensearch, index=index))).total == 1
        assert (await ask(topic("elasticsearch", opensearch, index=index), "y")).total == 0
        assert await failure(topic("elasticsearch", opensearch, index="no-such-index")) == "BACKEND_ERROR"
        assert await failure(topic("elasticsearch", opensearch, index="no-such-*")) == "BACKEND_ERROR"
        assert await failure(topic("elasticsearch", opensearch, index=index, time_field="when")) == "BACKEND_ERROR"


async def test_r128_nothing_found_is_believed_only_of_a_topic_with_times() -> None:
    async with stub_server(body(elastic_answer([hit("a timeout")]))) as stub:
        assert (await ask(topic("elasticsearch", stub.url))).total == 1
        assert len(stub.requests) == 1
    async with stub_server(body(elastic_answer()), body(elastic_answer([hit("old")]))) as stub:
        assert (await ask(topic("elasticsearch", stub.url))).total == 0
        assert [sent["size"] for sent in stub.requests] == [1000, 1]
    for second in (http(b"{}", status=400), body(elastic_answer([hit("old") | {"fields": {}}]))):
        async with stub_server(body(elastic_answer()), second) as stub:
            assert await failure(topic("elasticsearch", stub.url)) == "BACKEND_ERROR"
            assert len(stub.requests) == 2


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (Refusal(400, "parse error at line 1, col 5: syntax error"), "BACKEND_ERROR"),
        (Refusal(429, TOO_MANY), "BACKEND_UNAVAILABLE"),
        (Refusal(499, "The request was cancelled by the client."), "BACKEND_ERROR"),
        (Refusal(500, "context canceled"), "BACKEND_ERROR"),
        (Refusal(502, "bad gateway"), "BACKEND_UNAVAILABLE"),
        (Refusal(504, TIMED_OUT), "TOOL_TIMEOUT"),
    ],
)
async def test_r128_what_loki_refuses_is_an_error(refusal: Refusal, code: str) -> None:
    async with loki_server([], fault=refusal) as loki:
        assert await failure(topic("loki", loki.url)) == code
        assert len(loki.headers) == 1


async def test_r128_loki_partial_answers_are_never_no_evidence() -> None:
    lines = Stream({"job": "shop"}, [(int(NOW - 5) * NANO, "a timeout")])
    async with loki_server(
        [lines], warnings=["maximum number of series (500) reached; returning partial results"]
    ) as loki:
        assert await failure(topic("loki", loki.url), query="redis") == "PARTIAL_RESULT"
        response = await ask(topic("loki", loki.url), "timeout")
    assert (response.total, response.total_is_lower_bound, response.truncated) == (1, True, True)


async def test_loki_gives_lines_not_numbers() -> None:
    matrix = {"status": "success", "data": {"resultType": "matrix", "result": []}}
    async with stub_server(body(matrix)) as stub:
        assert await failure(topic("loki", stub.url)) == "BACKEND_ERROR"


async def test_loki_is_asked_for_no_more_than_it_gives() -> None:
    async with loki_server([], max_entries=500) as loki:
        assert await failure(topic("loki", loki.url)) == "BACKEND_ERROR"
        assert (await ask(topic("loki", loki.url, max_events=500))).total == 0
        sent = loki.requests[-1]
    assert (sent["limit"], sent["direction"], sent["query"]) == ("500", "backward", '{job="shop"}')
    assert int(sent["end"]) - int(sent["start"]) == 30 * 60 * NANO + 1


async def test_loki_lines_with_times_of_their_own_and_levels_in_the_text() -> None:
    lines = [
        f"2026-03-01 03:04:0{at},000 {level} [main] step {at}" for at, level in enumerate(("INFO", "ERROR", "WARN"))
    ]
    stream = Stream(
        {"job": "shop", "namespace": "prod"}, [(int(NOW - 50 + at) * NANO, line) for at, line in enumerate(lines)]
    )
    async with loki_server([stream]) as loki:
        response = await ask(topic("loki", loki.url, level_field="-"), "level:error")
        sent = loki.requests[-1]["query"]
    event = response.events[0]
    assert (response.total, event.level, event.message) == (1, "ERROR", "ERROR [main] step 1")
    assert event.attributes == {"job": "shop", "namespace": "prod"}
    # Letters are escaped, so that they mean themselves in any case.
    assert "".join(f"\\\\x{ord(each):02x}" for each in "SEVERE") in sent
    assert "detected_level" not in sent


async def test_r127_tenant_and_token_come_from_the_environment() -> None:
    shop = Stream({"job": "shop"}, [(int(NOW - 5) * NANO, "of team a")])
    async with loki_server(tenants={"team-a": [shop]}, multi_tenant=True, token=SECRET) as loki:
        entry = topic("loki", loki.url, tenant_env="LOKI_TENANT", token_env="LOKI_TOKEN")
        env = {"LOKI_TENANT": "team-a", "LOKI_TOKEN": SECRET}
        assert (await ask(entry, env=env)).total == 1
        assert (await ask(entry, env=env | {"LOKI_TENANT": "team-b"})).total == 0
        assert await failure(entry, env=env | {"LOKI_TOKEN": "other"}) == "BACKEND_ERROR"
        assert await failure(topic("loki", loki.url, token_env="LOKI_TOKEN"), env=env) == "BACKEND_ERROR"
        asked = len(loki.headers)
        assert await failure(entry, env={"LOKI_TENANT": "team-a"}) == "BACKEND_UNAVAILABLE"
        assert await failure(entry, env=env | {"LOKI_TOKEN": "a\r\nX-Scope-OrgID: b"}) == "BACKEND_UNAVAILABLE"
        assert len(loki.headers) == asked


@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        ({"api_key_env": "A"}, "ApiKey s3cr3t-value"),
        ({"token_env": "A"}, "Bearer s3cr3t-value"),
        ({"user_env": "U", "password_env": "A"}, "Basic ZWxhc3RpYzpzM2NyM3QtdmFsdWU="),
        ({}, None),
    ],
)
async def test_r127_ways_to_sign_in(keys: dict[str, str], sent: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with stub_server(body(GOOD["elasticsearch"])) as stub:
        await ask(topic("elasticsearch", stub.url, **keys), env={"A": SECRET, "U": "elastic"})
        assert stub.headers[0].get("authorization") == sent


def tool(entry: dict[str, Any], env: dict[str, str]) -> EvidenceTool:
    catalog: Catalog = build_catalog({"topic": [{"name": "app"} | entry]}, Path())
    built = build_logs_tool(catalog, env)
    assert built is not None
    return built


async def run(logs: EvidenceTool, **request: Any) -> ToolOutcome:
    return await logs.run(QueryLogsRequest(topic="app", **request), CallContext(NOW, False, 10.0))


async def test_r52_nothing_of_the_server_reaches_the_model(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    found = elastic_answer([hit("password=hunter2-xyz leaked", level="error")])
    async with stub_server(body(found), http(SECRET.encode(), status=500)) as stub:
        entry = {"backend": "elasticsearch", "url": stub.url, "index": "logs", "token_env": "ES_TOKEN"}
        logs = tool(entry, {"ES_TOKEN": SECRET})
        outcome = await run(logs)
        observation = logs.observe("call-1", logs.scope(QueryLogsRequest(topic="app")), outcome.agent_result)
        with pytest.raises(ToolFailure) as failed:
            await run(logs)
        seen = json.dumps([observation, outcome.agent_result, logs.description])
        for hidden in (SECRET, "hunter2-xyz", f"127.0.0.1:{stub.port}", "ES_TOKEN"):
            assert hidden not in seen
    assert failed.value.code is ToolErrorCode.BACKEND_ERROR
    assert "HTTP status 500" in caplog.text
    assert SECRET not in caplog.text + repr(logs) + repr(vars(logs)) + str(failed.value) + capsys.readouterr().err
    assert observation["total"] == 1


async def test_calls_from_several_event_loops() -> None:
    """As on LangGraph Server: nothing of a call is bound to the loop of the one before."""
    async with stub_server(body(GOOD["loki"])) as stub:
        backend = LokiBackend({}, Path())
        entry = topic("loki", stub.url)

        def elsewhere() -> int:
            return asyncio.run(backend.query(entry, ParsedQuery.of(""), Lookback(30, NOW, NOW), 20, 5.0)).total

        assert [await asyncio.to_thread(elsewhere) for _ in range(2)] == [1, 1]
        both = await asyncio.gather(ask(entry), ask(entry))
        assert [response.total for response in both] == [1, 1]
