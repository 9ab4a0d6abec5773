"""Cancel, completion, timeout, stop and kill race for the end of a Run: there is one (R3, R8, R119, R120)."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import pytest

import service.recovery
import service.runner
from service.store.engine import open_database
from tests.data import ROOT
from tests.durable import url_of
from tests.race import hurry, judged, prepared, promises_of, raced, settled, staying, watched
from tests.stores import KINDS


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (service.recovery, "SWEEP_SECONDS"),
        (service.runner, "CANCEL_POLL_SECONDS"),
        (service.runner, "WAIT_POLL_SECONDS"),
        (service.runner, "GRACE_SECONDS"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))
    hurry()


async def race(kind: str, folder: Path, runs: int, hosts_killed: int) -> None:
    seed = int(os.environ.get("SUPERBIZ_RACE_SEED", random.randrange(1 << 30)))
    print(f"SUPERBIZ_RACE_SEED={seed}")
    url = await url_of(kind, "race")
    settings = prepared(folder, url)
    engine = await open_database(settings.resolved_database_url())
    await watched(engine)
    each = 5
    command = (sys.executable, "-m", "tests.race", str(folder), url or "-", str(seed), str(hosts_killed), str(each))
    dying = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
    raced_here = await raced(settings, seed, runs - hosts_killed * each, at_once=8)
    assert await dying.wait() == 0
    await settled(settings, engine, seed)
    told = promises_of(folder)
    begun = [*raced_here.begun, *told["begun"]]
    acknowledged = raced_here.acknowledged | told["acknowledged"]
    async with staying(settings, seed) as last:
        ends = await judged(last.app, engine, begun, raced_here.asked | told["asked"], acknowledged)
    await engine.dispose()
    print(ends, f"{len(acknowledged)} cancels acknowledged, {len(told['begun'])} Runs in killed processes")
    assert min(ends[state] for state in ("CANCELLED", "SUCCESS", "TIMED_OUT"))


async def test_r8_r119_r120_a_hundred_runs_end_once_whatever_races(tmp_path: Path) -> None:
    await race("sqlite", tmp_path, runs=100, hosts_killed=3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_r8_r119_r120_hundreds_of_runs_end_once_whatever_races(kind: str, tmp_path: Path) -> None:
    await race(kind, tmp_path, runs=500, hosts_killed=30)
