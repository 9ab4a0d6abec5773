"""Isolation of Runs, forks from every checkpoint, edited states, leases (R1, R3, R11, R67, R100)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import ValidationError

from nodes.harness import RunTakenElsewhere
from nodes.ports import ModelReply, ModelRequest
from service.store.clock import SystemClock
from tests.fakes import SUPPORTED, ProbeTool, ScriptedModel, by_round, call, calls, draft, envelope
from tests.loop import Loop, assert_every_call_answered_once, make_loop
from tools.canonical.store import CanonicalStoreUnavailable

CONCLUDED = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c1"])])
FALSE = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c9"])])
AGENT = [
    call("c1", "found a"),
    calls(("c2", "query_probe", envelope("none b", ("c1", "GAINED"))), ("e2", "query_probe", None)),
    call("c3", "found a"),
    call("c4", "violate d"),
    call("c5", "error e"),
    FALSE,
]
"""A run through every node: found, parallel, duplicate, withheld, failed, repaired, judged, released."""


async def finished(agent: list[Any] | None = None, **options: Any) -> Loop:
    loop = make_loop(by_round(agent or AGENT, [CONCLUDED], [SUPPORTED]), **options)
    await loop.run()
    return loop


async def kept(loop: Loop, run_id: str) -> str:
    """Everything stored of a Run: record, trace, steps, archive."""
    journal = loop.journal
    parts = (await journal.trace(run_id), await journal.steps(run_id), await journal.archive(run_id))
    return repr((await loop.runs.get(run_id), parts))


async def test_r1_a_second_question_on_the_thread_inherits_nothing() -> None:
    script = [*AGENT[:4], FALSE, CONCLUDED, SUPPORTED]
    loop = make_loop([*script, draft(None, missing_info=["which service?"])])
    first = dict(await loop.run("first question"))
    second = await loop.run("second question")
    assert second["run"]["run_id"] != first["run"]["run_id"]
    fresh = make_loop([draft(None, missing_info=["which service?"])])
    expected = await fresh.run("second question")
    for name in ("tracker", "budget", "ledger", "position", "draft", "snapshot", "ended", "requested", "call"):
        assert (second.get(name) or None) == _with_id_of(expected.get(name) or None, expected, second), name
    assert not second.get("tracker_index")
    assert not second.get("guard")
    assert not second.get("output_failure")
    assert [str(message.content) for message in second["messages"]] == [
        "second question",
        second["messages"][-1].content,
    ]
    assert "first question" not in str([m.content for m in loop.model.requests[-1].messages])
    assert second["outcome"]["fallback"]["reason"] == "MISSING_REQUIRED_CONTEXT", "no tools in this Run's index"


def _with_id_of(value: Any, run: dict[str, Any], other: dict[str, Any]) -> Any:
    return json.loads(json.dumps(value).replace(run["run"]["run_id"], other["run"]["run_id"])) if value else value


async def test_r100_a_call_of_an_earlier_run_is_no_legal_reference() -> None:
    loop = make_loop([call("c1", "found a"), draft(), call("d1", "found d"), CONCLUDED, draft()])
    await loop.run()
    await loop.run()
    (guard,) = await loop.events("EVIDENCE_GUARD")
    assert "UNKNOWN_TOOL_CALL" in guard["violations"]
    assert loop.outcome["release_outcome"] == "FALLBACK"


async def test_r1_r11_concurrent_runs_share_nothing() -> None:
    def answer(request: ModelRequest) -> Any:
        async def later() -> ModelReply:
            await asyncio.sleep(0)
            name = str(request.messages[1].content)
            number = request.round_
            if name == "quiet":
                return call(f"c{number}", f"none {number}") if number < 5 else draft()
            previous = (f"c{number - 1}", "GAINED") if number > 1 else None
            return call(f"c{number}", f"found {number}", previous) if number < 6 else draft()

        return later()

    loop = make_loop(answer)
    names = ["quiet", "loud"] * 5
    graph, config = loop.graph, Loop.config
    states = await asyncio.gather(*(graph.ainvoke({"query": name}, config(f"t{i}")) for i, name in enumerate(names)))
    assert len({state["run"]["run_id"] for state in states}) == len(names)
    for name, state in zip(names, states, strict=True):
        assert state["outcome"]["stop_reason"] == ("INFORMATION_SATURATED" if name == "quiet" else None)
        assert len(state["tracker_index"]) == (3 if name == "quiet" else 5)
        assert state["budget"]["tokens"] == state["outcome"]["usage"]["ledger_total_tokens"]
        facts = state["outcome"]["fallback"]["observed_facts"]
        assert {("matched=0" in fact["statement"]) for fact in facts} == {name == "quiet"}


async def test_r3_a_fork_from_every_checkpoint_ends_as_a_new_run_and_leaves_the_old_one_alone() -> None:
    loop = await finished()
    old, old_outcome = loop.run_id, loop.outcome
    assert old_outcome["release_outcome"] == "CONCLUSION"
    before, count = await kept(loop, old), 0
    visited = set()
    for checkpoint in await loop.history():
        if not checkpoint.next or checkpoint.next[0] in ("__start__", "start_run"):
            continue
        count += 1
        visited.add(checkpoint.next[0])
        await loop.resume(checkpoint.config)
        assert loop.run_id != old
        record = await loop.record()
        assert (record.forked_from, record.internal_state) == (old, "SUCCESS")
        assert_every_call_answered_once(loop.state)
        assert loop.outcome["published_result"] == old_outcome["published_result"], checkpoint.next
        assert all(loop.run_id in entry["canonical_key"] for entry in loop.state["tracker_index"])
        assert await kept(loop, old) == before
        events = await loop.events()
        assert (events[0]["type"], events[0]["forked_from"]) == ("RUN_STARTED", old)
        assert [each["type"] for each in events].count("RUN_ENDED") == 1
    assert count > 25
    assert visited == {
        "model_step",
        "validate_envelope",
        "dedup_scope",
        "execute_tool",
        "project_observation",
        "reject_call",
        "project_progress",
        "guard_evidence",
        "repair_evidence",
        "guard_semantics",
        "release",
    }


async def test_r3_a_rerun_from_the_start_is_a_run_of_its_own() -> None:
    loop = await finished()
    old = loop.run_id
    before = await kept(loop, old)
    first = (await loop.history())[0]
    await loop.resume(first.config)
    assert loop.run_id != old
    assert loop.outcome["release_outcome"] == "CONCLUSION"
    assert await kept(loop, old) == before


async def test_r3_r67_a_fork_after_the_records_expired_reads_the_archive() -> None:
    loop = await finished()
    old = loop.run_id
    loop.canonical.forget()
    await loop.resume((await loop.at("project_progress")).config)
    assert loop.outcome["release_outcome"] == "CONCLUSION"
    assert loop.run_id != old


async def test_r3_r67_a_fork_of_a_fork_has_all_the_evidence() -> None:
    loop = await finished()
    await loop.resume((await loop.at("project_progress")).config)
    second = loop.run_id
    latest = [each for each in await loop.history() if each.next == ("guard_evidence",)][-1]
    assert latest.values["run"]["run_id"] == second
    loop.canonical.forget()
    await loop.resume(latest.config)
    assert (await loop.record()).forked_from == second
    assert loop.outcome["release_outcome"] == "CONCLUSION"
    kinds = {(entry.kind, entry.key) for entry in await loop.journal.archive(loop.run_id)}
    assert {("question", "question"), ("settings", "context"), ("agent_result", "c1"), ("result", "result")} <= kinds


async def test_r17_r65_what_was_withheld_stays_withheld_in_a_fork() -> None:
    loop = await finished([call("c1", "violate a"), draft()])
    assert loop.outcome["fallback"]["observed_facts"] == []
    await loop.resume((await loop.at("project_progress")).config)
    assert loop.outcome["fallback"]["observed_facts"] == []


async def test_r3_r65_a_fork_while_the_store_is_away_is_released_with_limitations() -> None:
    loop = await finished([call("c1", "found a"), draft()])

    def away(operation: str, count: int) -> None:
        raise CanonicalStoreUnavailable

    loop.canonical.on = away
    await loop.resume((await loop.at("project_progress")).config)
    assert loop.outcome["release_outcome"] == "FALLBACK"
    assert loop.outcome["fallback"]["observed_facts"] == []
    assert "CANONICAL_RECORD_UNAVAILABLE" in loop.outcome["fallback"]["limitations"]["notes"]


async def test_r3_a_fork_with_an_archive_that_is_gone_invents_nothing() -> None:
    loop = await finished()
    await loop.journal.purge(loop.clock.now() + 40 * 86_400)
    again = [each for each in await loop.history() if each.next == ("guard_evidence",)][-1]
    await loop.resume(again.config)
    assert loop.outcome["release_outcome"] == "FALLBACK"
    (guard,) = await loop.events("EVIDENCE_GUARD")
    assert "RECORD_UNAVAILABLE" in guard["violations"]


async def edited(loop: Loop, node: str, change: Any) -> Loop:
    """Fork at `node` with what `change` makes of the state there, as Studio does."""
    checkpoint = [each for each in await loop.history() if each.next == (node,)][-1]
    config = await loop.graph.aupdate_state(checkpoint.config, change(checkpoint.values))
    await loop.resume(config)
    return loop


async def test_r3_r37_a_fork_with_an_edited_evaluation_goes_where_the_rules_say() -> None:
    script = [call("c1", "found a"), call("c2", "found b", ("c1", "GAINED")), draft()]
    loop = make_loop(by_round(script))
    await loop.run(no_gain_threshold=1)
    assert loop.tool.ran == ["found a", "found b"]

    def no_gain(values: dict[str, Any]) -> dict[str, Any]:
        return {"call": {**values["call"], "evaluation": {"tool_call_id": "c1", "information_gain": "NO_GAIN"}}}

    await edited(loop, "dedup_scope", no_gain)
    assert loop.tool.ran == ["found a", "found b"], "the second call is refused now"
    assert loop.answers()[-1] == {
        "stop_required": True,
        "reason": "INFORMATION_SATURATED",
        "previous_observation_applied": True,
    }
    assert loop.outcome["stop_reason"] == "INFORMATION_SATURATED"
    assert len(await loop.events("TOOL_CALL_COMPLETED")) == 0, "the fork's trace holds what the fork did"


async def test_r3_a_fork_with_an_edited_threshold_stops_earlier_and_later() -> None:
    script = [call("c1", "none a"), call("c2", "none b"), call("c3", "none c"), draft()]
    loop = await finished(script)
    assert loop.outcome["stop_reason"] == "INFORMATION_SATURATED"
    checkpoint = [each for each in await loop.history() if each.next == ("dedup_scope",)]

    async def with_threshold(threshold: int) -> str | None:
        tracker = {**checkpoint[1].values["tracker"], "no_gain_threshold": threshold}
        await loop.resume(await loop.graph.aupdate_state(checkpoint[1].config, {"tracker": tracker}))
        return loop.outcome["stop_reason"]  # type: ignore[no-any-return]

    assert await with_threshold(2) == "INFORMATION_SATURATED"
    assert len(loop.state["tracker_index"]) == 2
    assert await with_threshold(9) is None
    assert len(loop.state["tracker_index"]) == 3


async def test_r3_a_fork_with_an_edited_input_asks_the_tool_anew() -> None:
    loop = await finished([call("c1", "found a"), draft()])

    def other(values: dict[str, Any]) -> dict[str, Any]:
        tool = loop.tool
        request = tool.envelope.model_validate({"input": {"query": "found z"}}).input  # type: ignore[attr-defined]
        scope = tool.scope(request).model_dump(mode="json")
        return {"call": {**values["call"], "input": {"query": "found z"}, "scope": scope}}

    await edited(loop, "execute_tool", other)
    assert loop.tool.ran == ["found a", "found z"]
    assert loop.answers()[0]["scope"] == {"query": "found z"}


@pytest.mark.parametrize(
    ("node", "change"),
    [
        ("model_step", {"tracker": {"no_gain_threshold": 0}}),
        ("model_step", {"tracker": {"state": "OPEN"}}),
        ("model_step", {"budget": {"model_calls": "many"}}),
        ("model_step", {"ledger": {"accounts": {"NOBODY": {}}}}),
        ("dedup_scope", {"call": {"tool_call_id": "not an id!", "surprise": True}}),
        ("project_progress", {"ended": {"cause": "BORED"}}),
        ("model_step", {"run": {"run_id": 7}}),
    ],
)
async def test_r3_an_edit_into_nonsense_is_a_clear_error_and_no_hang(node: str, change: dict[str, Any]) -> None:
    loop = await finished([call("c1", "found a"), draft()])
    before = await kept(loop, loop.run_id)
    config = await loop.graph.aupdate_state((await loop.at(node)).config, change)
    with pytest.raises(ValidationError):
        await asyncio.wait_for(loop.resume(config), 10)
    (old,) = [run for run in await loop.runs.runs() if run.forked_from is None]
    assert await kept(loop, old.run_id) == before


async def test_r3_a_nonsense_tracker_is_refused_before_a_run_is_created() -> None:
    loop = await finished([call("c1", "found a"), draft()])
    config = await loop.graph.aupdate_state((await loop.at("model_step")).config, {"tracker": {"state": "OPEN"}})
    with pytest.raises(ValidationError):
        await loop.resume(config)
    assert len(await loop.runs.runs()) == 1


async def test_r2_a_model_that_does_not_exist_leaves_no_run_behind() -> None:
    class Factory:
        def client(self, name: str | None) -> ScriptedModel:
            raise ValueError("model: allowed are offline")

    loop = make_loop([], models=Factory())
    with pytest.raises(ValueError, match="allowed are"):
        await loop.run()
    assert await loop.runs.runs() == ()


@pytest.mark.parametrize("question", ["", "  \n", "x" * 4001, None, 7, "\ud800"])
async def test_r1_a_question_that_is_none_is_refused_and_leaves_no_run_behind(question: Any) -> None:
    loop = make_loop([draft()], checkpointer=None)
    with pytest.raises(ValueError, match="query: "):
        await loop.run(question)
    assert await loop.runs.runs() == ()


async def test_r3_another_execution_may_not_take_a_living_run_over_but_may_when_its_lease_ended() -> None:
    loop = make_loop(by_round([call("c1", "found a"), draft()]))
    loop.journal.after["execute_tool"] = _die
    with pytest.raises(RuntimeError):
        await loop.run()
    (run,) = await loop.runs.runs()
    with pytest.raises(RunTakenElsewhere):
        await loop.resume()
    assert await loop.runs.get(run.run_id) == run
    loop.clock.advance(61)
    await loop.resume()
    assert loop.run_id == run.run_id, "a crash is resumed, not forked"
    assert loop.outcome["release_outcome"] == "FALLBACK"
    assert loop.tool.ran == ["found a"]


async def test_r3_a_host_that_serialises_threads_takes_over_at_once() -> None:
    loop = make_loop(by_round([call("c1", "found a"), draft()]), host_serialises_threads=True)
    loop.journal.after["execute_tool"] = _die
    with pytest.raises(RuntimeError):
        await loop.run()
    await loop.resume()
    assert len(await loop.runs.runs()) == 1


def _die(batch: Any) -> None:
    raise RuntimeError("the process died")


@pytest.mark.parametrize("place", ["model", "tool"])
async def test_r3_a_call_longer_than_the_lease_keeps_the_run_its_own(place: str) -> None:
    taken: list[bool] = []

    async def slowly() -> None:
        await asyncio.sleep(0.5)
        (run,) = await loop.runs.runs()
        now = loop.clock.now()
        taken.append(await loop.runs.take_lease(run.run_id, "another execution", now, now + 60, False))

    async def in_model() -> ModelReply:
        await slowly()
        return draft()

    async def in_tool(query: str) -> None:
        if place == "tool":
            await slowly()

    clock: Any = SystemClock()
    agent = [call("c1", "found a"), draft()] if place == "tool" else [lambda request: in_model()]
    loop = make_loop(by_round(agent), clock=clock, lease_seconds=0.3, tool=ProbeTool(before_run=in_tool))
    await loop.run()
    assert taken == [False]
    assert loop.outcome["release_outcome"] == "FALLBACK"
