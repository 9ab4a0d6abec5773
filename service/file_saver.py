"""Checkpoints in an SQLite file: the library's blocking saver on a thread of its own, one hop per checkpoint."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.sqlite import SqliteSaver

P = ParamSpec("P")
T = TypeVar("T")


class FileSaver(SqliteSaver):
    """SqliteSaver for an event loop. What has begun when its caller is cancelled is carried to its end."""

    def __init__(self, path: Path, timeout_seconds: float, serde: SerializerProtocol) -> None:
        """Blocking. Raises sqlite3.Error."""
        connection = sqlite3.connect(path, timeout=timeout_seconds, check_same_thread=False)
        super().__init__(connection, serde=serde)
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        connection.execute("PRAGMA synchronous=NORMAL")
        self.setup()

    def close(self) -> None:
        """Close the file once what has begun is done. Blocking."""
        self._thread.shutdown()
        self.conn.close()

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *args, **kwargs))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See SqliteSaver.get_tuple."""
        return await self._in_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """See SqliteSaver.list."""

        def rows() -> list[CheckpointTuple]:
            return list(self.list(config, filter=filter, before=before, limit=limit))

        for each in await self._in_thread(rows):
            yield each

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See SqliteSaver.put."""
        return await self._in_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See SqliteSaver.put_writes."""
        await self._in_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """See SqliteSaver.delete_thread."""
        await self._in_thread(self.delete_thread, thread_id)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """See SqliteSaver.get_delta_channel_history."""
        return await self._in_thread(self.get_delta_channel_history, config=config, channels=channels)
