"""Routes of the base project: ask, ask with a stream, clear a session, look at a session (R131, R134)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from nodes.ports import RunRecord
from nodes.start_run import MAX_QUESTION_CHARS, InvalidQuestion
from service.http.errors import ApiError, ApiErrorCode
from service.http.schemas import (
    SESSION_PATTERN,
    ChatData,
    ChatReply,
    ChatRequest,
    ClearReply,
    ClearRequest,
    SessionData,
    SessionReply,
    TurnView,
    moment,
)
from service.http.service import Caller, JsonRoute, Service, ServiceHere, refusals
from service.http.streaming import EVENT_STREAM, Compat, event_stream
from service.run_events import EventId, InvalidEventId, parse_event_id
from service.runner import Question, ServiceStopping, SessionHasRun, TooManyRuns
from service.settings import SettingsError
from service.store.status import public_status

router = APIRouter(prefix="/api", route_class=JsonRoute, tags=["chat"])

RETRY_SECONDS = 5
MAX_TURNS = 50
"""Turns of a session that are shown, the latest."""
CANCEL_ON_DISCONNECT = Query(description="Cancel the run when this client leaves before its end.")
LAST_EVENT_ID = Header(
    description="Id of the last event that was received: the stream goes on after it.", max_length=200
)
CleanSession = Annotated[str, Path(pattern=SESSION_PATTERN, description="Session.")]


@router.post("/chat", summary="Ask and wait for the answer", responses=refusals(400, 408, 409, 413, 415, 422))
async def chat(
    body: ChatRequest,
    request: Request,
    service: ServiceHere,
    caller: Caller,
    cancel_on_disconnect: Annotated[bool, CANCEL_ON_DISCONNECT] = False,
) -> ChatReply:
    """Ask and wait for the end of the run. Whoever leaves before does not end it unless asked to."""
    record = await begin(service, body, caller)
    try:
        async with _cancelled_with(request, service, record.run_id) if cancel_on_disconnect else nullcontext():
            ended = await service.manager.wait(record.run_id)
    except ServiceStopping:
        raise _stopping(record.run_id) from None
    if ended is None:
        raise ApiError(404, ApiErrorCode.NOT_FOUND, "no such run")
    return ChatReply(data=_chat_data(service, ended))


@asynccontextmanager
async def _cancelled_with(request: Request, service: Service, run_id: str) -> AsyncIterator[None]:
    """Cancel the Run when the client leaves meanwhile; a server tells of that only whoever asks."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        if not service.manager.stopping.is_set():
            await service.manager.cancel_left(run_id)

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()


@router.post(
    "/chat_stream",
    summary="Ask and watch the run",
    response_class=StreamingResponse,
    responses={**refusals(400, 404, 408, 409, 413, 415, 422), **EVENT_STREAM},
)
async def chat_stream(
    body: ChatRequest,
    service: ServiceHere,
    caller: Caller,
    compat: Annotated[Compat | None, Query(description="Send every event as `event: message`.")] = None,
    cancel_on_disconnect: Annotated[bool, CANCEL_ON_DISCONNECT] = False,
    last_event_id: Annotated[str | None, LAST_EVENT_ID] = None,
) -> Response:
    """Ask and watch the run. With `Last-Event-ID` no run is started: the one it names is watched further."""
    after = None
    if last_event_id:
        after = event_id(last_event_id)
        run_id = (await service.own_run(after.run_id, caller)).run_id
    else:
        run_id = (await begin(service, body, caller)).run_id
    return event_stream(service, run_id, after, compat=compat, cancel_on_disconnect=cancel_on_disconnect)


@router.post("/chat/clear", summary="Forget what a session was about", responses=refusals(400, 408, 413, 415, 422))
async def clear(body: ClearRequest, service: ServiceHere, caller: Caller) -> ClearReply:
    """Take all questions out of a session: the next one has no previous turn. A session without any is cleared too."""
    await service.app.serving.clear_session(_session(body.session_id), caller)
    return ClearReply(data="会话历史已清空" if service.app.settings.language == "zh" else "the session is cleared")


@router.get("/chat/session/{session_id}", summary="Look at a session", responses=refusals(404, 422))
async def session(session_id: CleanSession, service: ServiceHere, caller: Caller) -> SessionReply:
    """Say how many questions a session holds, and show the latest with their answers."""
    count, first = await service.app.serving.session_span(session_id, caller)
    if first is None:
        raise ApiError(404, ApiErrorCode.NOT_FOUND, "no such session")
    runs = service.app.runs
    active, latest = await runs.active(session_id, caller), await runs.of_session(session_id, caller, MAX_TURNS)
    return SessionReply(
        data=SessionData(
            sessionId=session_id,
            messagePairCount=count,
            createTime=int(first * 1000),
            active_run_id=active.run_id if active else None,
            turns=[_turn(service, each) for each in reversed(latest)],
        )
    )


def _turn(service: Service, record: RunRecord) -> TurnView:
    published = bool(record.published_result or record.fallback)
    return TurnView(
        run_id=record.run_id,
        question=record.query,
        answer=service.text_of(record) if published else None,
        status=public_status(record.internal_state, record.release_outcome),
        intent=record.intent,
        release_outcome=record.release_outcome,
        created_at=moment(record.created_at),
        ended_at=moment(record.ended_at) if record.ended_at is not None else None,
    )


async def begin(service: Service, body: ChatRequest, owner: str | None) -> RunRecord:
    """Start a Run. Raises ApiError 400, 409, 422, 429, 503."""
    if not body.question.strip():
        raise ApiError(400, ApiErrorCode.EMPTY_QUESTION, "Question: must be a non-empty text")
    if len(body.question.strip()) > MAX_QUESTION_CHARS:
        message = f"Question: at most {MAX_QUESTION_CHARS} characters are allowed"
        raise ApiError(422, ApiErrorCode.QUESTION_TOO_LONG, message)
    name = _session(body.session_id) if body.session_id else str(uuid.uuid4())
    question = Question(body.question, name, owner, body.at, body.language)
    try:
        return await service.manager.start(question)
    except InvalidQuestion as error:
        raise ApiError(422, ApiErrorCode.INVALID_REQUEST, str(error).replace("query", "Question", 1)) from None
    except SettingsError as error:
        raise ApiError(422, ApiErrorCode.INVALID_REQUEST, str(error)) from None
    except SessionHasRun as error:
        message = f"Id: the session's run {error.run_id} has not ended" if error.run_id else "Id: the session is busy"
        raise ApiError(409, ApiErrorCode.SESSION_BUSY, message) from None
    except TooManyRuns as error:
        after = {"Retry-After": str(RETRY_SECONDS)}
        raise ApiError(429, ApiErrorCode.TOO_MANY_RUNS, str(error), after) from None
    except ServiceStopping:
        raise _stopping(None) from None


def event_id(text: str) -> EventId:
    """Parse a Last-Event-ID. Raises ApiError 400."""
    try:
        return parse_event_id(text)
    except InvalidEventId as error:
        raise ApiError(400, ApiErrorCode.INVALID_EVENT_ID, str(error)) from None


def _session(name: str) -> str:
    if not name.isprintable():
        raise ApiError(422, ApiErrorCode.INVALID_REQUEST, "Id: must be 1 to 128 printable characters")
    return name


def _stopping(run_id: str | None) -> ApiError:
    goes_on = f"; run {run_id} goes on after its restart" if run_id else ""
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return ApiError(503, ApiErrorCode.SERVICE_STOPPING, f"the service is stopping{goes_on}", headers)


def _chat_data(service: Service, record: RunRecord) -> ChatData:
    published = bool(record.published_result or record.fallback)
    text = service.text_of(record)
    return ChatData(
        success=published,
        answer=text if published else None,
        errorMessage=None if published else text,
        error_code=None if published else record.error_code,
        run_id=record.run_id,
        session_id=record.session_id,
        status=public_status(record.internal_state, record.release_outcome),
        intent=record.intent,
        release_outcome=record.release_outcome,
        published_result=dict(record.published_result) if record.published_result else None,
        fallback=dict(record.fallback) if record.fallback else None,
    )
