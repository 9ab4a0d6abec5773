"""Log lines of Runs: codes and numbers, nothing that anybody wrote (R104, R154)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from graph.contract import RunState
from nodes.ports import RunRecord
from release.contract import ReleaseOutcome
from service.cli.console import log_runs
from service.run_log import end_line, log_begin, log_end
from tests.stores import a_run

ENDED = replace(
    a_run(internal_state=RunState.SUCCESS, release_outcome=ReleaseOutcome.FALLBACK), ended_at=1_700_000_002.5
)


class Runs:
    def __init__(self, answer: RunRecord | Exception | None) -> None:
        self.answer = answer

    async def get(self, run_id: str) -> RunRecord | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_r154_the_end_of_a_run_is_told_in_codes_and_numbers() -> None:
    line = "run_ended run_id=run-1 status=SUCCESS outcome=FALLBACK error_code=- seconds=2.500"
    assert end_line(ENDED) == line
    spent = replace(ENDED, internal_state=RunState.BUDGET_EXHAUSTED, error_code="BUDGET_EXHAUSTED")
    assert "status=SUCCESS" in end_line(spent), "the public status (R9)"
    assert "error_code=BUDGET_EXHAUSTED" in end_line(spent)
    assert ENDED.query not in end_line(ENDED)


def test_r104_a_code_that_is_none_does_not_reach_the_log() -> None:
    assert "error_code=invalid " in end_line(replace(ENDED, error_code="two\nlines"))


def test_r154_a_run_that_somebody_else_carries_on_has_not_ended() -> None:
    assert end_line(a_run(internal_state=RunState.RUNNING)) == "run_handed_over run_id=run-1"


@pytest.mark.parametrize(
    ("answer", "told"),
    [(None, []), (RuntimeError("MARKER-EXCEPTION-TEXT"), ["run_left run_id=run-1 store=RuntimeError"])],
)
async def test_r154_a_store_that_is_away_is_told_by_its_type(
    answer: Any, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    await log_end(Runs(answer), "run-1")
    assert caplog.messages == told


def test_r154_serving_tells_of_runs(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("superbiz.runs")
    before = logger.level
    logger.setLevel(logging.NOTSET)  # a test that served in this process may have set it
    try:
        log_begin("run-1", taken_up=False)
        assert caplog.messages == []
        log_runs()
        log_begin("run-1", taken_up=False)
        log_begin("run-1", taken_up=True)
        assert caplog.messages == ["run_started run_id=run-1", "run_taken_up run_id=run-1"]
    finally:
        logger.setLevel(before)
