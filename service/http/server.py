"""uvicorn with bounds, and a stop that loses no Run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI

from service.http.app import create_app, opened_service
from service.http.auth import Tokens
from service.http.protocol import BoundedProtocol
from service.runner import RunManager
from service.settings import Settings

logger = logging.getLogger("superbiz.http")

KEEP_ALIVE_SECONDS = 15
MAX_HEADER_BYTES = 16_384
BACKLOG = 512
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _unexpected(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tell of what no task awaited by its type alone: asyncio's own words hold the text of the exception."""
    logger.error("something failed that nobody waited for: %s", type(context.get("exception")).__name__)


class Server(uvicorn.Server):
    """Stops at a signal: Runs go no further, streams end for their clients to come back, then connections close."""

    def __init__(self, config: uvicorn.Config, manager: RunManager) -> None:
        super().__init__(config)
        self._manager = manager

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, unless whoever started the process had it ignored; a second Ctrl-C hurries."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_unexpected)
        caught = [each for each in STOPS if signal.getsignal(each) is not signal.SIG_IGN]
        for each in caught:
            loop.add_signal_handler(each, self.handle_exit, each, None)
        try:
            yield
        finally:
            for each in caught:
                loop.remove_signal_handler(each)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin nothing more, send readers away, close connections."""
        self._manager.stop()
        await super().shutdown(sockets)


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """Return uvicorn's configuration: nothing of a request is logged, nothing that a proxy says is believed."""
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(settings.stop_seconds)),
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )


class AddressInUse(Exception):
    """The address cannot be bound; the message names the options."""


def bind(host: str, port: int) -> socket.socket:
    """Bind a listening socket. Raises AddressInUse."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, IndexError):
        raise AddressInUse(f"--host, --port: port {port} of this address cannot be bound") from None
    listener.setblocking(False)
    return listener


async def serve_forever(
    settings: Settings, tokens: Tokens, listener: socket.socket, ready: Callable[[str], None]
) -> None:
    """Serve on a bound socket until a signal comes. Raises CatalogError, SettingsError, StorageError before it is ready."""
    async with opened_service(settings) as service:
        app = create_app(settings, tokens=tokens, service=service)
        server = Server(server_config(app, settings), service.manager)
        ready(address_of(listener))
        await server.serve(sockets=[listener])


def address_of(listener: socket.socket) -> str:
    """Return the URL of a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
