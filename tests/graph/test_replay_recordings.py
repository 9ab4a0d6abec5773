"""Recorded runs come out the same again, and what-if agrees with the graph (R67, R154)."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from graph.context import DiagnosisContext
from nodes.ports import ModelReply, ModelRequest
from service.replay.bundle import Bundle, Entry
from service.replay.compare import compare
from service.replay.engine import recorded_context, replay, replay_with
from service.replay.what_if import Thresholds, WhatIf, history_of, what_if
from tests.fakes import ScriptedModel, by_round, call, calls, draft
from tests.loop import make_loop
from tests.record import FOLDER, SCRIPTED, scripted
from tests.recorded import NAMES, recording, tools
from tests.replays import assert_replays, bundles_of, replay_all


def test_there_are_recordings_of_every_way_a_run_can_go() -> None:
    assert set(SCRIPTED) < set(NAMES)
    outcomes = {recording(name).run.release_outcome.value for name in NAMES}
    assert outcomes == {"CONCLUSION", "FALLBACK", "KNOWLEDGE_ANSWER", "CHAT", "NONE"}
    states = {recording(name).run.internal_state.value for name in NAMES}
    assert states >= {"SUCCESS", "CANCELLED", "BUDGET_EXHAUSTED"}


@pytest.mark.parametrize("name", NAMES)
async def test_r67_r154_a_recorded_run_replays_byte_for_byte(name: str) -> None:
    await assert_replays(recording(name), tools(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_holds_no_machine(name: str) -> None:
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    assert not [each for each in ("/home/", "/root", "/tmp", "/work", str(Path.cwd()), "localhost") if each in text]


@pytest.mark.parametrize("name", sorted(SCRIPTED))
async def test_recordings_are_what_the_script_records(name: str) -> None:
    assert compare(recording(name), await scripted(name)).identical


def under(bundle: Bundle, no_gain: int, protocol: int) -> tuple[Bundle, DiagnosisContext]:
    """A recorded run with other thresholds: a fork brings its own in the tracker, any other gets them from its context."""
    limits = {"no_gain_threshold": no_gain, "protocol_violation_threshold": protocol}
    context = DiagnosisContext.model_validate({**recorded_context(bundle).model_dump(), **limits})
    entries = list(bundle.entries)
    for place, each in enumerate(entries):
        if each.kind == "fork":
            state = each.payload["state"]
            changed = {**each.payload, "state": {**state, "tracker": {**state["tracker"], **limits}}}
            entries[place] = Entry(each.kind, each.key, changed)
    return Bundle.of(bundle.run_id, entries), context


async def assert_stops_where_the_graph_stops(
    bundle: Bundle, no_gain: int, protocol: int, tools: Any, turns_before: int = 0
) -> bool:
    """Compare step, turn, reason and calls; say whether there was a stop."""
    changed, context = under(bundle, no_gain, protocol)
    again = (await replay(changed, tools=tools, context=context)).bundle
    assert again is not None
    past = history_of(bundle)
    found = what_if(past, Thresholds(no_gain, protocol))
    stops = [each for each in again.trace if each["type"] == "COLLECTION_SATURATED"]
    stopped = next((each for each in stops if each["fields"]["stop_reason"] != "BUDGET_LIMIT_REACHED"), None)
    if stopped is None:
        assert found == WhatIf(None)
        return False
    assert (found.stopped_at, found.stop_reason) == (int(stopped["node"][:4]), stopped["fields"]["stop_reason"])
    before = [key for key in again.path if key <= stopped["node"]]
    assert found.turn == turns_before + sum(key.endswith(":model_step") for key in before)
    assert past.calls - found.calls_saved == sum(key.endswith(":project_observation") for key in before)
    return True


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("no_gain", "protocol"), [(1, 2), (2, 3)])
async def test_r154_what_if_agrees_with_the_graph(name: str, no_gain: int, protocol: int) -> None:
    turns = 2 if name == "probe-fork" else 0
    await assert_stops_where_the_graph_stops(recording(name), no_gain, protocol, tools(name), turns)


@pytest.mark.parametrize("node", ["dedup_scope", "project_observation", "require_stop"])
async def test_r3_r154_what_if_of_a_fork_agrees_with_the_graph(node: str) -> None:
    """A fork from each place of a run begins with counts of its parent, or with collection over."""
    agent = [
        call("c1", "none a"),
        calls(("c2", "query_probe", None)),
        call("c3", "found b"),
        call("c4", "none c", ("c3", "NO_GAIN")),
        draft(),
    ]
    loop = make_loop(by_round(agent))
    await loop.run(run_id=uuid.UUID(int=1))
    places = [each for each in await loop.history() if each.next == (node,)]
    stops = []
    for number, place in enumerate(places, start=2):
        await loop.resume(place.config, run_id=uuid.UUID(int=number))
        bundle = next(each for each in await bundles_of(loop) if each.run_id == loop.run_id)
        assert bundle.by_kind["fork"]
        turns = place.values["position"]["turn"]
        for no_gain, protocol in ((1, 3), (2, 2)):
            stop = await assert_stops_where_the_graph_stops(bundle, no_gain, protocol, loop.resources.tools, turns)
            stops.append(stop)
    assert any(stops) == (node != "require_stop")


def test_what_if_tells_what_is_saved_and_what_is_lost() -> None:
    past = history_of(recording("shop-checkout-zh"))
    lost = what_if(past, Thresholds(1, past.recorded.protocol))
    assert (lost.conclusion_lost, past.has_conclusion) == (True, True)
    assert lost.calls_saved == len(lost.cited_lost) > 0
    assert lost.seconds_saved > 0
    same = what_if(past, past.recorded)
    assert (same.calls_saved, same.tokens_saved, same.cited_lost, same.conclusion_lost) == (0, 0, (), False)
    assert past.stopped_by_progress
    assert what_if(past, Thresholds(50, past.recorded.protocol)) == WhatIf(None)


async def test_a_live_model_gets_recorded_results_and_its_other_calls_are_listed() -> None:
    asked: list[ModelRequest] = []

    def first(request: ModelRequest) -> ModelReply:
        asked.append(request)
        return call("x1", "found a")

    model = ScriptedModel(by_round([first, call("x2", "found elsewhere", ("x1", "GAINED")), draft()]))
    found = await replay_with(recording("probe-stop"), model, tools=tools("probe-stop"))
    assert (found.recorded_calls, [each.summary for each in found.unrecorded]) == (1, ["probe found elsewhere"])
    assert found.outcome is not None
    assert found.outcome["release_outcome"] == "FALLBACK"
    assert found.outcome["usage"]["tool_calls"] == 2
    assert asked[0].messages[-1].content == "why?"


@pytest.mark.not_replayable("its tool is another after the run, on purpose")
def test_the_replay_of_every_run_of_a_test_can_fail() -> None:
    """What the hook in conftest relies on."""

    async def run() -> None:
        loop = await SCRIPTED["probe-stop"]()
        assert await replay_all(loop) == 1
        loop.resources.tools["query_probe"].facts = lambda scope, result: ()  # type: ignore[method-assign]
        with pytest.raises(AssertionError, match="differs at step"):
            await replay_all(loop)

    asyncio.run(run())
