"""What the command line writes, and how: one JSON object or readable text on stdout, everything else on stderr."""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

MAX_ERROR_CHARS = 600
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
T = TypeVar("T")


class ExitCode(IntEnum):
    """Exit status of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CANCELLED = 130


class CliError(Exception):
    """The command cannot do what was asked; one bounded line for people."""

    def __init__(self, message: str, code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.code = code


def prepare_streams() -> None:
    """Never fail on what a terminal cannot show."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


class _OneLine(logging.Formatter):
    """Log lines without tracebacks: their text may hold what a backend said."""

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Tell the type alone."""
        return f"({ei[0].__name__})" if ei and ei[0] else ""


def prepare_logging() -> None:
    """Send warnings to stderr, one line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


def log_runs() -> None:
    """Tell of each Run, too: when it begins and how it ends."""
    logging.getLogger("superbiz.runs").setLevel(logging.INFO)


def plain(text: str) -> str:
    """Make text from logs, rows or models safe for a terminal: no escape sequences, no direction marks."""
    return _CONTROL.sub("\ufffd", text)


def say(text: str = "", *, style: str | None = None) -> None:
    """Print a line of text on stdout."""
    _console().print(plain(text), style=style, markup=False, highlight=False, soft_wrap=True)


def show_table(table: Table) -> None:
    """Print a table on stdout, as wide as the terminal; 200 columns where there is none."""
    console = _console()
    _Console(file=sys.stdout, width=console.width if console.is_terminal else 200).print(table)


def table_of(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """Build a plain table from texts."""
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        # The first column names the row: it must stay whole to be copied.
        table.add_column(heading, overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    return table


def print_json(value: dict[str, Any]) -> None:
    """Print the one JSON object of a `--json` command."""
    _write_json(value, indent=2)


def print_json_line(value: dict[str, Any]) -> None:
    """Print one of many JSON objects, on a line of its own."""
    _write_json(value, indent=None)


def _write_json(value: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        # Escapes instead of replacement marks: it must stay the same data.
        text = json.dumps(value, ensure_ascii=True, indent=indent, default=str)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def complain(message: str) -> None:
    """Print one bounded line on stderr."""
    line = " ".join(plain(message).split())
    sys.stderr.write(f"superbiz: {line[:MAX_ERROR_CHARS]}\n")


def moment(seconds: float | None) -> str | None:
    """Write a time as RFC 3339 in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


STOPS = (signal.SIGTERM, signal.SIGHUP)
"""What stops a command besides Ctrl-C: the end of a service, of a terminal."""


def run_async(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's coroutine; Ctrl-C, a stop of the service or a closed terminal cancel it: KeyboardInterrupt."""
    import asyncio

    async def stoppable() -> T:
        task = asyncio.current_task()
        assert task is not None
        # Whoever started the command with a signal ignored (nohup) means it.
        for each in (each for each in STOPS if signal.getsignal(each) is not signal.SIG_IGN):
            asyncio.get_running_loop().add_signal_handler(each, task.cancel)
        return await main()

    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # The library would end the process here, and leave a run that nobody ends.
        raise BrokenPipeError


def _console() -> Console:
    return _Console(file=sys.stdout, emoji=False)
