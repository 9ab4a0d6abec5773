"""Checkpoints grow linearly with the calls and stay small beside the default reducer (R12)."""

from __future__ import annotations

from pathlib import Path

from tests.bench import checkpoint_growth


async def test_r12_checkpoints_grow_linearly_and_stay_small(tmp_path: Path) -> None:
    at_40 = await checkpoint_growth.ours(40, tmp_path)
    at_80 = await checkpoint_growth.ours(80, tmp_path)
    assert at_80 / at_40 <= 2.5
    assert at_80 < await checkpoint_growth.theirs(80, tmp_path) / 10
