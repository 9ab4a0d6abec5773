"""Keeps a Run's lease while a node works: a live Run is not free to be taken over (R3)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from nodes.node_run import NodeRun
from nodes.ports import Resources

logger = logging.getLogger("superbiz.harness")

STOP_SECONDS = 5.0
"""How long a renewal that was cut off may take to leave."""


@contextlib.asynccontextmanager
async def lease_kept(run: NodeRun) -> AsyncIterator[None]:
    """Renew the lease in the background: a model's or tool's call may take longer than a lease lasts."""
    if run.settings is None or run.execution_id is None:
        yield
        return
    async with lease_renewed(run.resources, run.run.run_id, run.execution_id):
        yield


@contextlib.asynccontextmanager
async def lease_renewed(resources: Resources, run_id: str, execution_id: str) -> AsyncIterator[None]:
    """Renew the lease that an execution holds, long before it ends."""
    keeper = asyncio.create_task(_keep(resources, run_id, execution_id))
    try:
        yield
    finally:
        keeper.cancel()
        # A renewal that is cut off is over before the lease can be given back.
        await asyncio.wait([keeper], timeout=STOP_SECONDS)


async def _keep(resources: Resources, run_id: str, execution_id: str) -> None:
    seconds = resources.lease_seconds
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds / 3):
                await asyncio.Event().wait()
        now = resources.clock.now()
        try:
            await resources.runs.take_lease(run_id, execution_id, now, now + seconds, False)
        except Exception as error:
            logger.warning("could not renew a lease: %s", type(error).__name__)
