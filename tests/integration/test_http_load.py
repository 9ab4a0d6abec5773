"""Many streams at once over loopback, in a smaller number than `tests.bench.http_load` asks for (R132, R134)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.http_load import load, ready
from tests.http_service import process

RUNS = 40


@pytest.mark.slow
async def test_r134_runs_beyond_those_that_execute_end_as_one_that_is_alone(tmp_path: Path) -> None:
    with process(tmp_path, SUPERBIZ_MAX_RUNS=str(RUNS)) as (_, url):
        await ready(url)
        _, _, alone = await load(url, 1)
        assert (alone.events[0], alone.outcome) == ("run_started", "CONCLUSION")
        await load(url, RUNS, alone)
