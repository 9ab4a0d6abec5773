"""Recorded runs come out the same again; a changed rule does not (R67, R154)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import nodes.progress_rules
from graph.context import DiagnosisContext
from graph.tracker import DiagnosisProgressTracker
from nodes.ports import ModelReply, ModelRequest
from service.replay.bundle import Bundle
from service.replay.compare import Comparison, compare
from service.replay.engine import recorded_context, replay, replay_with
from service.replay.text import read_bundle
from service.replay.what_if import Thresholds, what_if
from tests.fakes import ScriptedModel, by_round, call, draft
from tests.record import PROBES, SCRIPTED, scripted
from tests.replays import assert_replays, replay_all
from tools.contract import EvidenceStatus

FOLDER = Path(__file__).parent.parent / "recordings"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def recording(name: str) -> Bundle:
    return read_bundle((FOLDER / f"{name}.json").read_bytes())


def tools(name: str) -> Any:
    return PROBES.get(name.split("-")[0])


async def replayed(name: str) -> Comparison:
    bundle = recording(name)
    return compare(bundle, (await replay(bundle, tools=tools(name))).bundle)


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


async def test_r154_a_changed_rule_of_gain_fails_the_replay_and_names_the_step(monkeypatch: Any) -> None:
    real = nodes.progress_rules.judge_result

    def generous(tracker: Any, completed: Any, status: EvidenceStatus) -> Any:
        return (
            (tracker.with_completed(completed), ())
            if status is EvidenceStatus.NO_EVIDENCE
            else real(tracker, completed, status)
        )

    monkeypatch.setattr("nodes.project_observation.judge_result", generous)
    found = await replayed("probe-stop")
    assert found.step == "step 11 (project_observation)"
    assert any(each.place == "tracker.consecutive_no_gain" for each in found.first)


async def test_r154_a_changed_rule_of_repetition_fails_the_replay_and_names_the_step(monkeypatch: Any) -> None:
    monkeypatch.setattr(DiagnosisProgressTracker, "duplicate_of", lambda self, key: None)
    found = await replayed("probe-stop")
    assert found.step == "step 14 (dedup_scope)"
    assert any(each.entry.startswith("step 0014") for each in found.first)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("fork")])
@pytest.mark.parametrize(("no_gain", "protocol"), [(1, 2), (2, 3)])
async def test_r154_what_if_agrees_with_the_graph(name: str, no_gain: int, protocol: int) -> None:
    bundle = recording(name)
    changes = {"no_gain_threshold": no_gain, "protocol_violation_threshold": protocol}
    context = DiagnosisContext.model_validate({**recorded_context(bundle).model_dump(), **changes})
    again = (await replay(bundle, tools=tools(name), context=context)).bundle
    assert again is not None
    found = what_if(bundle, Thresholds(no_gain, protocol), tools=tools(name))
    stopped = next((each for each in again.trace if each["type"] == "COLLECTION_SATURATED"), None)
    by_progress = stopped is not None and stopped["fields"]["stop_reason"] != "BUDGET_LIMIT_REACHED"
    assert (found.turn is not None) == by_progress
    if stopped is not None and by_progress:
        assert found.stop_reason == stopped["fields"]["stop_reason"]
        before = [key for key in again.path if key <= stopped["node"]]
        assert found.turn == sum(key.endswith(":model_step") for key in before)
        executed = sum(key.endswith(":execute_tool") for key in before)
        assert found.tool_calls - found.tool_calls_saved == executed


def test_what_if_tells_what_is_saved_and_what_is_lost() -> None:
    lost = what_if(recording("shop-checkout-zh"), Thresholds(no_gain=1))
    assert (lost.conclusion_lost, lost.published) == (True, True)
    assert lost.tool_calls_saved == len(lost.cited_missed) > 0
    assert lost.seconds_saved > 0
    same = what_if(recording("shop-checkout-zh"), Thresholds())
    assert (same.tool_calls_saved, same.tokens_saved, same.cited_missed, same.conclusion_lost) == (0, 0, (), False)
    beyond = what_if(recording("shop-checkout-zh"), Thresholds(no_gain=50))
    assert (beyond.turn, beyond.beyond_record, beyond.conclusion_lost) == (None, True, False)


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


def test_the_replay_of_every_run_of_a_test_can_fail() -> None:
    """What the hook in conftest relies on."""

    async def run() -> None:
        loop = await SCRIPTED["probe-stop"]()
        assert await replay_all(loop) == 1
        loop.resources.tools["query_probe"].facts = lambda scope, result: ()  # type: ignore[method-assign]
        with pytest.raises(AssertionError, match="differs at step"):
            await replay_all(loop)

    asyncio.run(run())
