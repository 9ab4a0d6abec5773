"""A run that another process took over is exported and replayed as any other, wherever the first one died (R3, R67, R154)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from graph.contract import RunState, TraceEventType
from nodes.events import event
from nodes.ports import JournalBatch
from tests.fakes import SUPPORTED, by_round, call, draft
from tests.hooks import Crash, crash
from tests.loop import Loop, make_loop
from tests.replays import assert_replays, bundles_of

AGENT = [
    call("c1", "found a"),
    call("c2", "none b", ("c1", "GAINED")),
    draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c1"])]),
]
NODES = [
    "start_run",
    "model_step",
    "validate_envelope",
    "dedup_scope",
    "execute_tool",
    "project_observation",
    "project_progress",
    "guard_evidence",
    "guard_semantics",
    "release",
]


async def taken_over(node: str, when: str, *, hosted: bool, same: bool) -> Loop:
    """Die where the node's batch is written, and be carried on by another process: under the host's id, or one of its own."""
    loop = make_loop(by_round(AGENT, semantics=[SUPPORTED]), on_host=hosted, host_serialises_threads=hosted)
    getattr(loop.journal, when)[node] = crash
    execution = uuid.UUID(int=1)
    with pytest.raises(Crash):
        await loop.run(run_id=execution)
    if not hosted:
        loop.clock.advance(61)  # the dead execution's lease runs out
    await loop.resume(run_id=execution if same else uuid.UUID(int=2))
    return loop


@pytest.mark.parametrize("node", NODES)
async def test_r3_r67_a_run_that_its_host_repeated_replays_identically(node: str) -> None:
    for when in ("before", "after"):
        loop = await taken_over(node, when, hosted=True, same=True)
        (run,) = await loop.runs.runs()
        assert run.internal_state is RunState.SUCCESS
        (bundle,) = await bundles_of(loop)
        await assert_replays(bundle, loop.resources.tools)


@pytest.mark.parametrize("node", NODES[1:])
async def test_r3_r67_a_run_that_another_process_adopted_replays_identically(node: str) -> None:
    for when in ("before", "after"):
        loop = await taken_over(node, when, hosted=False, same=False)
        bundles = await bundles_of(loop)
        # Whoever enters the state of a Run that has ended makes a new one (R3); the old one has its end all the same.
        assert len(bundles) == (2 if node == "release" else 1)
        for bundle in bundles:
            assert bundle.run.internal_state is RunState.SUCCESS
            await assert_replays(bundle, loop.resources.tools)


@pytest.mark.parametrize("told", [False, True])
async def test_r8_r108_a_release_that_nobody_wrote_down_replays_identically(told: bool) -> None:
    loop = make_loop(by_round(AGENT, semantics=[SUPPORTED]))
    loop.journal.before["release"] = crash
    with pytest.raises(Crash):
        await loop.run()
    (run,) = await loop.runs.runs()
    if told:
        assert run.ended_at is not None
        ended: Any = event(TraceEventType.RUN_ENDED, internal_state=run.internal_state.value)
        await loop.journal.write(JournalBatch(run.run_id, "end:told", run.ended_at, [ended]))
    (bundle,) = await bundles_of(loop)
    assert not bundle.by_kind["result"]
    assert [row["type"] for row in bundle.trace].count("RUN_ENDED") == told
    await assert_replays(bundle, loop.resources.tools)
