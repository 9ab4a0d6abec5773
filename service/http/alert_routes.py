"""The route that Alertmanager posts to."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Response

from graph.contract import Intent
from nodes.ports import RunRecord
from service.alert_payload import AlertmanagerWebhook
from service.alerts import AlertsAnswer, AlertState, take_alerts
from service.http.errors import ApiError, ApiErrorCode
from service.http.service import Caller, JsonRoute, Service, ServiceHere, refusals
from service.runner import Question, ServiceStopping, TooManyRuns

MAX_WEBHOOK_BYTES = 1_048_576
"""A group of a thousand alerts with long descriptions; a larger one is cut by the sender's `max_alerts`."""
RETRY_SECONDS = 30

router = APIRouter(prefix="/api", route_class=JsonRoute, tags=["alerts"])


@router.post(
    "/alerts",
    summary="Diagnose firing alerts",
    responses={**refusals(400, 408, 413, 415, 422), 202: {"model": AlertsAnswer, "description": "Runs were started."}},
)
async def alerts(
    webhook: AlertmanagerWebhook, service: ServiceHere, caller: Caller, response: Response
) -> AlertsAnswer:
    """Take a webhook of Alertmanager (version 4): start a run for each firing alert, or join the one it has.

    503 where there is no room: Alertmanager sends again after 5xx only, and what had been started is joined then.
    """
    app = service.app
    try:
        answer = await take_alerts(
            webhook,
            _CallersRuns(service, caller),
            clock=app.resources.clock,
            language=app.settings.language,
            quiet_seconds=app.settings.alert_quiet_minutes * 60,
        )
    except TooManyRuns as error:
        raise _later(ApiErrorCode.TOO_MANY_RUNS, str(error)) from None
    except ServiceStopping:
        raise _later(ApiErrorCode.SERVICE_STOPPING, "the service is stopping") from None
    if any(each.state is AlertState.STARTED for each in answer.alerts):
        response.status_code = 202
    return answer


@dataclass(frozen=True, slots=True)
class _CallersRuns:
    """The Runs of one caller: an alert of another token's Alertmanager is another alert."""

    service: Service
    owner: str | None

    async def latest(self, session_id: str) -> RunRecord | None:
        runs = self.service.app.runs
        active = await runs.active(session_id, self.owner)
        if active is not None:
            return active
        found = await runs.of_session(session_id, self.owner, 1)
        return found[0] if found else None

    async def start(self, question: str, at: str | None, session_id: str) -> str:
        asked = Question(question, session_id, self.owner, at, intent=Intent.DIAGNOSIS)
        record = await self.service.manager.start(asked)
        return record.run_id


def _later(code: ApiErrorCode, message: str) -> ApiError:
    return ApiError(503, code, message, {"Retry-After": str(RETRY_SECONDS)})
