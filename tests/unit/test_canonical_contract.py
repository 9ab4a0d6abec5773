"""One contract for every canonical store: a new backend proves itself by joining BACKENDS."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from service.store.clock import FixedClock
from service.store.engine import create_engine, sqlite_url
from tests.redis_server import SERVER_URL, leased_database
from tests.stores import KINDS, database
from tools.canonical import memory as memory_module
from tools.canonical.codec import decode, encode, is_legal
from tools.canonical.memory import MemoryCanonicalStore
from tools.canonical.redis import RedisCanonicalStore, redis_client
from tools.canonical.redis_url import parse_redis_url
from tools.canonical.sql import SqlCanonicalStore, canonical_record
from tools.canonical.store import (
    CanonicalRecordTooLarge,
    CanonicalStore,
    CanonicalStoreUnavailable,
    canonical_key,
)
from tools.contract import CanonicalRecord, EvidenceStatus, InvocationStatus, ToolErrorCode
from tools.scope import make_scope

TTL = 3600.0
MAX_BYTES = 20_000


@dataclass
class Backend:
    """A store under test and a way to put broken text where a record lies."""

    store: CanonicalStore
    clock: FixedClock
    corrupt: Callable[[str, str], Awaitable[None]]


Opener = Callable[[Path], AbstractAsyncContextManager[Backend]]


@asynccontextmanager
async def memory_backend(_folder: Path) -> AsyncIterator[Backend]:
    clock = FixedClock()
    store = MemoryCanonicalStore(clock.now, ttl_seconds=TTL, max_bytes=MAX_BYTES)

    async def corrupt(key: str, payload: str) -> None:
        entry = store._entries[key]
        store._entries[key] = memory_module._Entry(entry.status, payload, entry.expires_at)

    yield Backend(store, clock, corrupt)


def sql_backend(kind: str) -> Opener:
    @asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[Backend]:
        clock = FixedClock()
        async with database(kind, folder) as engine:

            async def corrupt(key: str, payload: str) -> None:
                async with engine.begin() as connection:
                    statement = update(canonical_record).where(canonical_record.c.key == key).values(payload=payload)
                    assert (await connection.execute(statement)).rowcount == 1

            store = SqlCanonicalStore(engine, clock.now, ttl_seconds=TTL, max_bytes=MAX_BYTES)
            yield Backend(store, clock, corrupt)

    return opened


class ServerClock(FixedClock):
    """Lets time pass on a Redis server: what it holds comes nearer to its end."""

    def __init__(self, server: redis.Redis) -> None:
        super().__init__()
        self._server = server

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        for key in self._server.scan_iter("harness:canonical:*"):
            self._server.pexpire(key, max(0, int(self._server.pttl(key) - seconds * 1000)))


@asynccontextmanager
async def redis_backend(_folder: Path) -> AsyncIterator[Backend]:
    with leased_database() as number, redis.Redis.from_url(f"{SERVER_URL}/{number}") as server:
        client = redis_client(parse_redis_url(f"{SERVER_URL}/{number}"))

        async def corrupt(key: str, payload: str) -> None:
            assert server.set(key, payload, xx=True)

        try:
            yield Backend(
                RedisCanonicalStore(client, ttl_seconds=TTL, max_bytes=MAX_BYTES), ServerClock(server), corrupt
            )
        finally:
            await client.aclose()


PURGED: dict[str, Opener] = {"memory": memory_backend, **{kind: sql_backend(kind) for kind in KINDS}}
"""Stores that drop what expired themselves."""
BACKENDS: dict[str, Opener] = {**PURGED, "redis": redis_backend}
CLASSES = [CanonicalStore, MemoryCanonicalStore, SqlCanonicalStore, RedisCanonicalStore]


@pytest.fixture(params=sorted(BACKENDS))
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    async with BACKENDS[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture(params=sorted(PURGED))
async def purged(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    async with PURGED[request.param](tmp_path) as opened:
        yield opened


def started(run_id: str = "run-1", call: str = "call_1", **changes: Any) -> CanonicalRecord:
    values: dict[str, Any] = {
        "run_id": run_id,
        "tool_call_id": call,
        "tool_name": "query_logs",
        "status": InvocationStatus.PROJECTING,
        "scope": make_scope("query_logs", {"topic": "应用日志"}, "应用日志/30m"),
        "request": {"topic": "应用日志", "query": "error"},
        "created_at": 1_700_000_000.0,
    }
    return CanonicalRecord(**(values | changes))


def ready(record: CanonicalRecord, found: bool = True, **changes: Any) -> CanonicalRecord:
    status = EvidenceStatus.EVIDENCE_FOUND if found else EvidenceStatus.NO_EVIDENCE
    return record.model_copy(
        update={
            "status": InvocationStatus.READY,
            "evidence_status": status,
            "raw_response": {"events": ["磁盘满", 1, None]},
            "agent_result": {"total": 1},
            "completed_at": 1_700_000_001.0,
            **changes,
        }
    )


def failed(
    record: CanonicalRecord, code: ToolErrorCode = ToolErrorCode.OBSERVATION_CONTRACT_VIOLATION
) -> CanonicalRecord:
    return record.model_copy(
        update={"status": InvocationStatus.ERROR, "evidence_status": EvidenceStatus.ERROR, "error_code": code}
    )


async def test_r48_keeps_request_raw_response_and_agent_result(backend: Backend) -> None:
    record = started()
    assert await backend.store.begin(record) == record
    assert await backend.store.get("run-1", "call_1") == record
    assert await backend.store.finish(ready(record))
    assert await backend.store.get("run-1", "call_1") == ready(record)


async def test_r49_records_are_isolated_by_run_and_call(backend: Backend) -> None:
    for run_id, call in (("run-1", "call_1"), ("run-2", "call_1"), ("run-1", "call_2")):
        await backend.store.begin(started(run_id, call))
    assert await backend.store.finish(ready(started("run-2", "call_1")))
    assert (await backend.store.get("run-1", "call_1")) == started("run-1", "call_1")
    assert (await backend.store.get("run-1", "call_2")) == started("run-1", "call_2")
    assert await backend.store.get("run-2", "call_2") is None


async def test_begin_returns_what_is_settled_and_replaces_what_a_crash_left(backend: Backend) -> None:
    record = started()
    await backend.store.begin(record)
    again = started(created_at=1_700_000_050.0)
    assert await backend.store.begin(again) == again
    done = ready(again, found=False)
    assert await backend.store.finish(done)
    assert await backend.store.begin(record) == done
    other = started(call="call_2")
    await backend.store.begin(other)
    error = failed(other, ToolErrorCode.TOOL_TIMEOUT)
    assert await backend.store.finish(error)
    assert await backend.store.begin(other) == error


async def test_finish_happens_once_and_only_from_projecting(backend: Backend) -> None:
    record = started()
    assert not await backend.store.finish(ready(record))
    assert await backend.store.get("run-1", "call_1") is None
    await backend.store.begin(record)
    assert await backend.store.finish(ready(record))
    assert not await backend.store.finish(failed(record))
    assert await backend.store.get("run-1", "call_1") == ready(record)


async def test_concurrent_finish_has_one_winner(backend: Backend) -> None:
    record = started()
    await backend.store.begin(record)
    ends = [ready(record, agent_result={"writer": index}) for index in range(8)]
    won = await asyncio.gather(*(backend.store.finish(end) for end in ends))
    assert sum(won) == 1
    assert await backend.store.get("run-1", "call_1") == ends[won.index(True)]


async def test_concurrent_begin_and_finish_never_lose_a_settled_record(backend: Backend) -> None:
    record = started()
    await backend.store.begin(record)
    end = ready(record)
    results = await asyncio.gather(
        backend.store.finish(end), *(backend.store.begin(record) for _ in range(6)), backend.store.finish(end)
    )
    assert sum(1 for result in results if result is True) == 1
    assert await backend.store.get("run-1", "call_1") == end


async def test_r51_reject_turns_ready_into_error_and_nothing_else(backend: Backend) -> None:
    record = started()
    await backend.store.begin(record)
    assert not await backend.store.reject(failed(record))
    await backend.store.finish(ready(record))
    assert await backend.store.reject(failed(record))
    assert await backend.store.get("run-1", "call_1") == failed(record)
    assert not await backend.store.reject(failed(record))


async def test_r67_records_expire_ttl_after_their_last_write(backend: Backend) -> None:
    record = started()
    await backend.store.begin(record)
    backend.clock.advance(TTL - 1)
    assert await backend.store.finish(ready(record))
    backend.clock.advance(TTL - 1)
    assert await backend.store.get("run-1", "call_1") == ready(record)
    backend.clock.advance(1)
    assert await backend.store.get("run-1", "call_1") is None


async def test_r65_an_expired_record_cannot_be_finished_rejected_or_reused(backend: Backend) -> None:
    for call in ("call_1", "call_2"):
        await backend.store.begin(started(call=call))
    await backend.store.finish(ready(started(call="call_2")))
    backend.clock.advance(TTL)
    assert not await backend.store.finish(ready(started()))
    assert not await backend.store.reject(failed(started(call="call_2")))
    fresh = started(call="call_2", created_at=1_700_009_999.0)
    assert await backend.store.begin(fresh) == fresh


async def test_purge_drops_only_what_expired(purged: Backend) -> None:
    await purged.store.begin(started())
    purged.clock.advance(TTL - 10)
    await purged.store.begin(started(call="call_2"))
    purged.clock.advance(10)
    assert await purged.store.purge() == 1  # type: ignore[attr-defined]
    assert await purged.store.get("run-1", "call_2") is not None


async def test_expired_payloads_leave_by_themselves(purged: Backend) -> None:
    await purged.store.begin(started())
    purged.clock.advance(TTL)
    await purged.store.begin(started(call="call_2"))
    assert await purged.store.purge() == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "not json",
        "[]",
        "null",
        '{"run_id":"run-1"}',
        "[" * 100_000,
        encode(started("run-2"), frozenset(InvocationStatus)),
        encode(started(call="call_9"), frozenset(InvocationStatus)),
    ],
    ids=["empty", "text", "list", "null", "partial", "deep", "other-run", "other-call"],
)
async def test_r65_what_does_not_decode_is_missing(backend: Backend, payload: str) -> None:
    record = started()
    await backend.store.begin(record)
    await backend.store.finish(ready(record))
    await backend.corrupt(canonical_key("run-1", "call_1"), payload)
    assert await backend.store.get("run-1", "call_1") is None
    assert await backend.store.begin(record) == record
    assert await backend.store.get("run-1", "call_1") == record


async def test_r70_illegal_pairs_in_the_store_are_missing(backend: Backend) -> None:
    record = started()
    await backend.store.begin(record)
    await backend.store.finish(ready(record))
    illegal = ready(record).model_copy(update={"evidence_status": EvidenceStatus.ERROR})
    await backend.corrupt(canonical_key("run-1", "call_1"), illegal.model_dump_json())
    assert await backend.store.get("run-1", "call_1") is None


async def test_r70_only_legal_pairs_are_written(backend: Backend) -> None:
    record = started()
    await backend.store.begin(record)
    for status in InvocationStatus:
        for evidence in (None, *EvidenceStatus):
            candidate = record.model_copy(update={"status": status, "evidence_status": evidence})
            if status is InvocationStatus.PROJECTING or not is_legal(candidate):
                with pytest.raises(ValueError, match="evidence_status"):
                    await backend.store.finish(candidate)
            if not (status is InvocationStatus.PROJECTING and evidence is None):
                with pytest.raises(ValueError, match="evidence_status"):
                    await backend.store.begin(candidate)
    with pytest.raises(ValueError, match="ERROR"):
        await backend.store.reject(ready(record))
    assert await backend.store.get("run-1", "call_1") == record


async def test_a_record_beyond_the_bound_is_refused_and_not_stored(backend: Backend) -> None:
    record = started()
    await backend.store.begin(record)
    with pytest.raises(CanonicalRecordTooLarge, match=r"allowed are 20000"):
        await backend.store.finish(ready(record, raw_response={"text": "字" * MAX_BYTES}))
    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(CanonicalRecordTooLarge, match="depth"):
        await backend.store.finish(ready(record, raw_response=deep))
    with pytest.raises(CanonicalRecordTooLarge):
        await backend.store.begin(started(call="call_2", request={"query": "x" * MAX_BYTES}))
    assert await backend.store.get("run-1", "call_1") == record
    assert await backend.store.get("run-1", "call_2") is None


async def test_text_that_databases_dislike_survives(backend: Backend) -> None:
    record = started(request={"query": "a\0b \ud800 😀 ' \" \\ %s :x"})
    await backend.store.begin(record)
    assert await backend.store.get("run-1", "call_1") == record


async def test_the_store_shares_no_object_with_its_callers(backend: Backend) -> None:
    record = started()
    await backend.store.begin(record)
    record.request["query"] = "changed"
    held = await backend.store.get("run-1", "call_1")
    assert held is not None
    assert held.request["query"] == "error"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_r14_no_store_lists_by_run(kind: type) -> None:
    """Every public method that knows a Run also knows the one call, and none returns more than one record."""
    methods = {
        name: member for name, member in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")
    }
    assert {"begin", "finish", "reject", "get"} <= set(methods) <= {"begin", "finish", "reject", "get", "purge"}
    assert list(inspect.signature(methods["get"]).parameters) == ["self", "run_id", "tool_call_id"]
    for name, method in methods.items():
        parameters = set(inspect.signature(method).parameters) - {"self"}
        assert parameters in ({"record"}, {"run_id", "tool_call_id"}, set()), name
        returned = str(inspect.signature(method).return_annotation)
        assert returned in {"CanonicalRecord", "CanonicalRecord | None", "bool", "int"}, name


def test_r14_the_table_has_no_column_to_list_a_run_by() -> None:
    assert {column.name for column in canonical_record.columns} == {"key", "status", "payload", "expires_at"}


async def test_r65_a_store_out_of_reach_says_so(tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_bytes(b"this is not a database" * 100)
    engine = create_engine(sqlite_url(tmp_path / "broken.db"))
    store = SqlCanonicalStore(engine, FixedClock().now)
    record = started()
    for attempt in (
        store.begin(record),
        store.finish(ready(record)),
        store.reject(failed(record)),
        store.get("run-1", "call_1"),
        store.purge(),
    ):
        with pytest.raises(CanonicalStoreUnavailable) as caught:
            await attempt
        assert "SELECT" not in str(caught.value)
    await engine.dispose()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(raw=JSON, result=st.dictionaries(st.text(), JSON, max_size=4))
def test_r48_json_data_comes_back_as_it_was(raw: Any, result: dict[str, Any]) -> None:
    record = ready(started(), raw_response=raw, agent_result=result)
    text = encode(record, frozenset(InvocationStatus))
    assert decode(text, "run-1", "call_1", "READY") == record
    assert decode(text.encode(), "run-1", "call_1") == record
    assert decode(text, "run-1", "call_1", "ERROR") is None


@given(payload=st.binary(max_size=200) | st.text(max_size=200))
def test_r65_decode_never_raises(payload: bytes | str) -> None:
    assert decode(payload, "run-1", "call_1") is None
