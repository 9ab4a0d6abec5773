"""`superbiz serve` whose process kills itself with SIGKILL at the place that a file names: nothing of it is in the product.

The file of the variable FUSE holds `journal 7` (the batch of step 7 is stored, its checkpoint is not) or `checkpoint 7` (both
are). It is looked at when a place is passed, so that a test arms it while the service runs, and deleted before the end.

This program itself only has everything imported. For each line of stdin, a JSON object of variables, it forks one service and
prints its pid, what that service prints, and in the end how it went: a start costs no import.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any

import aiosqlite  # noqa: F401
import langchain_openai  # noqa: F401
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

import service.http.server
import service.recovery
from service.cli.main import main
from service.file_saver import FileSaver
from service.store.journal import SqlJournal

LOOK_SECONDS = 0.02
SERVE = ["serve", "--port", "0"]


def passed(place: str) -> None:
    """Die here if this is the place."""
    fuse = Path(os.environ["FUSE"])
    if fuse.exists() and fuse.read_text() == place:
        fuse.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def install() -> None:
    """Let journal and savers tell what they have written; look for abandoned Runs without long pauses."""
    service.recovery.SWEEP_SECONDS = 0.1
    write = SqlJournal.write

    async def write_and_tell(self: SqlJournal, batch: Any) -> None:
        await write(self, batch)
        if batch.key[:4].isdigit():
            passed(f"journal {int(batch.key[:4])}")

    SqlJournal.write = write_and_tell  # type: ignore[method-assign]
    for saver in (FileSaver, AsyncPostgresSaver):
        _tell_checkpoints(saver)


def _tell_checkpoints(saver: Any) -> None:
    put = saver.aput

    async def put_and_tell(self: Any, config: Any, checkpoint: Any, *more: Any) -> Any:
        result = await put(self, config, checkpoint, *more)
        position = checkpoint["channel_values"].get("position")
        if position:
            passed(f"checkpoint {position['step']}")
        return result

    saver.aput = put_and_tell


def fork_services() -> None:
    """Serve one service after another, until stdin ends; what runs then is killed."""
    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            print(os.getpid(), flush=True)
            serve(json.loads(line))
        print(end_of(pid), flush=True)


def serve(variables: dict[str, str]) -> None:
    """Be the service; its log is appended to the file of the variable LOG."""
    os.environ.update(variables)
    log = os.open(variables["LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    main(SERVE)


def end_of(pid: int) -> int:
    """Wait for the service's end, or end it when nobody is left who would read of it."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            sys.exit()


if __name__ == "__main__":
    install()
    fork_services()
