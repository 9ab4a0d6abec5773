"""The upload route: a Markdown or text file into the knowledge base (R134)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Form, UploadFile
from pydantic import BaseModel, ConfigDict, Field

from service.app import KNOWLEDGE_FOLDER
from service.http.errors import ApiError, ApiErrorCode
from service.http.service import Caller, ServiceHere, refusals
from service.uploads import ALLOWED_TYPES, StoredUpload, UploadRefused, UploadTooLarge, store_upload
from tools.rag.folder import KnowledgeError

FORM_BYTES = 16_384
"""What a multipart body may have beside the file: boundaries, headers, the other field."""

router = APIRouter(prefix="/api", tags=["knowledge"])


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
    work = asyncio.to_thread(
        store_upload,
        app.catalog,
        app.settings.home / KNOWLEDGE_FOLDER,
        name=file.filename or "",
        data=data,
        max_bytes=limit,
        knowledge=knowledge,
    )
    try:
        # Who leaves now leaves a whole document behind: a thread is not stopped half-way.
        stored: StoredUpload = await asyncio.shield(asyncio.ensure_future(work))
    except UploadTooLarge as error:
        raise ApiError(413, ApiErrorCode.REQUEST_TOO_LARGE, str(error)) from None
    except UploadRefused as error:
        raise ApiError(422, ApiErrorCode.INVALID_REQUEST, str(error)) from None
    except KnowledgeError as error:
        raise ApiError(503, ApiErrorCode.STORE_UNAVAILABLE, str(error)) from None
    return UploadReply(data=UploadData(document_id=stored.document_id, chunks=stored.chunks, replaced=stored.replaced))
