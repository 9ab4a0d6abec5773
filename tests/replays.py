"""Exports and replays the runs of a loop: what a test has made must come out the same again (R67, R154)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.replay.bundle import Bundle
from service.replay.compare import compare
from service.replay.engine import replay
from service.replay.export import export_run
from service.replay.text import read_bundle, write_bundle
from service.store.status import TERMINAL
from tools.evidence_tool import EvidenceTool


async def bundles_of(loop: Any) -> list[Bundle]:
    """The bundles of all finished runs of a loop, read back from their text."""
    records = [record for record in await loop.runs.runs(1000) if record.internal_state in TERMINAL]
    return [
        read_bundle(write_bundle(await export_run(record, loop.journal)).encode())
        for record in records
        if await loop.journal.archive(record.run_id)
    ]


async def assert_replays(bundle: Bundle, tools: Mapping[str, EvidenceTool] | None = None) -> None:
    """A replay reproduces every byte of the bundle."""
    replayed = await replay(bundle, tools=tools)
    found = compare(bundle, replayed.bundle)
    lines = "\n".join(str(each) for each in found.first)
    assert found.identical, f"{bundle.run_id} differs at {found.step} (left at {replayed.left_at}):\n{lines}"


async def replay_all(loop: Any) -> int:
    """Replay every finished run of a loop; return how many there were."""
    bundles = await bundles_of(loop)
    for bundle in bundles:
        await assert_replays(bundle, loop.resources.tools)
    return len(bundles)
