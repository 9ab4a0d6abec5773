"""The FastAPI application (R131, R134)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from service.app import open_app
from service.http import alert_routes, chat_routes, run_routes, upload_routes
from service.http.auth import Tokens
from service.http.body_limit import BodyLimit
from service.http.errors import ApiError, ApiErrorCode, add_error_handlers, error_response
from service.http.gate import Gate
from service.http.schemas import HealthView
from service.http.service import Service, ServiceHere, make_service, refusals
from service.runner import open_manager
from service.settings import Settings
from tools.catalog import Catalog

DESCRIPTION = (
    "Ask what is wrong; every statement of an answer is backed by evidence of its run. Runs go on when their client "
    "leaves; their events can be read again from any place. Errors are always `{code, message}`."
)


class GatedApp(FastAPI):
    """An application behind a gate that stands outside all of its middleware."""

    def __init__(self, tokens: Tokens, **options: Any) -> None:
        super().__init__(**options)
        self._gate = Gate(super().__call__, tokens)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the gate decide first."""
        await self._gate(scope, receive, send)


health = APIRouter(tags=["health"])


@health.get("/healthz", summary="Is the process there?", responses=refusals())
async def healthz() -> HealthView:
    """Answer while the process lives."""
    return HealthView()


@health.get("/readyz", summary="May questions be sent here?", responses=refusals())
async def readyz(service: ServiceHere) -> HealthView:
    """Answer 200 while the database is reachable and the service is not stopping."""
    if service.manager.stopping.is_set():
        raise ApiError(503, ApiErrorCode.SERVICE_STOPPING, "the service is stopping")
    await service.app.serving.ping()
    return HealthView()


@asynccontextmanager
async def opened_service(
    settings: Settings, *, catalog: Catalog | None = None, env: Mapping[str, str] = os.environ
) -> AsyncIterator[Service]:
    """Open the system and carry its Runs; at the end they are handed over. Raises CatalogError, SettingsError, StorageError."""
    async with open_app(settings, catalog=catalog, env=env) as system, open_manager(system) as manager:
        yield make_service(system, manager)


def create_app(
    settings: Settings,
    *,
    tokens: Tokens | None = None,
    service: Service | None = None,
) -> FastAPI:
    """Build the application; without an opened `service` its lifespan opens one over the settings.

    With `tokens` every request but those for health needs one; without, only this machine's own programs are let in.
    The lifespan raises CatalogError, SettingsError, StorageError.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opened_service(settings) as opened:
            app.state.service = opened
            yield

    app = GatedApp(
        tokens or Tokens(),
        title="SuperBizAgent",
        description=DESCRIPTION,
        version=version("superbizagent"),
        lifespan=lifespan if service is None else None,
        redirect_slashes=False,
    )
    app.state.service = service
    larger = {
        "/api/upload": settings.max_upload_bytes + upload_routes.FORM_BYTES,
        "/api/alerts": alert_routes.MAX_WEBHOOK_BYTES,
    }
    app.add_middleware(BodyLimit, default=settings.max_request_bytes, by_path=larger)
    add_error_handlers(app)
    app.add_exception_handler(SQLAlchemyError, _store_unavailable)
    app.include_router(chat_routes.router)
    app.include_router(run_routes.router)
    app.include_router(upload_routes.router)
    app.include_router(alert_routes.router)
    app.include_router(health)
    return app


async def _store_unavailable(_: Request, error: Exception) -> JSONResponse:
    return error_response(503, ApiErrorCode.STORE_UNAVAILABLE, "the database is out of reach", {"Retry-After": "5"})
