"""The canonical store on the running Redis over a line that fails (R48, R49, R65, R67, R118)."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from tests.redis_server import SERVER_URL, Fault, Line, leased_database, line, place
from tests.unit.test_canonical_contract import failed, ready, started
from tools.canonical.redis import CONNECT_SECONDS, MAX_CONNECTIONS, REPLY_SECONDS, RedisCanonicalStore, redis_client
from tools.canonical.redis_url import parse_redis_url
from tools.canonical.store import CanonicalRecordTooLarge, CanonicalStoreUnavailable, canonical_key

SHORT = 0.5
"""Seconds a call may take where the line says nothing."""
AMPLE = 5.0
"""Seconds a call may take where the outcome does not depend on waiting; a busy machine needs them."""
LOST_REPLY: list[Fault] = ["cut before reply", "cut reply", "swallow replies"]
LOST_REQUEST: list[Fault] = ["refuse", "cut before request", "swallow requests"]


@pytest.fixture
def database() -> Any:
    with leased_database() as number:
        yield number


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[RedisCanonicalStore]:
    client = redis_client(parse_redis_url(url))
    try:
        yield RedisCanonicalStore(client, **options)
    finally:
        await client.aclose()


@asynccontextmanager
async def two_ways(
    database: int, call_seconds: float = AMPLE
) -> AsyncIterator[tuple[RedisCanonicalStore, RedisCanonicalStore, Line]]:
    """The store over a line, the same store directly, the line."""
    async with (
        line() as way,
        opened(f"{way.url}/{database}", call_seconds=call_seconds) as far,
        opened(f"{SERVER_URL}/{database}") as near,
    ):
        yield far, near, way


def patience(fault: Fault) -> float:
    """How long a call waits before it gives up, chosen so that a fault without silence never depends on it."""
    return SHORT if fault.startswith("swallow") else AMPLE


def plain(database: int) -> redis.Redis:
    return redis.Redis.from_url(f"{SERVER_URL}/{database}")


async def reconnected(way: Line, fault: Fault) -> None:
    """Set a fault that meets the next call; one that refuses needs a new connection to show."""
    way.fault = fault
    if fault == "refuse":
        way.cut()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("fault", LOST_REQUEST)
async def test_r65_outage_before_begin_stores_nothing_and_the_next_begin_works(database: int, fault: Fault) -> None:
    async with two_ways(database, patience(fault)) as (far, near, way):
        assert await far.get("run-1", "none") is None
        await reconnected(way, fault)
        with pytest.raises(CanonicalStoreUnavailable):
            await far.begin(started())
        assert await near.get("run-1", "call_1") is None
        way.fault = ""
        assert await far.begin(started()) == started()


@pytest.mark.parametrize("fault", LOST_REQUEST)
async def test_r65_outage_between_begin_and_finish_leaves_projecting_and_nothing_else_changes(
    database: int, fault: Fault
) -> None:
    other, record = started(call="call_0"), started()
    async with two_ways(database, patience(fault)) as (far, near, way):
        await far.begin(other)
        await far.finish(ready(other))
        await far.begin(record)
        await reconnected(way, fault)
        for attempt in (far.finish(ready(record)), far.get("run-1", "call_1"), far.reject(failed(other))):
            with pytest.raises(CanonicalStoreUnavailable):
                await attempt
        assert await near.get("run-1", "call_1") == record
        assert await near.get("run-1", "call_0") == ready(other)
        way.fault = ""
        assert await far.finish(ready(record))
        assert await far.get("run-1", "call_0") == ready(other)


@pytest.mark.parametrize("fault", LOST_REPLY)
async def test_r65_a_finish_whose_reply_is_lost_fails_closed_and_a_second_run_of_the_node_finds_its_own(
    database: int, fault: Fault
) -> None:
    record = started()
    async with two_ways(database, patience(fault)) as (far, near, way):
        await far.begin(record)
        way.fault = fault
        with pytest.raises(CanonicalStoreUnavailable):
            await far.finish(ready(record))
        assert await near.get("run-1", "call_1") == ready(record)
        way.fault = ""
        assert await far.begin(started(created_at=1_700_000_099.0)) == ready(record)
        assert not await far.finish(failed(record))
        assert await far.get("run-1", "call_1") == ready(record)


@pytest.mark.parametrize("fault", LOST_REPLY)
async def test_r65_a_begin_or_reject_whose_reply_is_lost_may_be_repeated(database: int, fault: Fault) -> None:
    record = started()
    async with two_ways(database, patience(fault)) as (far, near, way):
        await far.get("run-1", "call_1")
        way.fault = fault
        with pytest.raises(CanonicalStoreUnavailable):
            await far.begin(record)
        assert await near.get("run-1", "call_1") == record
        way.fault = ""
        assert await far.begin(record) == record
        assert await far.finish(ready(record))
        way.fault = fault
        with pytest.raises(CanonicalStoreUnavailable):
            await far.reject(failed(record))
        way.fault = ""
        assert await far.get("run-1", "call_1") == failed(record)


async def test_r65_a_late_command_never_undoes_what_is_settled(database: int) -> None:
    """Begin and finish are held up on the line, given up by their caller, and arrive when others have gone on."""
    record, late = started(), started(created_at=1.0)
    async with two_ways(database, SHORT) as (far, near, way):
        for call in ("begin", "finish"):
            await far.get("run-1", "none")
            way.delay = 2 * SHORT
            with pytest.raises(CanonicalStoreUnavailable):
                await (far.begin(late) if call == "begin" else far.finish(ready(late, agent_result={"late": True})))
            if call == "begin":
                await near.begin(record)
                await near.finish(ready(record))
            way.delay = 0.0
            await asyncio.sleep(2 * SHORT)
            assert await near.get("run-1", "call_1") == ready(record)


async def test_a_slow_line_is_slow_and_nothing_more(database: int) -> None:
    record = started()
    async with two_ways(database) as (far, near, way):
        way.delay = 0.03
        await far.begin(record)
        assert await far.finish(ready(record))
        assert await near.get("run-1", "call_1") == ready(record)


async def test_r118_every_call_is_one_attempt(database: int) -> None:
    async with two_ways(database, SHORT) as (far, _, way):
        for count, fault in enumerate([*LOST_REPLY, "cut before request", "swallow requests"], start=1):
            way.fault = ""
            await far.get("run-1", "none")
            way.fault = fault  # type: ignore[assignment]
            with pytest.raises(CanonicalStoreUnavailable):
                await far.begin(started())
            assert way.sent("EVAL") == count


async def test_an_idle_connection_that_was_cut_is_replaced_without_a_failed_call(database: int) -> None:
    record = started()
    async with two_ways(database) as (far, _, way):
        await far.begin(record)
        way.cut()
        await asyncio.sleep(0.02)
        assert await far.finish(ready(record))
        assert way.accepted == 2
        assert way.sent("EVAL") == 2


async def test_a_silent_server_costs_the_stores_own_time_and_no_more(database: int) -> None:
    async with two_ways(database, SHORT) as (far, _, way):
        way.fault = "swallow replies"
        began = time.monotonic()
        with pytest.raises(CanonicalStoreUnavailable, match="TimeoutError"):
            await far.get("run-1", "call_1")
        assert SHORT <= time.monotonic() - began < REPLY_SECONDS


async def test_cancelled_calls_leave_no_answer_for_others_to_read(database: int) -> None:
    """A connection whose call was given up must not hand its reply to the next call."""
    records = [started(call=f"call_{index}") for index in range(8)]
    async with two_ways(database) as (far, near, way):
        for record in records:
            await near.begin(record)
            await near.finish(ready(record, agent_result={"of": record.tool_call_id}))
        way.delay = 0.005
        for turn in range(30):
            tasks = [asyncio.create_task(far.get("run-1", record.tool_call_id)) for record in records]
            await asyncio.sleep(0.001 * (turn % 15))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        way.delay = 0.0
        found = await asyncio.gather(*(far.get("run-1", record.tool_call_id) for record in records))
        assert [each.agent_result for each in found if each] == [{"of": record.tool_call_id} for record in records]
        assert way.accepted > MAX_CONNECTIONS / 2


async def test_more_calls_than_connections_wait_for_their_turn(database: int) -> None:
    records = [started(call=f"call_{index}") for index in range(4 * MAX_CONNECTIONS)]
    async with line() as way, opened(f"{way.url}/{database}") as store:
        await asyncio.gather(*(store.begin(record) for record in records))
        assert all(await asyncio.gather(*(store.finish(ready(record)) for record in records)))
        assert way.accepted <= MAX_CONNECTIONS


async def test_concurrent_finish_of_two_clients_has_one_winner(database: int) -> None:
    async with opened(f"{SERVER_URL}/{database}") as one, opened(f"{SERVER_URL}/{database}") as two:
        for turn in range(20):
            record = started(call=f"call_{turn}")
            await one.begin(record)
            ends = [ready(record, agent_result={"writer": "one"}), failed(record)]
            won = await asyncio.gather(one.finish(ends[0]), two.finish(ends[1]))
            assert sorted(won) == [False, True]
            assert await two.get("run-1", record.tool_call_id) == ends[won.index(True)]


async def test_r67_every_write_starts_the_records_time_anew(database: int) -> None:
    record, key = started(), canonical_key("run-1", "call_1")
    async with opened(f"{SERVER_URL}/{database}", ttl_seconds=60) as store:
        writes = (
            lambda: store.begin(record),
            lambda: store.finish(ready(record)),
            lambda: store.reject(failed(record)),
        )
        with plain(database) as server:
            for write in writes:
                assert await write()
                assert 50_000 < server.pttl(key) <= 60_000
                server.pexpire(key, 30_000)
            await store.get("run-1", "call_1")
            assert not await store.finish(ready(record))
            assert await store.begin(record) == failed(record)
            assert server.pttl(key) <= 30_000


async def test_r65_r67_a_record_ends_by_itself_and_cannot_be_finished_then(database: int) -> None:
    record = started()
    async with opened(f"{SERVER_URL}/{database}", ttl_seconds=0.2) as store:
        await store.begin(record)
        await asyncio.sleep(0.25)
        assert await store.get("run-1", "call_1") is None
        assert not await store.finish(ready(record))
        assert not await store.reject(failed(record))
        with plain(database) as server:
            assert server.dbsize() == 0


async def test_r67_the_default_time_is_an_hour_and_no_key_is_without_end(database: int) -> None:
    async with opened(f"{SERVER_URL}/{database}") as store:
        await store.begin(started())
        await store.finish(ready(started()))
        with plain(database) as server:
            assert server.keys() == [b"harness:canonical:run-1:call_1"]
            assert 3590 < server.ttl("harness:canonical:run-1:call_1") <= 3600


@pytest.mark.parametrize(
    "planted",
    [b"", b"READY", b"READY\n", b"READY\n{}", b"\xff\xfe\n\x80", b"ERROR\nnull", b"READY\n" + b"[" * 50_000, b"x" * 3_000_000],
    ids=["empty", "status", "no text", "no record", "no text at all", "null", "deep", "huge"],
)  # fmt: skip
async def test_r65_garbage_is_missing_never_a_fact(database: int, planted: bytes) -> None:
    record, key = started(), canonical_key("run-1", "call_1")
    async with opened(f"{SERVER_URL}/{database}") as store:
        with plain(database) as server:
            server.set(key, planted)
            assert await store.get("run-1", "call_1") is None
            assert not await store.finish(ready(record))
            assert await store.begin(record) == record
            assert await store.finish(ready(record))
            assert await store.get("run-1", "call_1") == ready(record)


async def test_r65_a_status_that_contradicts_its_record_is_missing(database: int) -> None:
    record, key = started(), canonical_key("run-1", "call_1")
    async with opened(f"{SERVER_URL}/{database}") as store:
        await store.begin(record)
        await store.finish(ready(record))
        with plain(database) as server:
            server.set(key, server.get(key).replace(b"READY\n", b"ERROR\n", 1))
            assert await store.get("run-1", "call_1") is None
            assert await store.begin(record) == record


async def test_r65_a_key_of_another_type_is_missing_and_replaced(database: int) -> None:
    record, key = started(), canonical_key("run-1", "call_1")
    async with opened(f"{SERVER_URL}/{database}") as store:
        with plain(database) as server:
            server.hset(key, "status", "READY")
            assert await store.get("run-1", "call_1") is None
            assert not await store.finish(ready(record))
            assert not await store.reject(failed(record))
            assert server.type(key) == b"hash"
            assert await store.begin(record) == record
            assert await store.get("run-1", "call_1") == record


async def test_r48_a_mebibyte_of_chinese_comes_back_and_one_byte_more_is_not_sent(database: int) -> None:
    record = started()
    async with line() as way, opened(f"{way.url}/{database}") as store:
        await store.begin(record)
        bare = len(ready(record, raw_response="").model_dump_json().encode())
        text = "字" * ((1024 * 1024 - bare) // 3) + "x" * ((1024 * 1024 - bare) % 3)
        full = ready(record, raw_response=text)
        with pytest.raises(CanonicalRecordTooLarge, match=r"1048577 bytes, allowed are 1048576"):
            await store.finish(ready(record, raw_response=text + "x"))
        assert way.sent("EVAL") == 1
        assert await store.finish(full)
        assert await store.get("run-1", "call_1") == full
        assert await store.begin(record) == full


async def test_r65_a_flushed_or_evicted_record_is_missing_and_cannot_be_finished(database: int) -> None:
    record = started()
    async with opened(f"{SERVER_URL}/{database}") as store:
        await store.begin(record)
        with plain(database) as server:
            server.flushdb()
        assert await store.get("run-1", "call_1") is None
        assert not await store.finish(ready(record))
        assert await store.get("run-1", "call_1") is None


@asynccontextmanager
async def user(*rules: str) -> AsyncIterator[str]:
    """An account on the running server for the time of a test; yields `name:password`."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    with plain(0) as server:
        server.execute_command("ACL", "SETUSER", name, "on", ">p@ss:w/rd", *rules)
        try:
            yield f"{name}:p%40ss%3Aw%2Frd"
        finally:
            server.execute_command("ACL", "DELUSER", name)


def with_account(account: str, database: int) -> str:
    host, port = place()
    return f"redis://{account}@{host}:{port}/{database}"


async def test_the_rights_that_are_documented_are_enough(database: int) -> None:
    rights = ("+eval", "+getrange", "+set", "+ping", "+select", "~harness:canonical:*")
    async with user(*rights) as account, opened(with_account(account, database)) as store:
        record = started()
        await store.begin(record)
        assert await store.finish(ready(record))
        assert await store.reject(failed(record))
        assert await store.get("run-1", "call_1") == failed(record)
        assert await store._client.ping()


@pytest.mark.parametrize(
    ("rules", "reads"),
    [
        (("+eval", "+getrange", "+select", "~harness:canonical:*"), True),
        (("+eval", "+set", "+select", "~harness:canonical:*"), False),
        (("+getrange", "+set", "+select", "~harness:canonical:*"), True),
        (("+@all", "~other:*"), False),
        (("+eval", "+getrange", "+set", "~*"), False),
    ],
    ids=["no set", "no getrange", "no eval", "other keys", "no select"],
)
async def test_r65_a_user_without_rights_is_unavailable_not_missing(
    database: int, rules: tuple[str, ...], reads: bool
) -> None:
    record = started()
    async with (
        user(*rules) as account,
        opened(with_account(account, database)) as store,
        opened(f"{SERVER_URL}/{database}") as owner,
    ):
        await owner.begin(record)
        writes = [store.begin(record), store.finish(ready(record))]
        for attempt in writes if reads else [*writes, store.get("run-1", "call_1")]:
            with pytest.raises(CanonicalStoreUnavailable):
                await attempt
        assert await owner.get("run-1", "call_1") == record


async def test_r65_a_wrong_password_says_nothing_of_itself(database: int) -> None:
    async with user("+@all", "~*") as account:
        name = account.split(":")[0]
        async with opened(with_account(f"{name}:hunter2", database)) as store:
            for attempt in (store.begin(started()), store.get("run-1", "call_1"), store.finish(ready(started()))):
                with pytest.raises(CanonicalStoreUnavailable) as caught:
                    await attempt
                assert str(caught.value) == "canonical store: no answer (AuthenticationError)"
                assert caught.value.__cause__ is None
            for shown in (repr(store), repr(store._client)):
                assert "hunter2" not in shown
                assert name not in shown


ANSWERS = [
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$99999999999\r\n", b"$x\r\n", b":abc\r\n", b"\xff\r\n", b"*-9\r\n", b"*0\r\n",
    b":7\r\n", b"", b"-ERR \xff\r\n", b"-WRONGPASS\r\n", b"-LOADING x\r\n", b"-MOVED 1 h:1\r\n", b"-OOM x\r\n",
    b"-READONLY x\r\n",
]  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS, ids=repr)
async def test_r65_a_strange_answer_is_unavailable(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(serve, "127.0.0.1", 0) as server,
        opened(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", call_seconds=SHORT) as store,
    ):
        for attempt in (
            store.begin(started()),
            store.finish(ready(started())),
            store.reject(failed(started())),
            store.get("run-1", "call_1"),
        ):
            with pytest.raises(CanonicalStoreUnavailable):
                await attempt


async def test_r65_no_server_at_all_is_unavailable_at_once() -> None:
    async with line() as way:
        port = way.port
    async with opened(f"redis://127.0.0.1:{port}") as store:
        began = time.monotonic()
        with pytest.raises(CanonicalStoreUnavailable):
            await store.get("run-1", "call_1")
        assert time.monotonic() - began < CONNECT_SECONDS
