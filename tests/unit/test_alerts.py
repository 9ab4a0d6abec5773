"""What a webhook does for each firing alert: start, join, know, defer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from graph.contract import RunState
from nodes.ports import RunRecord
from release.contract import ReleaseOutcome
from service.alert_payload import AlertmanagerWebhook
from service.alerts import MAX_NEW_RUNS, AlertsAnswer, AlertState, take_alerts
from service.runner import SessionHasRun, TooManyRuns
from tests.alertmanager import alert, webhook
from tests.stores import a_run
from tools.catalog import parse_time

BEGAN = "2026-03-12T06:15:00Z"
NOW = parse_time(BEGAN) + 120


@dataclass
class Caller:
    """One caller's Runs in a dict; `busy` makes the next start lose a race against another process."""

    records: dict[str, RunRecord] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    room: int = 100
    busy: bool = False
    time: float = NOW

    def now(self) -> float:
        return self.time

    async def latest(self, session_id: str) -> RunRecord | None:
        return self.records.get(session_id)

    async def start(self, question: str, at: str | None, session_id: str) -> str:
        if len(self.asked) >= self.room:
            raise TooManyRuns(self.room)
        run_id = f"run-{len(self.asked) + 1}"
        self.asked.append((question, at))
        self.records[session_id] = a_run(run_id, session_id=session_id, created_at=self.time)
        if self.busy:
            self.busy = False
            raise SessionHasRun(None)
        return run_id

    def end(self, fingerprint: str, state: RunState, outcome: ReleaseOutcome = ReleaseOutcome.NONE) -> None:
        ended = replace(self.records[f"alert:{fingerprint}"], internal_state=state, release_outcome=outcome)
        self.records[f"alert:{fingerprint}"] = ended

    async def take(self, *alerts: dict[str, Any], quiet: float = 3600.0) -> AlertsAnswer:
        body = AlertmanagerWebhook.model_validate(webhook(*alerts))
        return await take_alerts(body, self, clock=self, language="en", quiet_seconds=quiet)


def firing(fingerprint: str = "a", began: str = BEGAN, **changes: Any) -> dict[str, Any]:
    return alert(fingerprint, startsAt=began, **changes)


def states(answer: AlertsAnswer) -> list[tuple[str, str, str | None]]:
    return [(each.fingerprint, each.state.value, each.run_id) for each in answer.alerts]


async def test_a_repeated_alert_joins_the_running_diagnosis() -> None:
    caller = Caller()
    assert states(await caller.take(firing())) == [("a", "STARTED", "run-1")]
    answer = await caller.take(firing(), firing("b"))
    assert states(answer) == [("a", "JOINED", "run-1"), ("b", "STARTED", "run-2")]
    assert answer.run_id == "run-1"
    assert [at for _, at in caller.asked] == ["2026-03-12T06:15:00+00:00"] * 2


async def test_a_resolved_alert_starts_nothing() -> None:
    caller = Caller()
    answer = await caller.take(alert("a", status="resolved"), alert("b", status="resolved"))
    assert (answer.run_id, answer.alerts, answer.resolved) == (None, [], 2)
    assert caller.asked == []


async def test_the_slower_of_two_webhooks_gets_the_run_of_the_faster() -> None:
    assert states(await Caller(busy=True).take(firing())) == [("a", "JOINED", "run-1")]


async def test_an_alert_that_was_diagnosed_is_known_for_a_while() -> None:
    caller = Caller()
    await caller.take(firing())
    caller.end("a", RunState.SUCCESS, ReleaseOutcome.FALLBACK)
    caller.time += 3600
    assert states(await caller.take(firing())) == [("a", "KNOWN", "run-1")]
    caller.time += 1
    assert states(await caller.take(firing())) == [("a", "STARTED", "run-2")]


async def test_an_alert_that_fires_anew_is_diagnosed_anew() -> None:
    caller = Caller()
    await caller.take(firing())
    caller.end("a", RunState.SUCCESS, ReleaseOutcome.CONCLUSION)
    caller.time += 600
    assert states(await caller.take(firing(began="2026-03-12T06:20:00Z"))) == [("a", "STARTED", "run-2")]


async def test_an_alert_of_a_clock_that_is_seconds_ahead_is_known() -> None:
    caller = Caller()
    ahead = firing(began="2026-03-12T06:17:20Z")  # ours says 06:17:00
    await caller.take(ahead)
    caller.end("a", RunState.SUCCESS, ReleaseOutcome.CONCLUSION)
    for _ in range(2):
        caller.time += 15
        assert states(await caller.take(ahead)) == [("a", "KNOWN", "run-1")]


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.CANCELLED, RunState.TIMED_OUT])
async def test_a_diagnosis_that_came_to_nothing_is_made_again(state: RunState) -> None:
    caller = Caller()
    await caller.take(firing())
    caller.end("a", state)
    assert states(await caller.take(firing())) == [("a", "STARTED", "run-2")]


async def test_one_that_is_being_cancelled_is_still_joined() -> None:
    caller = Caller()
    await caller.take(firing())
    caller.end("a", RunState.CANCEL_REQUESTED)
    assert states(await caller.take(firing())) == [("a", "JOINED", "run-1")]


async def test_a_storm_starts_a_few_and_the_next_webhook_goes_on() -> None:
    caller, storm = Caller(), [firing(f"a{n}") for n in range(MAX_NEW_RUNS + 2)]
    first = await caller.take(*storm)
    assert [each.state for each in first.alerts] == [AlertState.STARTED] * MAX_NEW_RUNS + [AlertState.DEFERRED] * 2
    second = await caller.take(*storm)
    assert [each.state for each in second.alerts] == [AlertState.JOINED] * MAX_NEW_RUNS + [AlertState.STARTED] * 2


async def test_what_was_started_before_room_ran_out_is_joined_when_the_webhook_comes_again() -> None:
    caller = Caller(room=1)
    with pytest.raises(TooManyRuns):
        await caller.take(firing("a"), firing("b"))
    caller.room = 2
    assert states(await caller.take(firing("a"), firing("b"))) == [("a", "JOINED", "run-1"), ("b", "STARTED", "run-2")]
