"""kill -9 at the places where a Run writes something down; another process ends it as if nothing had been (R3, R8, R154)."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from tests.data import ROOT
from tests.durable import url_of
from tests.stores import KINDS

SOME = [
    "after runs.create",
    "after journal.write 0004:model_step",
    "after canonical.finish",
    "after runs.transition",
]


async def killed(folder: Path, url: str | None, *places: str) -> list[dict[str, Any]]:
    command = (sys.executable, "-m", "tests.crash", str(folder), url or "-", *places)
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in out.decode().splitlines()]


def check(told: list[dict[str, Any]]) -> None:
    whole, *disturbed = told
    assert whole["record"]["outcome"] == "CONCLUSION"
    assert disturbed
    for run in disturbed:
        place = run["place"]
        assert run["killed"], place
        if not run["runs_left"]:
            assert place.startswith("before runs.create"), "only a Run that was never stored may be gone"
            continue
        for part in ("record", "events", "steps", "result"):
            assert run[part] == whole[part], (place, part)
        assert not set(run["asked_again"]) & set(run["archived"]), (place, "an archived answer was asked for again")
        assert not set(run["ran_again"]) & set(run["ready"]), (place, "a stored call was executed again")
        assert len(run["asked_again"]) == len(set(run["asked_again"])), place


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
async def test_r154_a_killed_run_ends_as_if_it_had_not_been_killed(kind: str, tmp_path: Path) -> None:
    places = SOME if kind == "sqlite" else SOME[-2:]
    check(await killed(tmp_path / "runs", await url_of(kind, "crash"), *places))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_r154_wherever_the_process_is_killed(kind: str, tmp_path: Path) -> None:
    told = await killed(tmp_path / "runs", await url_of(kind, "crash"))
    check(told)
    nodes = {run["place"].partition(":")[2] for run in told if "journal.write" in run["place"]}
    assert nodes >= {"route_intent", "model_step", "execute_tool", "project_progress", "guard_semantics", "release"}
