"""Canonical records in Redis (R49): one string per call with a server-side time to live.

A value is the status, a line feed and the record as JSON. Each transition is one EVAL on one key, so it is atomic on the
server, and a command that arrives late, after its caller gave up, still meets the same condition: it can never undo a
settled record. The server's user needs `+eval +getrange +set +ping ~harness:canonical:*` (and `+select` for a database
other than 0).
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.maint_notifications import MaintNotificationsConfig

from tools.canonical.codec import DEFAULT_TTL_SECONDS, FINISHED, MAX_RECORD_BYTES, REJECTED, STARTED, decode, encode
from tools.canonical.redis_url import RedisAddress
from tools.canonical.store import CanonicalStoreUnavailable, canonical_key
from tools.contract import CanonicalRecord, InvocationStatus

CONNECT_SECONDS = 3.0
REPLY_SECONDS = 5.0
"""Time for one write to or read from the socket."""
CALL_SECONDS = 8.0
"""Time for one call of the store as a whole: waiting for a connection, connecting, asking."""
HEALTH_CHECK_SECONDS = 15
"""A connection idle for longer is asked before it is trusted with a record."""
MAX_CONNECTIONS = 16

_MAX_STATUS_BYTES = 16
_ATTEMPTS = 8
"""Tries of `begin` when others keep replacing an unreadable value under its key."""

_HELD = """
local held = redis.pcall('GETRANGE', KEYS[1], 0, ARGV[1])
if type(held) == 'table' then
  if string.sub(held.err or '', 1, 9) ~= 'WRONGTYPE' then return held end
  held = ''
end
"""

_BEGIN = (
    _HELD
    + """
local settled = string.sub(held, 1, 6) == 'READY\\n' or string.sub(held, 1, 6) == 'ERROR\\n'
if settled and redis.sha1hex(held) ~= ARGV[4] then return held end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return false
"""
)
"""Returns what is settled, unless its hash is the fourth argument; else writes and returns nothing."""

_MOVE = (
    _HELD
    + """
if string.sub(held, 1, #ARGV[4]) ~= ARGV[4] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""
)
"""Writes when the value starts with the fourth argument; returns how many records moved."""


def redis_client(address: RedisAddress) -> Redis:
    """Make a client fit for the store: one attempt (R118), every wait bounded, bytes in and out. Connects on first use.

    Whoever makes it closes it with `aclose()`.
    """
    options: dict[str, Any] = {
        "db": address.db,
        "username": address.username,
        "password": address.password,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": REPLY_SECONDS,
        "health_check_interval": HEALTH_CHECK_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        # Plain AUTH and strings: no HELLO, CLIENT or push messages, which need rights and newer servers.
        "protocol": 2,
        "driver_info": None,
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    }
    kind: type[Connection | UnixDomainSocketConnection] = Connection
    if address.path:
        kind = UnixDomainSocketConnection
        options["path"] = address.path
    else:
        options |= {"host": address.host, "port": address.port}
    if address.tls is not None:
        kind = SSLConnection
        options |= {"ssl_cert_reqs": "required", "ssl_check_hostname": True, **address.tls}
    pool = BlockingConnectionPool(
        max_connections=MAX_CONNECTIONS, timeout=CALL_SECONDS, connection_class=kind, **options
    )
    return Redis.from_pool(pool)


class RedisCanonicalStore:
    """CanonicalStore over one Redis server; the records' time to live is the server's business.

    When the outcome of a call is unknown (cut off, timed out) it raises CanonicalStoreUnavailable. The record may then
    have moved all the same: whoever begins the same call again is given what is settled.
    """

    def __init__(
        self,
        client: Redis,
        *,
        ttl_seconds: float = DEFAULT_TTL_SECONDS,
        max_bytes: int = MAX_RECORD_BYTES,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._client = client
        self._ttl_ms = max(1, round(ttl_seconds * 1000))
        self._max_bytes = max_bytes
        self._call_seconds = call_seconds
        # No value this store writes is longer: reading one byte more tells a foreign one without loading it.
        self._last_byte = _MAX_STATUS_BYTES + max_bytes

    async def begin(self, record: CanonicalRecord) -> CanonicalRecord:
        """Store a PROJECTING record, or return the settled one that is already there."""
        value = _value(record, encode(record, STARTED, self._max_bytes))
        unreadable = ""
        for _ in range(_ATTEMPTS):
            held = await self._eval(_BEGIN, record, value, unreadable)
            if held is None:
                return record
            if not isinstance(held, bytes):
                raise _strange(held)
            settled = _read(held, record.run_id, record.tool_call_id)
            if settled is not None:
                return settled
            unreadable = hashlib.sha1(held, usedforsecurity=False).hexdigest()
        raise CanonicalStoreUnavailable("canonical store: too much contention for one call's record")

    async def finish(self, record: CanonicalRecord) -> bool:
        """Move PROJECTING to READY or ERROR."""
        value = _value(record, encode(record, FINISHED, self._max_bytes))
        return await self._move(record, value, InvocationStatus.PROJECTING)

    async def reject(self, record: CanonicalRecord) -> bool:
        """Replace READY by ERROR (R51)."""
        value = _value(record, encode(record, REJECTED, self._max_bytes))
        return await self._move(record, value, InvocationStatus.READY)

    async def get(self, run_id: str, tool_call_id: str) -> CanonicalRecord | None:
        """Return the live record or None."""
        held = await self._ask("GETRANGE", canonical_key(run_id, tool_call_id), 0, self._last_byte)
        if not isinstance(held, bytes):
            raise _strange(held)
        return _read(held, run_id, tool_call_id)

    async def _move(self, record: CanonicalRecord, value: bytes, expected: InvocationStatus) -> bool:
        moved = await self._eval(_MOVE, record, value, f"{expected}\n")
        if moved not in (0, 1):
            raise _strange(moved)
        return bool(moved)

    async def _eval(self, script: str, record: CanonicalRecord, value: bytes, condition: str) -> Any:
        key = canonical_key(record.run_id, record.tool_call_id)
        return await self._ask("EVAL", script, 1, key, self._last_byte, value, self._ttl_ms, condition)

    async def _ask(self, *command: Any) -> Any:
        """Send one command once. Of an error only the type's name goes on: texts may hold addresses, users or values."""
        try:
            async with asyncio.timeout(self._call_seconds):
                return await self._client.execute_command(*command)  # type: ignore[no-untyped-call]
        except ResponseError as error:
            if command[0] == "GETRANGE" and str(error).startswith("WRONGTYPE"):
                return b""
            raise CanonicalStoreUnavailable(f"canonical store: refused ({type(error).__name__})") from None
        except (RedisError, OSError, ValueError) as error:
            raise CanonicalStoreUnavailable(f"canonical store: no answer ({type(error).__name__})") from None


def _strange(reply: object) -> CanonicalStoreUnavailable:
    return CanonicalStoreUnavailable(f"canonical store: not a reply of Redis ({type(reply).__name__})")


def _value(record: CanonicalRecord, text: str) -> bytes:
    return f"{record.status}\n{text}".encode()


def _read(held: bytes, run_id: str, tool_call_id: str) -> CanonicalRecord | None:
    """Read a value; None when it is no record of this call (R65), be it missing, foreign or broken."""
    status, line_end, text = held.partition(b"\n")
    if not line_end or len(status) > _MAX_STATUS_BYTES:
        return None
    return decode(text, run_id, tool_call_id, status.decode("ascii", "replace"))
