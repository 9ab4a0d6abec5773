"""`superbiz serve` whose process kills itself with SIGKILL at the place that a file names: nothing of it is in the product.

The file of the variable FUSE holds `journal 7` (the batch of step 7 is stored, its checkpoint is not) or `checkpoint 7` (both
are). It is looked at when a place is passed, so that a test arms it while the service runs, and deleted before the end.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from service.cli.main import main
from service.file_saver import FileSaver
from service.store.journal import SqlJournal

FUSE = Path(os.environ.get("FUSE", "fuse"))


def passed(place: str) -> None:
    """Die here if this is the place."""
    if FUSE.exists() and FUSE.read_text() == place:
        FUSE.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def install() -> None:
    """Let journal and savers tell what they have written."""
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


if __name__ == "__main__":
    install()
    main()
