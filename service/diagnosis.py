"""`DiagnosisChatExecutor`: one question in, one report out (R63, R93)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from nodes.ports import RunRecord
from nodes.start_run import checked_question, checked_session
from release.contract import ReleaseOutcome
from service.app import App
from service.contract import DiagnosisReport
from service.execution import GRACE_SECONDS, INTERNAL_ERROR, Execution, OnStep
from service.store.status import TERMINAL, public_status


def report_of(record: RunRecord) -> DiagnosisReport:
    """Read the report off a stored Run. Pure."""
    return DiagnosisReport(
        run_id=record.run_id,
        status=public_status(record.internal_state, record.release_outcome).value,
        release_outcome=record.release_outcome.value,
        published_result=dict(record.published_result) if record.published_result else None,
        fallback=dict(record.fallback) if record.fallback else None,
        operator={
            "internal_state": record.internal_state.value,
            "stop_reason": record.stop_reason,
            **({"error_code": record.error_code} if record.error_code else {}),
            "usage": dict(record.usage),
        },
    )


async def diagnose(
    app: App,
    question: str,
    *,
    at: str | None = None,
    session_id: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    on_step: OnStep | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> DiagnosisReport:
    """Diagnose one question and return how it ended; `on_step` sees every node as it finishes.

    `overrides` are fields of DiagnosisContext. Raises InvalidQuestion, SettingsError, ValueError (unknown model) before
    anything is stored, and CancelledError after the Run was marked CANCELLED.
    """
    query, session_id = checked_question(question), checked_session(session_id)
    context = app.settings.context(**{**(overrides or {}), "at": at})
    app.resources.models.client(context.model)
    execution = Execution(app, context, on_step=on_step)
    await execution.run({"query": query, "session_id": session_id}, grace_seconds)
    return await _report(app, execution.run_id)


async def _report(app: App, run_id: str | None) -> DiagnosisReport:
    """Read the end from the run store, the durable truth (R98)."""
    record = None
    if run_id is not None:
        with contextlib.suppress(Exception):
            record = await app.runs.get(run_id)
    if record is not None and record.internal_state in TERMINAL:
        return report_of(record)
    operator: dict[str, Any] = {
        "internal_state": "FAILED",
        "stop_reason": None,
        "error_code": INTERNAL_ERROR,
        "usage": {},
    }
    return DiagnosisReport(run_id=run_id, status="FAILED", release_outcome=ReleaseOutcome.NONE.value, operator=operator)
