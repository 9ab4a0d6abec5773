"""Which canonical store the settings name: Redis where SUPERBIZ_REDIS_URL is set, else a table of the database (R49)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.settings import Settings, SettingsError, env_name
from service.store.clock import SystemClock
from tools.canonical.redis_url import RedisAddress, parse_redis_url
from tools.canonical.sql import SqlCanonicalStore
from tools.canonical.store import CanonicalStore
from tools.contract import CanonicalRecord, InvocationStatus
from tools.database import Database
from tools.scope import make_scope


@asynccontextmanager
async def open_canonical_over(engine: Database, settings: Settings) -> AsyncIterator[CanonicalStore]:
    """Open the configured store; Redis is asked for nothing yet. Raises SettingsError naming what cannot be read."""
    if settings.redis_url is None:
        yield SqlCanonicalStore(engine, SystemClock().now, ttl_seconds=settings.canonical_ttl_seconds)
        return
    # Only here: a command without Redis does not pay for loading its client.
    from redis.exceptions import RedisError

    from tools.canonical.redis import RedisCanonicalStore, redis_client

    address = parse_redis_url(settings.redis_url.get_secret_value())
    await asyncio.to_thread(_require_files, address)
    client = redis_client(address)
    try:
        yield RedisCanonicalStore(client, ttl_seconds=settings.canonical_ttl_seconds)
    finally:
        with contextlib.suppress(RedisError, OSError):
            await client.aclose()


async def check_canonical(store: CanonicalStore) -> None:
    """Prove that a record can be written and read back. Raises CanonicalStoreUnavailable.

    Leaves one empty PROJECTING record of a Run that nobody else has, until its time is up.
    """
    scope = make_scope("doctor", {}, "doctor")
    record = CanonicalRecord(
        run_id=str(uuid.uuid4()),
        tool_call_id="doctor",
        tool_name="doctor",
        status=InvocationStatus.PROJECTING,
        scope=scope,
        request={},
        created_at=SystemClock().now(),
    )
    await store.begin(record)
    await store.get(record.run_id, record.tool_call_id)


def _require_files(address: RedisAddress) -> None:
    for option, path in address.files().items():
        if not os.access(path, os.R_OK) or not os.path.isfile(path):
            raise SettingsError(f"{env_name('redis_url')}: {option}: no such file, or it may not be read")
