"""What routes share: the opened system, its run manager, and the caller's own Runs (R134)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from nodes.ports import RunRecord
from service.app import App
from service.diagnosis import report_of
from service.http.errors import ApiError, ApiErrorCode, ErrorBody
from service.run_events import RunEvent, RunEvents, end_events
from service.runner import RunManager
from service.uploads import UploadQueue

BODY_SECONDS = 30.0
"""Time a client may take to send the body of its request."""

_bearer = HTTPBearer(auto_error=False, description="A configured token; needed once tokens are configured.")


@dataclass(frozen=True, slots=True)
class Service:
    """The opened system behind the routes; `request.app.state.service`."""

    app: App
    manager: RunManager
    events: RunEvents
    uploads: UploadQueue = field(default_factory=UploadQueue)

    async def own_run(self, run_id: str, owner: str | None) -> RunRecord:
        """Return a Run of the caller. Another's is as good as none: raises ApiError 404."""
        record = await self.app.runs.get(run_id)
        if record is None or record.owner != owner:
            raise ApiError(404, ApiErrorCode.NOT_FOUND, "no such run")
        return record

    def language_of(self, record: RunRecord) -> str:
        """Return the language a Run answers in."""
        return str((record.context or {}).get("language") or self.app.settings.language)

    def text_of(self, record: RunRecord) -> str:
        """Write what a Run published, or that it published nothing, as text (R55)."""
        from service.report import answer_lines

        lines = answer_lines(report_of(record), {}, self.language_of(record))
        return "\n".join(line.text for line in lines).strip()


def make_service(app: App, manager: RunManager) -> Service:
    """Put the parts together."""

    def tell(record: RunRecord) -> list[RunEvent]:
        text = service.text_of(record)
        return end_events(record, text, text)

    service = Service(app, manager, RunEvents(app.runs, app.serving, manager.changes, tell, live=manager.steps))
    return service


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _owner(request: Request, _: Annotated[Any, Depends(_bearer)]) -> str | None:
    owner: str | None = request.state.owner
    return owner


ServiceHere = Annotated[Service, Depends(_service)]
"""The service of the running application."""
Caller = Annotated[str | None, Depends(_owner)]
"""Name of the caller's token, set by the gate; None where no tokens are configured."""


class JsonRoute(APIRoute):
    """A route whose body must be JSON: what a page of another site may send without asking is refused."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Check the media type, then read the body within its time."""
        handle = super().get_route_handler()
        takes_body = self.body_field is not None

        async def handle_json(request: Request) -> Response:
            if takes_body:
                require_media_type(request, "application/json")
                await _read_body(request)
            return await handle(request)

        return handle_json


def require_media_type(request: Request, media_type: str) -> None:
    """Refuse a body of another type. Raises ApiError 415."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != media_type:
        raise ApiError(415, ApiErrorCode.UNSUPPORTED_MEDIA_TYPE, f"Content-Type: must be {media_type}")


async def _read_body(request: Request) -> None:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            await request.body()
    except TimeoutError:
        raise body_late() from None


def body_late() -> ApiError:
    """Return the refusal of a body that did not arrive in time."""
    message = f"body: must arrive within {BODY_SECONDS:g} seconds"
    return ApiError(408, ApiErrorCode.REQUEST_TIMEOUT, message, {"Connection": "close"})


_MEANING = {
    400: "The question is empty, or the body is no JSON object.",
    401: "No configured token.",
    403: "A page of another site.",
    404: "No such run or session of this caller.",
    408: "The body did not arrive in time.",
    409: "The session has a run that has not ended.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    422: "A field is not valid.",
    429: "Too many runs, or requests, at once; `Retry-After` says when to come again.",
    500: "The service failed.",
    503: "The service is stopping, or its database is out of reach.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the errors a route answers with, for the OpenAPI page."""
    return {
        status: {"model": ErrorBody, "description": _MEANING[status]}
        for status in sorted({*statuses, 401, 403, 429, 500, 503})
    }
