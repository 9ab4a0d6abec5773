"""Logs over files: events, windows, order, bounds and what goes wrong with files."""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log_files import NOW, ask, messages, write
from tools.catalog import TopicEntry
from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.logs.backend import Lookback, ParsedQuery
from tools.logs.backend_files import FilesBackend
from tools.logs.files import TopicFile
from tools.logs.scan import LogFile, Region
from tools.logs.source import Source
from tools.logs.timestamps import TimestampReader

TRACE = """2026-03-01 03:00:00 INFO start
2026-03-01 03:01:00 ERROR request failed
java.lang.IllegalStateException: broken pipe
\tat com.shop.Order.pay(Order.java:12)
Caused by: java.net.ConnectException: refused by payments
2026-03-01 03:02:00 INFO next
"""


def test_stack_trace_is_one_event_found_by_its_last_line(tmp_path: Path) -> None:
    write(tmp_path, TRACE)
    response = ask(tmp_path, "refused payments")
    assert (response.total, response.events[0].level) == (1, "ERROR")
    assert response.events[0].timestamp == "2026-03-01T03:01:00.000+00:00"
    assert messages(response)[0].startswith("ERROR request failed\n")
    assert ask(tmp_path, "failed AND refused").total == 1
    assert ask(tmp_path, "start AND refused").total == 0


def test_newest_first_within_the_window(tmp_path: Path) -> None:
    lines = [f"2026-03-01 02:{minute:02}:00 INFO tick {minute}" for minute in range(60)]
    lines += ["2026-03-01 03:05:00 INFO now", "2026-03-01 03:05:01 INFO later"]
    write(tmp_path, "\n".join(lines))
    response = ask(tmp_path, minutes=10)
    assert messages(response) == ["INFO now"] + [f"INFO tick {minute}" for minute in (59, 58, 57, 56, 55)]
    assert (response.from_, response.to) == ("2026-03-01T02:55:00.000+00:00", "2026-03-01T03:05:00.000+00:00")
    assert not response.truncated


def test_latest_means_the_newest_event_of_the_topic(tmp_path: Path) -> None:
    write(tmp_path, "2020-01-01 00:00:00 old\n2020-01-01 05:00:00 new\n")
    assert messages(ask(tmp_path, now=None)) == ["new"]
    assert ask(tmp_path, now=NOW).total == 0


def test_zone_of_the_topic(tmp_path: Path) -> None:
    write(tmp_path, "2026-03-01 11:05:00 here\n2026-03-01 03:05:00 not here\n")
    response = ask(tmp_path, minutes=5, timezone="Asia/Shanghai")
    assert messages(response) == ["here"]
    assert response.events[0].timestamp == "2026-03-01T11:05:00.000+08:00"


def test_unsorted_file_is_searched_whole(tmp_path: Path) -> None:
    minutes = [(index * 37) % 60 for index in range(60)]
    write(tmp_path, "\n".join(f"2026-03-01 02:{minute:02}:00 INFO at {minute:02}" for minute in minutes))
    assert messages(ask(tmp_path, minutes=10)) == [f"INFO at {minute}" for minute in (59, 58, 57, 56, 55)]


def test_file_without_times_is_lines_in_any_window(tmp_path: Path) -> None:
    write(tmp_path, "Name: x\n  State: Waiting\n    Reason: CrashLoopBackOff\n\nEvents: none\n")
    response = ask(tmp_path, "CrashLoopBackOff", minutes=1)
    assert messages(response) == ["Reason: CrashLoopBackOff"]
    assert response.events[0].timestamp is None
    assert ask(tmp_path).total == 4
    assert ask(tmp_path, now=None).from_ is None


def test_traces_without_times_are_one_event(tmp_path: Path) -> None:
    text = (
        "ERROR:root:boom\nTraceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n    g()\n  File "a.py", line 2, in g\n    raise ValueError("x")\nValueError: x\n'
        "INFO:root:done\n"
    )
    write(tmp_path, text)
    response = ask(tmp_path, "ValueError")
    assert response.total == 1
    assert messages(response)[0].startswith("ERROR:root:boom")
    assert messages(response)[0].endswith("ValueError: x")


def test_lines_before_the_first_timestamp_are_as_old_as_it(tmp_path: Path) -> None:
    write(tmp_path, "banner one\nbanner two\n2026-03-01 03:00:00 up\n")
    assert messages(ask(tmp_path)) == ["up", "banner one", "banner two"]
    assert ask(tmp_path, minutes=1).total == 0


def test_json_lines(tmp_path: Path) -> None:
    rows = [
        {"ts": NOW - 60, "level": "error", "service": "pay", "pod": "pay-1", "msg": "refused", "http": {"status": 502}},
        {"ts": NOW - 50, "level": 30, "msg": "fine", "trace": "t"},
    ]
    write(tmp_path, "\n".join(json.dumps(row) for row in rows))
    response = ask(tmp_path, "status:502")
    event = response.events[0]
    assert (event.level, event.service, event.instance, event.message) == ("ERROR", "pay", "pay-1", "refused")
    assert event.attributes == {"http.status": 502}
    assert messages(ask(tmp_path, "level:info")) == ["fine"]


@pytest.mark.parametrize("path", ["absent.log", "absent/", "absent/*.log", "empty-folder"])
def test_missing_files_are_an_error_not_an_absence_of_evidence(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty-folder").mkdir()
    with pytest.raises(ToolFailure) as failure:
        ask(tmp_path, path=path)
    assert failure.value.code is ToolErrorCode.BACKEND_UNAVAILABLE


def test_named_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "app.log")
    with pytest.raises(ToolFailure):
        ask(tmp_path)


def test_empty_file_is_no_evidence(tmp_path: Path) -> None:
    write(tmp_path, b"")
    assert ask(tmp_path).total == 0


def test_five_megabytes_in_one_line(tmp_path: Path) -> None:
    line = b"2026-03-01 03:00:00 ERROR " + b"x" * 3_000_000 + b" needle " + b"y" * 2_000_000
    write(tmp_path, b"2026-03-01 02:59:00 before\n" + line + b"\n2026-03-01 03:01:00 after\n")
    response = ask(tmp_path, "needle")
    assert response.total == 1
    assert len(response.events[0].message) <= 4000
    assert "needle" in response.events[0].message
    assert ask(tmp_path).total == 3


def test_line_longer_than_any_event_is_cut(tmp_path: Path) -> None:
    write(tmp_path, b"2026-03-01 03:00:00 a " + b"x" * (40 * 1024 * 1024))
    assert ask(tmp_path, "a").total >= 1


def test_many_matches_keep_the_needle_and_tell_the_bound(tmp_path: Path) -> None:
    lines = ["2026-03-01 03:00:00 ERROR pool exhausted after 30s"]
    lines += [f"2026-03-01 03:0{index // 4000}:01 INFO request {index} took {index % 97}ms" for index in range(12000)]
    write(tmp_path, "\n".join(lines))
    response = ask(tmp_path, minutes=60, limit=5)
    assert (response.total, response.returned, response.truncated) == (12001, 5, True)
    assert "ERROR pool exhausted after 30s" in messages(response)
    assert [(pattern.template, pattern.count) for pattern in response.patterns] == [
        ("ERROR pool exhausted after 30s", 1),
        ("INFO request <num> took <num>ms", 12000),
    ]


def test_r128_partial_answer_is_never_no_evidence(tmp_path: Path) -> None:
    write(tmp_path, "2026-03-01 03:00:00 x\n" * 1000)
    with pytest.raises(ToolFailure) as failure:
        ask(tmp_path, "absent", deadline=0.0)
    assert failure.value.code is ToolErrorCode.TOOL_TIMEOUT


def test_bound_of_matches_tells_how_far_back_was_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.logs.backend_files.MAX_HITS", 100)
    monkeypatch.setattr("tools.logs.scan.BISECT_FROM_BYTES", 1024)
    monkeypatch.setattr("tools.logs.scan.BLOCK_BYTES", 8 * 1024)
    lines = [f"2026-03-01 02:{index // 60:02}:{index % 60:02} INFO tick" for index in range(3600)]
    write(tmp_path, "\n".join(lines))
    response = ask(tmp_path, "tick", minutes=120)
    assert 100 <= response.total < 3600
    assert (response.total_is_lower_bound, response.truncated) == (True, True)
    assert response.from_ is not None
    assert "2026-03-01T02:4" < response.from_ < "2026-03-01T03"
    assert response.events[0].timestamp == "2026-03-01T02:59:59.000+00:00"


def test_file_that_vanishes_between_listing_and_reading(tmp_path: Path) -> None:
    write(tmp_path, "2026-03-01 03:00:00 x\n", "logs/a.log")
    (tmp_path / "logs/b.log").symlink_to(tmp_path / "nowhere")
    assert ask(tmp_path, path="logs").total == 1


def test_file_that_grows_and_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, "2026-03-01 03:00:00 INFO first\n" * 5_000)
    stop = threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            with path.open("ab") as file:
                file.write(b"2026-03-01 03:01:00 INFO grown\n" * 1000)
            os.truncate(path, 100_000)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        totals = [ask(tmp_path, "INFO").total for _ in range(4)]
    finally:
        stop.set()
        thread.join()
    assert all(total > 0 for total in totals)


async def test_cancel_ends_the_thread(tmp_path: Path) -> None:
    write(tmp_path, "2026-03-01 03:00:00 INFO some text that does not match\n" * 400_000)
    entry = TopicEntry(name="app", path="app.log")
    before = threading.active_count()
    call = asyncio.create_task(
        FilesBackend(tmp_path).query(entry, ParsedQuery.of("NOT text"), Lookback(30, NOW, NOW), 20, 60.0)
    )
    await asyncio.sleep(0.2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    started = time.monotonic()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert time.monotonic() - started < 5
    assert threading.active_count() <= before


def test_bisection_agrees_with_a_whole_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = NOW - 86_400
    lines = []
    for index in range(60_000):
        stamp = datetime.fromtimestamp(start + index * 1.44, UTC).strftime("%Y-%m-%d %H:%M:%S")
        lines.append(f"{stamp} INFO request {index}" + ("\n  continued" if index % 7 == 0 else ""))
    write(tmp_path, "\n".join(lines))
    whole = ask(tmp_path, "continued OR request", minutes=45, limit=100)
    monkeypatch.setattr("tools.logs.scan.BISECT_FROM_BYTES", 1024)
    monkeypatch.setattr("tools.logs.scan.BLOCK_BYTES", 64 * 1024)
    narrowed = ask(tmp_path, "continued OR request", minutes=45, limit=100)
    assert narrowed == whole
    assert whole.total == pytest.approx(45 * 60 / 1.44, abs=2)
    assert ask(tmp_path, "request", minutes=45, now=None).total == pytest.approx(whole.total, abs=2)


LINE = st.sampled_from(
    [
        "2026-03-01 03:0{digit}:00 INFO alpha {digit}",
        "2026-03-01 03:0{digit}:30 ERROR beta",
        "2026-03-01 02:0{digit}:00 WARN alpha outside",
        "  at frame alpha",
        "continued gamma",
        "",
    ]
)
LINES = st.lists(st.tuples(LINE, st.integers(0, 9)).map(lambda pair: pair[0].format(digit=pair[1])), max_size=40)


def opens_with_a_frame(lines: list[str]) -> bool:
    """Whose frame the first line is cannot be known; the scan leaves it out."""
    return next((line for line in lines if line), "").startswith("  at")


def lead_events(lines: list[str]) -> list[list[str]]:
    """Lines before the first time are events of their own; a stack frame belongs to the one before it."""
    events: list[list[str]] = []
    for line in lines:
        if line.startswith("  at") and events:
            events[-1].append(line)
        elif line:
            events.append([line])
    return events


def reference(lines: list[str], query: str) -> int:
    """Count by the rule as written: a line without a time belongs to the event before it."""
    found: list[list[str]] = []
    for line in lines:
        if line.startswith("2026"):
            found.append([line])
        elif found:
            found[-1].append(line)
    times = [event[0][:19] for event in found]
    start, end = "2026-03-01 02:35:00", "2026-03-01 03:05:00"
    inside = [event for event, at in zip(found, times, strict=True) if start <= at <= end]
    if found and start <= times[0] <= end:
        inside += lead_events(lines[: lines.index(found[0][0])])
    texts = ["\n".join(event) for event in inside]
    return sum(all(word in text for word in query.split()) for text in texts)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    lines=LINES, query=st.sampled_from(["", "alpha", "beta gamma", "gamma", "ERROR frame"]), block=st.integers(16, 300)
)
def test_block_bounds_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], query: str, block: int
) -> None:
    write(tmp_path, "\n".join(lines))
    if not any(line.startswith("2026") for line in lines):
        return
    monkeypatch.setattr("tools.logs.scan.BLOCK_BYTES", 4 * 1024 * 1024)
    whole = ask(tmp_path, query)
    monkeypatch.setattr("tools.logs.scan.BLOCK_BYTES", block)
    assert ask(tmp_path, query) == whole
    if sum(line.startswith("2026") for line in lines) > 1 and not opens_with_a_frame(lines):
        assert whole.total == reference(lines, query)


@pytest.mark.parametrize("stamp", ["2026-03-01 03:00:00 ", ""])
def test_blocks_are_the_same_however_their_start_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamp: str
) -> None:
    starts = (f"{stamp}ERROR alpha", "Traceback (most recent call last):", '  File "a.py", line 1, in f', "    f()",
              "ValueError: beta", "A" * 64, "-----END KEY-----", f"{stamp}INFO {'long ' * 300}", "", "gamma")  # fmt: skip
    choice = random.Random(7).choices(starts, k=4000)
    write(tmp_path, "\n".join(choice))
    source = Source(TopicFile(tmp_path / "app.log", "app.log"), "utf-8")
    reader = TimestampReader(("iso",), ZoneInfo("UTC"), NOW) if stamp else None
    monkeypatch.setattr("tools.logs.scan.BLOCK_BYTES", 6000)

    def bounds(cut: int) -> list[tuple[int, bytes]]:
        monkeypatch.setattr("tools.logs.scan._CUT_BYTES", cut)
        return list(LogFile(source, reader).blocks(Region(0, source.size, True), lambda: None))

    with source:
        before = source.bytes_read
        slow = bounds(1 << 30)
        assert source.bytes_read - before >= source.size
        assert len(slow) > 50
        assert bounds(1500) == bounds(600) == slow


@pytest.mark.slow
def test_last_half_hour_of_a_large_file_reads_little_of_it(tmp_path: Path) -> None:
    size, step = 200 * 1024 * 1024, 86_400 * 7
    line = " INFO shop.orders request handled path=/api/orders status=200 took=12ms user=4711 " + "x" * 60 + "\n"
    count = size // (len(line) + 19)
    with (tmp_path / "app.log").open("w") as file:
        for index in range(count):
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(NOW - step + step * index / count))
            file.write(stamp + line)
    backend = FilesBackend(tmp_path)
    entry = TopicEntry(name="app", path="app.log")
    response = asyncio.run(backend.query(entry, ParsedQuery.of("status=200"), Lookback(30, NOW, NOW), 20, 60.0))
    assert response.total == pytest.approx(count * 1800 / step, rel=0.01)
    assert not response.total_is_lower_bound
    assert backend.last_bytes_read < size / 20


def test_a_file_of_a_topic_can_be_asked_for_by_the_name_its_events_show(tmp_path: Path) -> None:
    for name in ("broker-1.log", "broker-2.log"):
        (tmp_path / name).write_text(f"2026-03-01 03:00:00 INFO group of {name.split('.')[0]}\n")
    backend, entry = FilesBackend(tmp_path), TopicEntry(name="app", path="*.log")
    found = asyncio.run(backend.query(entry, ParsedQuery.of("file:broker-2*"), Lookback(30, NOW, NOW), 20, 60.0))
    assert [event.message for event in found.events] == ["INFO group of broker-2"]
    none = asyncio.run(backend.query(entry, ParsedQuery.of("file:other"), Lookback(30, NOW, NOW), 20, 60.0))
    assert none.total == 0
