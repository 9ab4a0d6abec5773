"""Keeps a Run's lease while a node works: a live Run is not free to be taken over (R3)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from nodes.node_run import NodeRun

logger = logging.getLogger("superbiz.harness")


@contextlib.asynccontextmanager
async def lease_kept(run: NodeRun) -> AsyncIterator[None]:
    """Renew the lease in the background: a model's or tool's call may take longer than a lease lasts."""
    if run.settings is None or run.execution_id is None:
        yield
        return
    keeper = asyncio.create_task(_keep(run, run.execution_id))
    try:
        yield
    finally:
        keeper.cancel()


async def _keep(run: NodeRun, execution_id: str) -> None:
    seconds = run.resources.lease_seconds
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds / 3):
                await asyncio.Event().wait()
        now = run.resources.clock.now()
        try:
            await run.resources.runs.take_lease(run.run.run_id, execution_id, now, now + seconds, False)
        except Exception as error:
            logger.warning("could not renew a lease: %s", type(error).__name__)
