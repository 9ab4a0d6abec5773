"""The upload route: a Markdown or text file into the knowledge base (R134)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Request, Response, UploadFile
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from service.home import KNOWLEDGE_FOLDER
from service.http.errors import ApiError, ApiErrorCode
from service.http.service import BODY_SECONDS, Caller, ServiceHere, body_late, refusals, require_media_type
from service.uploads import ALLOWED_TYPES, TooManyUploads, UploadRefused, UploadTooLarge, store_upload
from tools.rag.folder import KnowledgeError

logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of every body that is no form
RETRY_SECONDS = 5
FORM_BYTES = 16_384
"""What a multipart body may have beside the file: boundaries, headers, the other field."""


class UploadRoute(APIRoute):
    """A route that takes one file as multipart/form-data, within its time."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Parse the form before the route's own handler, which then finds it read."""
        handle = super().get_route_handler()

        async def handle_form(request: Request) -> Response:
            require_media_type(request, "multipart/form-data")
            await _read_form(request)
            return await handle(request)

        return handle_form


async def _read_form(request: Request) -> None:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            form = await request.form(max_files=1, max_fields=1)
    except TimeoutError:
        raise body_late() from None
    except HTTPException as error:
        if error.status_code == 413:
            raise
        message = "body: must be one `file` and at most one `knowledge`, as multipart/form-data"
        raise ApiError(400, ApiErrorCode.INVALID_REQUEST, message) from None
    if not getattr(form.get("file"), "filename", None):
        raise ApiError(422, ApiErrorCode.INVALID_REQUEST, "file: must be a file with a name")


router = APIRouter(prefix="/api", route_class=UploadRoute, tags=["knowledge"])


class UploadData(BaseModel):
    """A document that is searchable now: in how many passages, and whether it replaced one of its name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    document_id: str = Field(examples=["runbooks/disk-full.md"])
    chunks: int
    replaced: bool


class UploadReply(BaseModel):
    """The base project's envelope around an upload."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: Literal[200] = 200
    message: Literal["success"] = "success"
    data: UploadData


@router.post("/upload", summary="Put a document into the knowledge base", responses=refusals(400, 408, 413, 415, 422))
async def upload(
    file: Annotated[UploadFile, Field(description=f"UTF-8 text; its name ends in one of {ALLOWED_TYPES}.")],
    service: ServiceHere,
    caller: Caller,
    knowledge: Annotated[
        str | None, Form(max_length=128, description="Name of the knowledge folder. Default: the catalogue's first.")
    ] = None,
) -> UploadReply:
    """Store and index a document, all or nothing; one of the same name in that folder is replaced."""
    app = service.app
    limit = app.settings.max_upload_bytes
    data = await file.read(limit + 1)
    store = partial(
        store_upload,
        app.catalog,
        app.settings.home / KNOWLEDGE_FOLDER,
        name=file.filename or "",
        data=data,
        max_bytes=limit,
        knowledge=knowledge,
    )
    try:
        stored = await service.uploads.run(store)
    except TooManyUploads as error:
        after = {"Retry-After": str(RETRY_SECONDS)}
        raise ApiError(429, ApiErrorCode.TOO_MANY_REQUESTS, str(error), after) from None
    except UploadTooLarge as error:
        raise ApiError(413, ApiErrorCode.REQUEST_TOO_LARGE, str(error)) from None
    except UploadRefused as error:
        raise ApiError(422, ApiErrorCode.INVALID_REQUEST, str(error)) from None
    except KnowledgeError as error:
        raise ApiError(503, ApiErrorCode.STORE_UNAVAILABLE, str(error)) from None
    return UploadReply(data=UploadData(document_id=stored.document_id, chunks=stored.chunks, replaced=stored.replaced))
