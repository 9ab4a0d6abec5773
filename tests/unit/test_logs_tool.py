"""The log tool as the harness sees it: scope, checks, results, observations, facts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tools.catalog import Catalog, CatalogError, build_catalog
from tools.contract import MAX_OBSERVATION_BYTES, EvidenceStatus, InvocationStatus, ToolErrorCode
from tools.evidence_tool import CallContext, EvidenceTool, ObservationContractViolation, ToolFailure, ToolOutcome
from tools.logs.observation import project_observation
from tools.logs.request import LogEvent, LogPattern, QueryLogsRequest, QueryLogsResponse, QueryLogsToolCall
from tools.logs.result import make_agent_result
from tools.logs.scope import project_scope
from tools.logs.tool import build_logs_tool

NOW = datetime(2026, 3, 1, 3, 5, tzinfo=UTC).timestamp()


def catalog(base: Path, now: str | None = None, **topic: Any) -> Catalog:
    entry = {"name": "App-Logs", "description": "logs of the shop", "path": "app.log"} | topic
    return build_catalog({"topic": [entry]} | ({"now": now} if now else {}), base)


def tool(base: Path, now: str | None = None, **topic: Any) -> EvidenceTool:
    built = build_logs_tool(catalog(base, now, **topic))
    assert built is not None
    return built


async def run(
    logs: EvidenceTool, query: str = "", at: float = NOW, at_given: bool = False, **request: Any
) -> ToolOutcome:
    return await logs.run(
        QueryLogsRequest(topic="app-logs", query=query, **request),
        CallContext(now=at, at_given=at_given, deadline_seconds=10.0),
    )


def request(**fields: Any) -> QueryLogsRequest:
    return QueryLogsRequest(**({"topic": "app-logs"} | fields))


def observed(outcome: ToolOutcome, logs: EvidenceTool, **fields: Any) -> dict[str, Any]:
    observation = logs.observe("call-1", logs.scope(request(**fields)), outcome.agent_result)
    assert len(json.dumps(observation, ensure_ascii=False).encode()) <= MAX_OBSERVATION_BYTES
    return observation


def test_r18_envelope_has_concrete_fields() -> None:
    schema = QueryLogsToolCall.model_json_schema()
    fields = schema["$defs"]["QueryLogsRequest"]["properties"]
    assert set(fields) == {"topic", "query", "lookback_minutes", "limit"}
    assert all(field["description"] for field in fields.values())
    call = QueryLogsToolCall.model_validate_json('{"input": {"topic": "a"}}')
    assert call.input == QueryLogsRequest(topic="a", query="", lookback_minutes=30, limit=20)


@pytest.mark.parametrize(
    "fields",
    [
        {"lookback_minutes": 0},
        {"lookback_minutes": 10_081},
        {"limit": 0},
        {"limit": 101},
        {"query": "x" * 501},
        {"a": 1},
    ],
)
def test_r128_bounds_of_the_request(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        request(**fields)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"topic": " APP-Logs "}, {"topic": "app-logs"}),
        ({"query": "  error   timeout "}, {"query": "error timeout"}),
        ({"limit": 5}, {"limit": 50}),
        ({"lookback_minutes": 30}, {}),
    ],
)
def test_r47_same_scope(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert project_scope(request(**left)) == project_scope(request(**right))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"topic": "other"}, {}),
        ({"query": "Error"}, {"query": "error"}),
        ({"query": '"a  b"'}, {"query": '"a b"'}),
        ({"query": "a b"}, {"query": "b a"}),
        ({"lookback_minutes": 31}, {}),
    ],
)
def test_r47_different_scope(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert project_scope(request(**left)).key != project_scope(request(**right)).key


def test_r43_scope_is_topic_query_and_actual_lookback() -> None:
    scope = project_scope(request(query="a  b"))
    assert scope.normalized == {"topic": "app-logs", "query": "a b", "lookback_minutes": 30}
    assert scope.summary == "app-logs / last 30 min"


def test_r28_unknown_topic_is_refused_with_what_is_allowed(tmp_path: Path) -> None:
    logs = tool(tmp_path)
    assert logs.check(request(topic=" APP-logs")) is None
    refusal = logs.check(request(topic="secret-place"))
    assert refusal is not None
    assert (refusal.field, refusal.rule, refusal.allowed) == ("input.topic", "unknown_topic", "App-Logs")


async def test_unknown_topic_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(ToolFailure) as failure:
        await tool(tmp_path).run(request(topic="x"), CallContext(NOW, False, 1.0))
    assert failure.value.code is ToolErrorCode.UNKNOWN_TOPIC


def test_description_names_topics(tmp_path: Path) -> None:
    logs = tool(tmp_path)
    assert "App-Logs: logs of the shop" in logs.description
    assert str(tmp_path) not in logs.description
    assert isinstance(logs, EvidenceTool)
    assert (logs.name, logs.timeout_seconds) == ("query_logs", 15.0)


def test_build(tmp_path: Path) -> None:
    assert build_logs_tool(build_catalog({}, tmp_path)) is None
    for encoding in ("klingon", "hex"):
        with pytest.raises(CatalogError, match=r"topic\.0\.encoding"):
            tool(tmp_path, encoding=encoding)


LINES = "2026-03-01 01:00:00 ERROR early\n2026-03-01 03:00:00 ERROR late\n"


@pytest.mark.parametrize(
    ("now", "at", "at_given", "expected"),
    [
        (None, NOW, False, "late"),
        (None, NOW - 7200, False, "early"),
        ("latest", NOW + 1e7, False, "late"),
        ("latest", NOW - 7200, True, "early"),
        ("2026-03-01T01:05:00Z", NOW, False, "early"),
        ("2026-03-01T01:05:00Z", NOW, True, "late"),
    ],
)
async def test_time_of_the_question_wins_over_the_catalogue(
    tmp_path: Path, now: str | None, at: float, at_given: bool, expected: str
) -> None:
    (tmp_path / "app.log").write_text(LINES)
    outcome = await run(tool(tmp_path, now), "error", at, at_given)
    assert [event["message"] for event in outcome.agent_result["events"]] == [f"ERROR {expected}"]


async def test_r51_observation_holds_the_whitelist_only(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text(LINES)
    logs = tool(tmp_path)
    outcome = await run(logs, "error", lookback_minutes=600)
    planted = json.loads(json.dumps(outcome.agent_result)) | {
        "planted": "MARKER",
        "notes": ["MARKER"],
        "topic": "MARKER",
    }
    assert planted["levels"] == {"ERROR": 2}
    planted["levels"]["MARKER"] = 1
    planted["events"][0]["planted"] = "MARKER"
    planted["patterns"][0]["planted"] = "MARKER"
    observation = project_observation("call-1", logs.scope(request(query="error")), planted)
    assert "MARKER" not in json.dumps(observation)
    assert set(observation) == {
        "tool_call_id", "scope", "evidence_status", "total", "total_is_lower_bound", "events", "patterns", "truncated",
    }  # fmt: skip
    assert (observation["evidence_status"], observation["total"]) == ("EVIDENCE_FOUND", 2)


async def test_r66_facts_of_json_lines_tell_their_attributes(tmp_path: Path) -> None:
    line = {"time": "2026-03-01T03:00:00Z", "level": "error", "msg": "request failed: 503", "code": 503}
    more = {"upstream": {"host": "redis-2"}, "retries": 3, "trace": "x" * 400, "password": "hunter2secret"}
    (tmp_path / "app.log").write_text(json.dumps(line | more) + "\n")
    logs = tool(tmp_path)
    outcome = await run(logs, "failed", lookback_minutes=600)
    (fact,) = logs.facts(logs.scope(request(query="failed")), outcome.agent_result)
    assert fact.excerpt.startswith("2026-03-01T03:00:00.000+00:00 ERROR request failed: 503 ")
    assert "upstream.host=redis-2" in fact.excerpt
    assert "retries=3" in fact.excerpt
    assert "code=503" not in fact.excerpt, "the message tells it"
    assert "hunter2secret" not in fact.excerpt
    assert len(fact.excerpt) <= 300


async def test_r71_no_match_is_no_evidence(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text(LINES)
    logs = tool(tmp_path)
    outcome = await run(logs, "absent")
    assert (outcome.evidence_status, outcome.returned_count) == (EvidenceStatus.NO_EVIDENCE, 0)
    scope = logs.scope(request(query="absent"))
    view = logs.control(outcome.agent_result, scope)
    assert (view.status, view.evidence_status) == (InvocationStatus.READY, EvidenceStatus.NO_EVIDENCE)
    assert observed(outcome, logs, query="absent")["events"] == []
    assert logs.facts(scope, outcome.agent_result) == ()


async def test_r50_control_view_and_r66_facts(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text(LINES + "2026-03-01 03:04:00 INFO fine " + "x" * 900)
    logs = tool(tmp_path)
    outcome = await run(logs, lookback_minutes=600)
    scope = logs.scope(request(lookback_minutes=600))
    view = logs.control(outcome.agent_result, scope)
    assert (view.returned_count, view.truncated, view.relevance_level) == (3, True, None)  # a message was cut
    excerpts = [fact.excerpt for fact in logs.facts(scope, outcome.agent_result)]
    assert excerpts[0] == "2026-03-01T03:00:00.000+00:00 ERROR late"
    assert all(len(excerpt) <= 300 for excerpt in excerpts)


@pytest.mark.parametrize(
    "damage",
    [
        {"events": None},
        {"total": -1},
        {"total": "3"},
        {"returned": 7},
        {"truncated": "no"},
        {"patterns": [{"template": "x"}]},
        {"events": [{"message": 3}]},
        {"events": ["text"]},
        {"total": 0},
    ],
)
async def test_r42_damaged_result_is_a_contract_violation(tmp_path: Path, damage: dict[str, Any]) -> None:
    (tmp_path / "app.log").write_text(LINES)
    logs = tool(tmp_path)
    outcome = await run(logs, "late")
    with pytest.raises(ObservationContractViolation):
        logs.observe("call-1", logs.scope(request()), outcome.agent_result | damage)
    with pytest.raises(ObservationContractViolation):
        logs.control({}, logs.scope(request()))


MADE_UP_KEY = "AKIA" + "ABCDEFGHIJKLMNOP"
SECRETS = {
    "password=hunter2swordfish": "hunter2swordfish",
    "Authorization: Bearer abcdef1234567890": "abcdef1234567890",
    "dsn mysql://root:s3cretpw@db/shop": "s3cretpw",
    f"key {MADE_UP_KEY}": MADE_UP_KEY,
}


@pytest.mark.parametrize("text", sorted(SECRETS))
@pytest.mark.parametrize("pad", [0, 470, 3980, 8180, 40_000])
async def test_r55_secrets_are_masked_also_at_the_bounds(tmp_path: Path, text: str, pad: int) -> None:
    secret = SECRETS[text]
    filler = ("word " * (pad // 5 + 1))[:pad]
    (tmp_path / "app.log").write_text(f"2026-03-01 03:00:00 ERROR {filler}{text} tail\n" + f"  more {text}\n")
    logs = tool(tmp_path)
    outcome = await run(logs, "error")
    told = json.dumps([outcome.agent_result, observed(outcome, logs)])
    told += str(logs.facts(logs.scope(request()), outcome.agent_result))
    for length in range(6, len(secret)):
        assert secret[:length] not in told
        assert secret[-length:] not in told


async def test_r55_secret_attributes_are_masked(tmp_path: Path) -> None:
    row = {
        "time": "2026-03-01T03:00:00Z",
        "level": "error",
        "msg": "x",
        "db_password": "hunter2",
        "note": "token=abc12345",
    }
    (tmp_path / "app.log").write_text(json.dumps(row))
    outcome = await run(tool(tmp_path), "x")
    assert "hunter2" not in json.dumps(outcome.agent_result)
    assert "abc12345" not in json.dumps(outcome.agent_result)
    assert "hunter2" in json.dumps(outcome.raw_response)


events = st.builds(
    LogEvent,
    timestamp=st.none() | st.just("2026-03-01T03:00:00.000+00:00"),
    level=st.sampled_from([None, "ERROR", "INFO"]),
    service=st.none() | st.text(max_size=64),
    message=st.text(max_size=900) | st.text(alphabet='错误😀"\\\n', min_size=400, max_size=900),
    attributes=st.dictionaries(st.text(max_size=20), st.text(max_size=300) | st.integers(), max_size=16),
)
patterns = st.builds(LogPattern, template=st.text(max_size=400), count=st.integers(1, 10**9))


@given(st.lists(events, max_size=100), st.lists(patterns, max_size=50), st.text(max_size=500), st.booleans())
def test_r55_any_result_fits_one_observation(
    found: list[LogEvent], shapes: list[LogPattern], query: str, lower_bound: bool
) -> None:
    response = QueryLogsResponse(
        topic="app-logs",
        query=query,
        total=len(found) * 3,
        total_is_lower_bound=lower_bound,
        returned=len(found),
        truncated=True,
        events=found,
        patterns=shapes,
    )
    agent_result = make_agent_result(response, ())
    observation = project_observation("c" * 128, project_scope(request(query=query)), agent_result)
    assert len(json.dumps(observation, ensure_ascii=False).encode()) <= MAX_OBSERVATION_BYTES
    assert len(observation["events"]) <= 20
    assert all(len(event["message"]) <= 500 for event in observation["events"])
    told = [event["message"] for event in agent_result["events"]]
    assert all(event["message"] in told for event in observation["events"])
    if found:
        assert observation["events"]


async def test_rare_errors_survive_a_flood(tmp_path: Path) -> None:
    lines = [f"2026-03-01 03:00:00 ERROR rare problem number {name} seen" for name in ("alpha", "beta", "gamma")]
    lines = [line + " " + "detail " * 60 for line in lines]
    lines += [f"2026-03-01 03:01:00 INFO GET /api/orders/{index} " + "y" * 400 for index in range(10_000)]
    (tmp_path / "app.log").write_text("\n".join(lines))
    logs = tool(tmp_path)
    outcome = await run(logs)
    observation = observed(outcome, logs)
    assert (observation["total"], observation["truncated"]) == (10_003, True)
    shown = [event["message"][:25] for event in observation["events"]]
    assert "ERROR rare problem number" in shown
    assert any(pattern["count"] == 10_000 for pattern in observation["patterns"])


@pytest.mark.parametrize("pad", range(60, 420, 7))
def test_r55_secret_cut_by_an_earlier_bound_is_not_shown(pad: int) -> None:
    """Masking shortens text, so that what stood at a bound may move into view."""
    text = "password=" + "x" * 100 + " token=" + "y" * 100 + " " + "z" * (pad - 60) + f" {MADE_UP_KEY}"
    response = QueryLogsResponse(
        topic="app-logs",
        query="",
        total=1,
        returned=1,
        events=[LogEvent(message="x", attributes={"note": text[:300]})],
        patterns=[LogPattern(template=text[:400], count=1)],
    )
    told = json.dumps(make_agent_result(response, ()))
    assert "AKIAA" not in told
    assert "yyyy" not in told


async def test_r51_the_scope_says_which_time_was_searched(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("2026-03-01 03:00:00 ERROR broken\n")
    logs = tool(tmp_path)
    seen = observed(await run(logs), logs)
    assert set(seen["scope"]) == {"topic", "query", "lookback_minutes", "from", "to"}
    assert seen["scope"]["from"] < "2026-03-01T03:00:00" <= seen["scope"]["to"]
