"""Alerts as a second way in: a firing alert is diagnosed once; a repeated one joins what is running.

The session of an alert is named by its fingerprint, and a session has one active Run in all processes that share the
database: webhooks that arrive together, here or elsewhere, get the same run id.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from graph.contract import PublicStatus
from nodes.ports import Clock, RunRecord
from service.alert_payload import Alert, AlertmanagerWebhook, question_of, time_of
from service.contract import ServiceModel
from service.runner import SessionHasRun
from service.store.status import public_status

SESSION_PREFIX = "alert:"
MAX_NEW_RUNS = 5
"""Runs that one webhook may start: many alerts at once mostly have one cause, and what still fires is sent again."""

CLOCK_SKEW_SECONDS = 30.0
"""How far the sender's clock may be ahead of ours: a run begun at once would else look older than its alert."""


class AlertState(StrEnum):
    """What a webhook did for one firing alert."""

    STARTED = "STARTED"
    JOINED = "JOINED"
    KNOWN = "KNOWN"
    DEFERRED = "DEFERRED"


class AlertRun(ServiceModel):
    """One firing alert and its Run; none where it was deferred."""

    fingerprint: str
    state: AlertState
    run_id: str | None = None


class AlertsAnswer(ServiceModel):
    """Answer to a webhook. `run_id` is the Run of the first firing alert that has one, `resolved` starts nothing."""

    run_id: str | None
    alerts: list[AlertRun]
    resolved: int


class AlertRuns(Protocol):
    """The Runs of one caller, as alerts need them."""

    async def latest(self, session_id: str) -> RunRecord | None:
        """Return the session's latest Run."""

    async def start(self, question: str, at: str | None, session_id: str) -> str:
        """Start a diagnosis and return its run id. Raises SessionHasRun, and what refuses a Run for lack of room."""


async def take_alerts(
    webhook: AlertmanagerWebhook, runs: AlertRuns, *, clock: Clock, language: str, quiet_seconds: float
) -> AlertsAnswer:
    """Start or find the Run of each firing alert.

    An alert whose diagnosis ended well since it began to fire, at most `quiet_seconds` ago, is answered with that Run:
    a sender repeats a whole group whenever one alert joins it. What `runs.start` raises goes through; sent again, the
    webhook joins what it had started.
    """
    answers: list[AlertRun] = []
    started = 0
    for alert in webhook.firing:
        answer = await _take(alert, runs, clock.now(), language, quiet_seconds, may_start=started < MAX_NEW_RUNS)
        started += answer.state is AlertState.STARTED
        answers.append(answer)
    first = next((answer.run_id for answer in answers if answer.run_id), None)
    resolved = sum(alert.status == "resolved" for alert in webhook.alerts)
    return AlertsAnswer(run_id=first, alerts=answers, resolved=resolved)


async def _take(
    alert: Alert, runs: AlertRuns, now: float, language: str, quiet_seconds: float, *, may_start: bool
) -> AlertRun:
    session_id = f"{SESSION_PREFIX}{alert.key}"
    found = _found(alert, await runs.latest(session_id), now, quiet_seconds)
    if found is None and may_start:
        try:
            run_id = await runs.start(question_of(alert, language), time_of(alert, now), session_id)
        except SessionHasRun:  # another webhook was faster
            found = _found(alert, await runs.latest(session_id), now, quiet_seconds)
        else:
            return AlertRun(fingerprint=alert.key, state=AlertState.STARTED, run_id=run_id)
    return found or AlertRun(fingerprint=alert.key, state=AlertState.DEFERRED)


def _found(alert: Alert, latest: RunRecord | None, now: float, quiet_seconds: float) -> AlertRun | None:
    """Return the Run that answers an alert already; None when it needs a new one. Pure."""
    if latest is None:
        return None
    status = public_status(latest.internal_state, latest.release_outcome)
    if status is PublicStatus.RUNNING:
        return AlertRun(fingerprint=alert.key, state=AlertState.JOINED, run_id=latest.run_id)
    same_firing = latest.created_at + CLOCK_SKEW_SECONDS >= (alert.began(now) or 0.0)
    recent = now - latest.created_at <= quiet_seconds
    if status is PublicStatus.SUCCESS and same_firing and recent:
        return AlertRun(fingerprint=alert.key, state=AlertState.KNOWN, run_id=latest.run_id)
    return None
