"""Routes of Runs: look, trace, watch, cancel (R119, R120, R132, R134)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse

from graph.contract import RunState
from nodes.ports import RunRecord
from service.http.chat_routes import LAST_EVENT_ID, event_id
from service.http.errors import ApiError, ApiErrorCode
from service.http.schemas import (
    RUN_ID_PATTERN,
    AgentStepView,
    CancelView,
    RunView,
    TraceEventView,
    TraceView,
    moment,
)
from service.http.service import Caller, JsonRoute, ServiceHere, refusals
from service.http.streaming import EVENT_STREAM, Compat, event_stream
from service.store.status import public_status

router = APIRouter(prefix="/api/runs", route_class=JsonRoute, tags=["runs"])

RunId = Annotated[str, Path(pattern=RUN_ID_PATTERN, description="Id of a run.")]


@router.get("/{run_id}", summary="Look at a run", responses=refusals(404, 422))
async def show(run_id: RunId, service: ServiceHere, caller: Caller) -> RunView:
    """Show a run of the caller."""
    return _view(await service.own_run(run_id, caller))


@router.get("/{run_id}/trace", summary="Look at what a run did", responses=refusals(404, 422))
async def trace(run_id: RunId, service: ServiceHere, caller: Caller) -> TraceView:
    """Show the trace of a run of the caller: what operators see (R55)."""
    record = await service.own_run(run_id, caller)
    events, steps = await service.app.journal.trace(run_id), await service.app.journal.steps(run_id)
    return TraceView(
        run_id=run_id,
        internal_state=record.internal_state,
        stop_reason=record.stop_reason,
        usage=dict(record.usage),
        events=[
            TraceEventView(seq=row.seq, at=moment(row.at), type=row.type, fields=dict(row.fields)) for row in events
        ],
        steps=[
            AgentStepView(
                round=step.round_, kind=step.kind, tool_call_ids=list(step.tool_call_ids), token_count=step.token_count
            )
            for step in steps
        ],
    )


@router.get(
    "/{run_id}/events",
    summary="Watch a run",
    response_class=StreamingResponse,
    responses={**refusals(400, 404, 422), **EVENT_STREAM},
)
async def events(
    run_id: RunId,
    service: ServiceHere,
    caller: Caller,
    compat: Annotated[Compat | None, Query(description="Send every event as `event: message`.")] = None,
    last_event_id: Annotated[str | None, LAST_EVENT_ID] = None,
    after: Annotated[
        str | None, Query(max_length=200, description="`Last-Event-ID` for clients that cannot set the header.")
    ] = None,
    cancel_on_disconnect: Annotated[bool, Query(description="Cancel the run when this client leaves.")] = False,
) -> Response:
    """Watch a run from its beginning or from after an event, in whichever process it runs, also after its end."""
    place = event_id(last_event_id or after or "") if last_event_id or after else None
    await service.own_run(run_id, caller)
    if place is not None and place.run_id != run_id:
        raise ApiError(400, ApiErrorCode.INVALID_EVENT_ID, "Last-Event-ID: must be the id of an event of this run")
    return event_stream(service, run_id, place, compat=compat, cancel_on_disconnect=cancel_on_disconnect)


@router.post(
    "/{run_id}/cancel",
    summary="Cancel a run",
    status_code=202,
    responses={**refusals(404, 422), 200: {"model": CancelView, "description": "The run had ended before."}},
)
async def cancel(run_id: RunId, service: ServiceHere, caller: Caller, response: Response) -> CancelView:
    """Forbid the next model call, query and release at once; what is in flight is interrupted where that is possible."""
    await service.own_run(run_id, caller)
    record = await service.manager.cancel(run_id)
    if record is None:
        raise ApiError(404, ApiErrorCode.NOT_FOUND, "no such run")
    if record.internal_state is not RunState.CANCEL_REQUESTED:
        response.status_code = 200
    return CancelView(run_id=run_id, state=record.internal_state)


def _view(record: RunRecord) -> RunView:
    return RunView(
        run_id=record.run_id,
        session_id=record.session_id,
        question=record.query,
        status=public_status(record.internal_state, record.release_outcome),
        cancel_requested=record.internal_state is RunState.CANCEL_REQUESTED,
        intent=record.intent,
        release_outcome=record.release_outcome,
        published_result=dict(record.published_result) if record.published_result else None,
        fallback=dict(record.fallback) if record.fallback else None,
        error_code=record.error_code,
        created_at=moment(record.created_at),
        ended_at=moment(record.ended_at) if record.ended_at is not None else None,
    )
