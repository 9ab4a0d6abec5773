"""`superbiz serve`: the HTTP service, for this machine alone unless tokens say who may call (R134)."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from service.cli.console import CliError, ExitCode, log_runs, say
from service.cli.options import CatalogOption, LanguageOption, settings_from

DEFAULT_PORT = 9900


def serve(
    host: Annotated[
        str, typer.Option("--host", help="Address to bind; others than loopback need tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to bind; 0: a free one.")] = DEFAULT_PORT,
    model: Annotated[str | None, typer.Option("--model", help="offline, or openai:NAME.")] = None,
    language: LanguageOption = None,
    catalog: CatalogOption = None,
) -> int:
    """Serve the HTTP API until SIGTERM or Ctrl-C; runs that have not ended go on at the next start."""
    import asyncio

    from service.http.auth import is_loopback, load_tokens
    from service.http.server import AddressInUse, bind, serve_forever

    settings = settings_from(catalog=catalog, language=language, model=model)
    tokens = load_tokens(settings)
    log_runs()
    if not tokens and not is_loopback(host):
        raise CliError(
            "--host: only a loopback address is allowed until SUPERBIZ_API_TOKENS or SUPERBIZ_API_TOKENS_FILE is set"
        )
    try:
        listener = bind(host, port)
    except AddressInUse as error:
        raise CliError(str(error)) from None
    with listener:
        asyncio.run(serve_forever(settings, tokens, listener, _tell))
    return ExitCode.OK


def _tell(address: str) -> None:
    say(f"listening on {address}")
    # Whoever started the service through a pipe waits for this line.
    sys.stdout.flush()
