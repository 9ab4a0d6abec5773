"""Ledger, tokens, agent steps and the run record agree (R108-R116)."""

from __future__ import annotations

from typing import Any

from nodes.ports import ModelFailureKind, TokenUsage
from tests.fakes import SUPPORTED, by_round, call, calls, draft, envelope, text
from tests.loop import Loop, make_loop

FALSE = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c9"])])
CONCLUDED = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c1"])])
TOKENS = {"input_tokens", "output_tokens", "total_tokens"}


async def ran(agent: list[Any], repair: list[Any] | None = None, semantics: list[Any] | None = None) -> Loop:
    loop = make_loop(by_round(agent, repair or [], semantics or [SUPPORTED]))
    await loop.run()
    return loop


async def model_events(loop: Loop) -> list[dict[str, Any]]:
    return await loop.events("MODEL_CALL")


async def test_r110_rounds_count_each_component_from_one() -> None:
    loop = await ran([call("c1", "found a"), FALSE], [CONCLUDED], [text("?"), SUPPORTED])
    seen = [(event["component"], event["component_round"]) for event in await model_events(loop)]
    assert seen == [
        ("DIAGNOSIS_AGENT", 1),
        ("DIAGNOSIS_AGENT", 2),
        ("EVIDENCE_REPAIR", 1),
        ("SEMANTIC_GUARD", 1),
        ("SEMANTIC_GUARD", 2),
    ]
    assert [(each.component.value, each.round_) for each in loop.model.requests] == seen
    assert loop.outcome["usage"]["components"] == {"DIAGNOSIS_AGENT": 2, "EVIDENCE_REPAIR": 1, "SEMANTIC_GUARD": 2}


async def test_r112_r115_trace_ledger_budget_and_run_record_tell_one_total() -> None:
    loop = await ran(
        [calls(("c1", "query_probe", envelope("found a")), usage=TokenUsage(1000, 7)), FALSE],
        [text(CONCLUDED.text, TokenUsage(333, 33))],
        [text("?", TokenUsage(11, 1)), SUPPORTED],
    )
    total = 1007 + 120 + 366 + 12 + 120
    assert sum(event["total_tokens"] for event in await model_events(loop)) == total
    (ended,) = await loop.events("RUN_ENDED")
    assert (ended["budget_total_tokens"], ended["ledger_total_tokens"]) == (total, total)
    assert (ended["tokens_reconciled"], ended["usage_unavailable"], ended["model_calls"]) == (True, 0, 5)
    assert ended["tool_calls"] == 1
    record = await loop.record()
    assert record.total_token_count == total
    assert record.usage["total_tokens"] == total
    assert loop.state["budget"]["tokens"] == total


async def test_r113_token_fields_stand_only_where_usage_is_known() -> None:
    loop = await ran([calls(("c1", "query_probe", envelope("found a")), usage=None), draft()])
    first, second = await model_events(loop)
    assert first["usage_available"] is False
    assert not TOKENS & set(first)
    assert second["usage_available"] is True
    assert set(second) >= TOKENS
    assert second["total_tokens"] == second["input_tokens"] + second["output_tokens"]


async def test_r116_missing_usage_is_a_gap_and_never_reconciled() -> None:
    loop = await ran([calls(("c1", "query_probe", envelope("found a")), usage=None), draft()])
    (ended,) = await loop.events("RUN_ENDED")
    assert (ended["usage_unavailable"], ended["tokens_reconciled"]) == (1, False)
    assert ended["budget_total_tokens"] == ended["ledger_total_tokens"] == 120
    steps = await loop.journal.steps(loop.run_id)
    assert [step.token_count for step in steps] == [None, 120], "a gap, not zero"


async def test_r116_usage_of_zero_tokens_is_known_usage() -> None:
    loop = await ran([text(draft().text, TokenUsage(0, 0))])
    (event,) = await model_events(loop)
    assert (event["usage_available"], event["total_tokens"]) == (True, 0)
    (ended,) = await loop.events("RUN_ENDED")
    assert ended["tokens_reconciled"] is True


async def test_r116_a_failed_attempt_is_audited_and_its_usage_unavailable() -> None:
    loop = await ran([call("c1", "found a"), ModelFailureKind.AUTHENTICATION])
    failed = (await model_events(loop))[1]
    assert (failed["component_round"], failed["usage_available"]) == (2, False)
    (ended,) = await loop.events("RUN_ENDED")
    assert (ended["model_calls"], ended["usage_unavailable"], ended["tokens_reconciled"]) == (2, 1, False)
    assert (await loop.record()).total_token_count == 120


async def test_r114_agent_steps_are_the_diagnosis_agents_alone() -> None:
    loop = await ran([call("c1", "found a"), FALSE], [CONCLUDED], [SUPPORTED])
    rows = await loop.journal.steps(loop.run_id)
    assert [(row.round_, row.kind, row.tool_call_ids, row.token_count) for row in rows] == [
        (1, "tool_calls", ("c1",), 120),
        (2, "draft", (), 120),
    ]


async def test_r114_every_kind_of_round_has_its_step() -> None:
    for last, kind in (
        (text("no draft"), "output_failure"),
        (ModelFailureKind.REQUEST_REFUSED, "failed"),
        (call("bad id", "found b"), "output_failure"),
    ):
        loop = await ran([call("c1", "found a"), last])
        rows = await loop.journal.steps(loop.run_id)
        assert [(row.round_, row.kind) for row in rows] == [(1, "tool_calls"), (2, kind)]


async def test_r29_dropped_parallel_calls_are_traced_and_are_no_violation() -> None:
    from dataclasses import replace

    loop = await ran([replace(call("c1", "found a"), dropped_calls=3), draft()])
    (event,) = await loop.events("PARALLEL_CALLS_DROPPED")
    assert event["count"] == 3
    assert loop.state["tracker"]["consecutive_protocol_violations"] == 0
    assert await loop.events("TOOL_REQUEST_REJECTED") == []


async def test_r103_r108_gains_say_who_judged_and_what_changed() -> None:
    agent = [call("c1", "found a"), call("c2", "none b", ("c1", "NO_GAIN")), call("c3", "found c"), draft()]
    loop = await ran(agent)
    fields = ("tool_call_id", "producer", "information_gain", "before", "after", "collection_state")
    assert [tuple(event[name] for name in fields) for event in await loop.events("INFORMATION_GAIN_APPLIED")] == [
        ("c1", "MODEL", "NO_GAIN", 0, 1, "COLLECTING"),
        ("c2", "HARNESS", "NO_GAIN", 1, 2, "COLLECTING"),
    ]
    completed = await loop.events("TOOL_CALL_COMPLETED")
    assert [(event["tool_call_id"], event["evidence_status"], event["scope_summary"]) for event in completed] == [
        ("c1", "EVIDENCE_FOUND", "probe found a"),
        ("c2", "NO_EVIDENCE", "probe none b"),
        ("c3", "EVIDENCE_FOUND", "probe found c"),
    ]


async def test_r108_seq_is_monotone_from_one_and_the_run_begins_and_ends_once() -> None:
    loop = await ran([call("c1", "found a"), draft()])
    rows = await loop.journal.trace(loop.run_id)
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    names = [row.type.value for row in rows]
    assert (names[0], names[-1]) == ("RUN_STARTED", "RUN_ENDED")
    assert names.count("RUN_ENDED") == names.count("RELEASE_DECIDED") == 1
