"""kill -9 of the served process at each superstep, restart, over real HTTP (R3, R8, R132, R154).

On SQLite, and on PostgreSQL with canonical records in Redis.
The Run ends as an undisturbed one does; no stored call is executed again and no archived answer asked for again, counted where
they arrive; the stream goes on from Last-Event-ID with no event lost or doubled.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.agreement import disagreements
from tests.e2e.killing import Killing, Outcome, killing
from tests.stores import KINDS

POINT = "journal 7"


def same(disturbed: Outcome, whole: Outcome, point: str) -> None:
    assert disturbed.told == whole.told, point
    assert disturbed.end == whole.end, point
    assert disturbed.steps == whole.steps, point


async def killed_at(killed: Killing, whole: Outcome, point: str) -> None:
    """Nothing is in flight at these points: every backend is asked exactly as often as by an undisturbed Run."""
    run = await killed.disturbed(point.replace(" ", "-"), point)
    same(run, whole, point)
    assert (run.model, run.logs) == (whole.model, whole.logs), point
    if not point.endswith(f" {len(whole.steps)}"):
        # The process that wrote the end down is gone before its last checkpoint and log line: nobody does them again.
        assert disagreements(run.sources) == [], point


async def undisturbed(killed: Killing) -> Outcome:
    whole = await killed.undisturbed("whole")
    assert disagreements(whole.sources) == []
    assert whole.end["release_outcome"] == "CONCLUSION"
    assert (sum(whole.model.values()), sum(whole.logs.values())) == (5, 2)
    return whole


async def killed_while_asking(killed: Killing, whole: Outcome) -> None:
    """From outside, while the model and then the log server is slow."""
    both = killed.both

    async def when_asked() -> None:
        await both.arrived.wait()
        killed.kill()
        both.arrived.clear()
        both.line.delay, both.line.on_request = 0.0, None

    both.slow["DIAGNOSIS_AGENT/2"] = 60.0
    run = await killed.disturbed("slow-model", meanwhile=when_asked)
    same(run, whole, "slow model")
    assert run.model - whole.model == {"DIAGNOSIS_AGENT/2": 1}, "the answer that never came, and no other"
    assert run.logs == whole.logs
    both.line.delay, both.line.on_request = 60.0, both.arrived.set
    run = await killed.disturbed("slow-logs", meanwhile=when_asked)
    same(run, whole, "slow log server")
    assert (run.model, run.logs) == (whole.model, whole.logs), "a query that never reached the log server is made once"
    assert disagreements(run.sources) == []


async def test_r154_a_served_run_survives_kill_9(tmp_path: Path) -> None:
    async with killing(tmp_path, "sqlite") as killed:
        whole = await undisturbed(killed)
        await killed_at(killed, whole, POINT)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_r154_a_served_run_survives_kill_9_while_it_waits_for_an_answer(kind: str, tmp_path: Path) -> None:
    async with killing(tmp_path, kind) as killed:
        await killed_while_asking(killed, await undisturbed(killed))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_r154_a_served_run_survives_kill_9_at_each_superstep(kind: str, tmp_path: Path) -> None:
    async with killing(tmp_path, kind) as killed:
        whole = await undisturbed(killed)
        assert len(whole.steps) == 18
        for step in range(1, len(whole.steps) + 1):
            for what in ("journal", "checkpoint"):
                await killed_at(killed, whole, f"{what} {step}")
