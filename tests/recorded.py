"""The bundles of `tests/recordings`, and what they come to today."""

from __future__ import annotations

from collections.abc import Mapping

from service.replay.bundle import Bundle
from service.replay.compare import Comparison, compare
from service.replay.engine import replay
from service.replay.text import read_bundle
from tests.record import FOLDER, PROBES
from tools.evidence_tool import EvidenceTool

NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def recording(name: str) -> Bundle:
    """Read a bundle."""
    return read_bundle((FOLDER / f"{name}.json").read_bytes())


def tools(name: str) -> Mapping[str, EvidenceTool] | None:
    """What checks and projects in a recording; None where its bundle tells."""
    return PROBES.get(name.split("-")[0])


async def replayed(name: str) -> Comparison:
    """Replay a recording and compare."""
    bundle = recording(name)
    return compare(bundle, (await replay(bundle, tools=tools(name))).bundle)
