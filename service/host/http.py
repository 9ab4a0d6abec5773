"""The HTTP service inside a host: `http.app` of `langgraph.json`.

The host takes this application as its own and puts its routes, middleware and error handlers into it. So the service stays an
application of its own behind one route: its gate guards `/api` and nothing of the host's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import ASGIApp, Receive, Scope, Send

from service.app import open_runs
from service.host.graphs import shared_parts
from service.host.manager import AUTHORIZATION, HostedRunManager
from service.host.threads import opened
from service.http.app import create_app
from service.http.auth import load_tokens
from service.http.gate import OPEN_PATHS
from service.http.service import make_service
from service.recovery import keep_recovering

PREFIX = "/api/"


class ServiceRoute(BaseRoute):
    """Hands the service's paths, unchanged, to the application that the lifespan has opened."""

    def __init__(self) -> None:
        self.service: ASGIApp | None = None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Take the service's own paths."""
        path = scope.get("path", "")
        ours = scope["type"] == "http" and (path.startswith(PREFIX) or path in OPEN_PATHS)
        return (Match.FULL if ours and self.service is not None else Match.NONE), {}

    def url_path_for(self, name: str, /, **path_params: Any) -> Any:
        """Name no route."""
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the service."""
        assert self.service is not None
        token = AUTHORIZATION.set(Headers(scope=scope).get("authorization"))
        try:
            await self.service(scope, receive, send)
        finally:
            AUTHORIZATION.reset(token)


_route = ServiceRoute()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Open the service in the host's event loop. Raises CatalogError, SettingsError, StorageError."""
    parts = await shared_parts()
    tokens = await asyncio.to_thread(load_tokens, parts.settings)
    async with (
        open_runs(parts, hosted=True) as system,
        HostedRunManager(system, url=parts.settings.host_url) as manager,
        opened(system),
    ):
        _route.service = create_app(parts.settings, tokens=tokens, service=make_service(system, manager))
        # Ends what nobody carries any more; to carry Runs on is the host's.
        sweeping = asyncio.create_task(keep_recovering(system, lambda: 0, manager.take_up, lambda: manager.active))
        try:
            yield
        finally:
            sweeping.cancel()
            _route.service = None


app = FastAPI(title="SuperBizAgent", lifespan=lifespan, routes=[_route])
