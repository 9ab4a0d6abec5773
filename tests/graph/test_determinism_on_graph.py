"""The same script, clock and ids give the same bytes in every process (design: a replay must give the same bytes)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


async def recorded(seed: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.graph.recorded_run",
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()[-2000:]
    return out


async def test_r67_states_traces_and_archives_are_the_same_bytes_in_two_processes() -> None:
    first, second = await asyncio.gather(recorded("1"), recorded("4242"))
    assert first == second
    kept = json.loads(first)
    assert kept["run 1"]["state"]["outcome"]["release_outcome"] == "CONCLUSION"
    assert len(kept["run 1"]["trace"]) > 20
    assert len(kept["checkpoints"]) > 40
