"""The journal's contract, held by the SQL and the in-memory one alike (R67, R103-R108, R113-R116)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.event import listen, remove

from graph.contract import TraceEvent, TraceEventType
from nodes.ports import AgentStepRow, ArchiveEntry, JournalBatch
from service.store.clock import FixedClock
from service.store.journal import SqlJournal
from service.store.memory import InMemoryJournal
from service.store.whitelist import TraceFieldRefused
from tests.stores import KINDS, database, reopened

DAY = 86_400.0
Journals = SqlJournal | InMemoryJournal
Open = Callable[..., Journals]
STARTED = TraceEvent(type=TraceEventType.RUN_STARTED, fields={"model": "offline", "no_gain_threshold": 3})


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture(params=["memory", *KINDS])
async def open_journal(request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock) -> AsyncIterator[Open]:
    if request.param == "memory":
        yield lambda **options: InMemoryJournal(clock, **options)
    else:
        async with database(request.param, tmp_path) as engine:
            yield lambda **options: SqlJournal(engine, clock, **options)


@pytest.fixture
def journal(open_journal: Open) -> Journals:
    return open_journal(strict=True)


def batch(key: str, run_id: str = "run-1", at: float = 1_700_000_000.0, **parts: Any) -> JournalBatch:
    return JournalBatch(run_id, key, at, **parts)


def dropped(count: int) -> TraceEvent:
    return TraceEvent(type=TraceEventType.PARALLEL_CALLS_DROPPED, fields={"count": count})


async def test_r108_events_are_numbered_per_run_from_one(journal: Journals) -> None:
    await journal.write(batch("0001:a", events=[STARTED, dropped(1)]))
    await journal.write(batch("0001:a", "run-2", events=[dropped(7)]))
    await journal.write(batch("0002:b"))
    await journal.write(batch("0003:c", at=1_700_000_003.5, events=[dropped(2)]))
    rows = await journal.trace("run-1")
    assert [(row.seq, row.at, row.type, dict(row.fields)) for row in rows] == [
        (1, 1_700_000_000.0, TraceEventType.RUN_STARTED, {"model": "offline", "no_gain_threshold": 3}),
        (2, 1_700_000_000.0, TraceEventType.PARALLEL_CALLS_DROPPED, {"count": 1}),
        (3, 1_700_000_003.5, TraceEventType.PARALLEL_CALLS_DROPPED, {"count": 2}),
    ]
    assert [row.seq for row in await journal.trace("run-2")] == [1]
    assert [row.seq for row in await journal.trace("run-1", after=2)] == [3]
    assert await journal.trace("run-9") == ()


async def test_a_batch_written_again_changes_nothing(journal: Journals) -> None:
    first = batch(
        "0001:a",
        events=[dropped(1)],
        steps=[AgentStepRow(1, "TOOL_CALLS", ("call_1",), 10)],
        archive=[ArchiveEntry("question", "q", {"query": "x"})],
    )
    await journal.write(first)
    other = batch(
        "0001:a",
        at=1_800_000_000.0,
        events=[dropped(9)],
        steps=[AgentStepRow(2, "DRAFT", (), 1)],
        archive=[ArchiveEntry("question", "other", {"query": "y"})],
    )
    for again in (first, other):
        await journal.write(again)
    assert [row.fields for row in await journal.trace("run-1")] == [{"count": 1}]
    assert await journal.steps("run-1") == (AgentStepRow(1, "TOOL_CALLS", ("call_1",), 10),)
    assert await journal.archived("run-1", "question") == {"q": {"query": "x"}}


async def test_r108_concurrent_writers_leave_no_gap_and_no_half_batch(journal: Journals) -> None:
    batches = [batch(f"{index % 12:04}:n", events=[dropped(index % 12), dropped(index % 12)]) for index in range(24)]
    await asyncio.gather(*(journal.write(item) for item in batches))
    rows = await journal.trace("run-1")
    assert [row.seq for row in rows] == list(range(1, 25))
    counts = [row.fields["count"] for row in rows]
    assert counts[::2] == counts[1::2]
    assert sorted(counts[::2]) == list(range(12))


async def test_r104_production_drops_the_field_and_keeps_the_event(open_journal: Open) -> None:
    journal = open_journal(strict=False)
    leaky = TraceEvent(type=TraceEventType.SEMANTIC_GUARD, fields={"verdict": "SUPPORTED", "prompt": "hunter2"})
    await journal.write(batch("0001:a", events=[leaky, dropped(1)]))
    first, second = await journal.trace("run-1")
    assert (dict(first.fields), first.fields_refused) == ({"verdict": "SUPPORTED"}, 1)
    assert (second.seq, second.fields_refused) == (2, 0)


async def test_r104_tests_are_told_and_nothing_of_the_batch_is_stored(journal: Journals) -> None:
    leaky = TraceEvent(type=TraceEventType.SEMANTIC_GUARD, fields={"prompt": "hunter2"})
    with pytest.raises(TraceFieldRefused):
        await journal.write(batch("0001:a", events=[STARTED, leaky]))
    assert await journal.trace("run-1") == ()
    await journal.write(batch("0001:a", events=[STARTED]))
    assert len(await journal.trace("run-1")) == 1


async def test_r114_r116_steps_keep_order_and_unknown_tokens_stay_unknown(journal: Journals) -> None:
    steps = [
        AgentStepRow(1, "TOOL_CALLS", ("call_1", "call_2"), 120),
        AgentStepRow(2, "TOOL_CALLS", (), None),
        AgentStepRow(3, "DRAFT", (), 0),
    ]
    await journal.write(batch("0001:a", steps=steps[:2]))
    await journal.write(batch("0002:a", steps=steps[2:]))
    assert await journal.steps("run-1") == tuple(steps)


async def test_r106_steps_show_no_unsafe_text(journal: Journals) -> None:
    await journal.write(batch("0001:a", steps=[AgentStepRow(1, "a sentence", ("call 1", "call_2"), None)]))
    assert await journal.steps("run-1") == (AgentStepRow(1, "invalid", ("invalid", "call_2"), None),)


async def test_r67_the_archive_is_read_by_kind_and_the_first_value_stays(journal: Journals) -> None:
    answer = {"text": "订单 \ud800 \0", "usage": None, "nested": [1, {"a": 1.5}]}
    await journal.write(batch("0001:a", archive=[ArchiveEntry("model_answer", "DIAGNOSIS_AGENT:1", answer)]))
    await journal.write(
        batch(
            "0002:a",
            archive=[
                ArchiveEntry("model_answer", "DIAGNOSIS_AGENT:1", {"text": "late"}),
                ArchiveEntry("clock", "1", {}),
                ArchiveEntry("clock", "1", {"at": 2}),
            ],
        )
    )
    assert await journal.archived("run-1", "model_answer") == {"DIAGNOSIS_AGENT:1": answer}
    assert await journal.archived("run-1", "result") == {}
    assert await journal.archived("run-2", "clock") == {}
    assert [(entry.kind, entry.key) for entry in await journal.archive("run-1")] == [
        ("clock", "1"),
        ("model_answer", "DIAGNOSIS_AGENT:1"),
    ]


async def test_r67_an_archive_lives_thirty_days_after_its_last_entry_and_goes_whole(
    journal: Journals, clock: FixedClock
) -> None:
    begun = clock.now()
    await journal.write(batch("0001:a", at=begun, archive=[ArchiveEntry("question", "q", {"query": "x"})]))
    await journal.write(batch("0002:a", at=begun + 300, archive=[ArchiveEntry("result", "r", {})]))
    await journal.write(batch("0001:a", "run-2", at=begun + DAY, archive=[ArchiveEntry("question", "q", {})]))
    clock.advance(30 * DAY + 299)
    assert await journal.archived("run-1", "question") == {"q": {"query": "x"}}
    assert await journal.purge(clock.now()) == 0
    clock.advance(1)
    assert await journal.archived("run-1", "question") == {}
    assert await journal.archive("run-1") == ()
    assert await journal.purge(clock.now()) == 2
    assert await journal.purge(clock.now()) == 0
    assert await journal.archived("run-2", "question") == {"q": {}}


async def test_r115_purging_the_archive_keeps_the_ledger(journal: Journals, clock: FixedClock) -> None:
    await journal.write(
        batch(
            "0001:a",
            at=clock.now(),
            events=[STARTED],
            steps=[AgentStepRow(1, "DRAFT", (), 1)],
            archive=[ArchiveEntry("question", "q", {})],
        )
    )
    assert await journal.purge(clock.now() + 31 * DAY) == 1
    assert len(await journal.trace("run-1")) == 1
    assert len(await journal.steps("run-1")) == 1


async def test_the_days_are_configurable(open_journal: Open, clock: FixedClock) -> None:
    journal = open_journal(archive_days=1.0)
    await journal.write(batch("0001:a", at=clock.now(), archive=[ArchiveEntry("question", "q", {})]))
    clock.advance(DAY - 1)
    assert await journal.archived("run-1", "question") == {"q": {}}
    clock.advance(1)
    assert await journal.archived("run-1", "question") == {}


@pytest.mark.parametrize("kind", KINDS)
async def test_r8_an_end_that_another_writer_tells_at_the_same_moment_stays_the_only_one(
    kind: str, tmp_path: Path, clock: FixedClock
) -> None:
    end = TraceEvent(type=TraceEventType.RUN_ENDED, fields={"internal_state": "SUCCESS"})
    told: list[bool] = []

    def told_by_another(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE journal_cursor") and not told:
            told.append(True)
            with ThreadPoolExecutor(1) as other:
                other.submit(lambda: asyncio.run(tell("end:told", 2.0))).result()

    async def tell(key: str, at: float) -> None:
        async with reopened(kind, tmp_path) as engine:
            await SqlJournal(engine, clock).write(batch(key, at=at, events=[end]))

    async with database(kind, tmp_path) as engine:
        journal = SqlJournal(engine, clock)
        await journal.write(batch("0001:a", events=[STARTED]))
        listen(Engine, "before_cursor_execute", told_by_another)
        try:
            await journal.write(batch("0009:release", at=3.0, events=[end]))
        finally:
            remove(Engine, "before_cursor_execute", told_by_another)
        rows = await journal.trace("run-1")
    assert [(row.seq, row.type, row.at) for row in rows[1:]] == [(2, TraceEventType.RUN_ENDED, 2.0)]
