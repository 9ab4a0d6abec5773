"""With SUPERBIZ_REPLAY_EVERY_RUN=1 each run that a test of the loop makes is exported and replayed after the test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from tests.loop import MADE
from tests.replays import replay_all

EVERY_RUN = os.environ.get("SUPERBIZ_REPLAY_EVERY_RUN", "") not in ("", "0")


@pytest.fixture(autouse=True)
def _replayed(request: pytest.FixtureRequest) -> Iterator[None]:
    MADE.clear()
    yield
    loops, reason = list(MADE), request.node.get_closest_marker("not_replayable")
    MADE.clear()
    if EVERY_RUN and reason is None:
        for loop in loops:
            asyncio.run(replay_all(loop))
