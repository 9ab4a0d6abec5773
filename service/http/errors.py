"""Errors as they leave the service: always `{code, message}`, whoever made them (R134)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

logger = logging.getLogger("superbiz.http")

MAX_MESSAGE_CHARS = 300


class ApiErrorCode(StrEnum):
    """Stable codes of refused requests (R134)."""

    EMPTY_QUESTION = "EMPTY_QUESTION"
    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_EVENT_ID = "INVALID_EVENT_ID"
    UNAUTHORIZED = "UNAUTHORIZED"
    FORBIDDEN_ORIGIN = "FORBIDDEN_ORIGIN"
    NOT_FOUND = "NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    REQUEST_TIMEOUT = "REQUEST_TIMEOUT"
    SESSION_BUSY = "SESSION_BUSY"
    REQUEST_TOO_LARGE = "REQUEST_TOO_LARGE"
    UNSUPPORTED_MEDIA_TYPE = "UNSUPPORTED_MEDIA_TYPE"
    QUESTION_TOO_LONG = "QUESTION_TOO_LONG"
    TOO_MANY_RUNS = "TOO_MANY_RUNS"
    TOO_MANY_REQUESTS = "TOO_MANY_REQUESTS"
    SERVICE_STOPPING = "SERVICE_STOPPING"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    HOST_UNAVAILABLE = "HOST_UNAVAILABLE"
    SERVICE_ERROR = "SERVICE_ERROR"


class ErrorBody(BaseModel):
    """Body of every answer that is no success."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str = Field(description="A stable code.", examples=[ApiErrorCode.INVALID_REQUEST])
    message: str = Field(description="One bounded sentence for people: the field and what is allowed.")


class ApiError(Exception):
    """A request that is refused."""

    def __init__(self, status: int, code: ApiErrorCode, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(code.value)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


def error_response(
    status: int, code: ApiErrorCode, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Write an error."""
    body = ErrorBody(code=code.value, message=message[:MAX_MESSAGE_CHARS])
    return JSONResponse(body.model_dump(), status, headers=dict(headers or {}))


_NO_JSON = "body: must be a JSON object in UTF-8, not compressed"
_FRAMEWORK = {
    400: (ApiErrorCode.INVALID_REQUEST, _NO_JSON),
    404: (ApiErrorCode.NOT_FOUND, "no such path"),
    405: (ApiErrorCode.METHOD_NOT_ALLOWED, "the method is not allowed here"),
    413: (ApiErrorCode.REQUEST_TOO_LARGE, ""),
}


def add_error_handlers(app: FastAPI) -> None:
    """Make every error of application and framework an ErrorBody."""

    @app.exception_handler(ApiError)
    async def _ours(_: Request, error: ApiError) -> JSONResponse:
        return error_response(error.status, error.code, error.message, error.headers)

    @app.exception_handler(HTTPException)
    async def _frameworks(_: Request, error: HTTPException) -> JSONResponse:
        code, message = _FRAMEWORK.get(error.status_code, (ApiErrorCode.INVALID_REQUEST, "the request is refused"))
        return error_response(error.status_code, code, message or str(error.detail), error.headers)

    @app.exception_handler(Exception)
    async def _unexpected(_: Request, __: Exception) -> JSONResponse:
        return error_response(500, ApiErrorCode.SERVICE_ERROR, "the service failed; see its log")

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        status, message = _explain(error.errors())
        return error_response(status, ApiErrorCode.INVALID_REQUEST, message)


def _explain(faults: Sequence[Any]) -> tuple[int, str]:
    """Name the field and the rule of the first fault, never a value."""
    fault: dict[str, Any] = faults[0] if faults else {"type": "", "loc": (), "msg": "not valid"}
    if fault["type"] == "json_invalid":
        return 400, _NO_JSON
    where, *path = [str(part) for part in fault["loc"]] or ["request"]
    name = ".".join(path)[:64] or where
    if not name.isprintable():
        name = where
    return 422, f"{name}: {fault['msg'].removeprefix('Value error, ')}"
