"""Timestamps: every format of the real samples, values, years, zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import data_dir
from tools.logs.timestamps import TimestampReader, detect_formats, time_formatter

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC).timestamp()
ZONE = ZoneInfo("UTC")
SHANGHAI = ZoneInfo("Asia/Shanghai")


def read(line: str, zone: ZoneInfo = ZONE, now: float = NOW) -> str | None:
    raw = line.encode()
    reader = TimestampReader(detect_formats([raw], zone, now), zone, now)
    return time_formatter(zone)(reader.read(raw))


SAMPLES = {
    "Apache_2k.log": ("2005-12-04T04:47:44", "2005-12-05T19:15:57"),
    "BGL_2k.log": ("2005-06-03T22:42:50", "2006-01-03T15:13:09"),
    "HDFS_2k.log": ("2008-11-09T20:36:15", "2008-11-11T10:20:17"),
    "Hadoop_2k.log": ("2015-10-18T18:01:47.978", "2015-10-18T18:10:55.202"),
    "Linux_2k.log": ("2026-06-14T15:16:01", "2026-07-27T14:42:00"),
    "OpenSSH_2k.log": ("2025-12-10T06:55:46", "2025-12-10T11:04:45"),
    "OpenStack_2k.log": ("2017-05-16T00:00:00.008", "2017-05-16T00:14:47.687"),
    "Spark_2k.log": ("2017-06-09T20:10:40", "2017-06-09T20:11:11"),
    "Thunderbird_2k.log": ("2005-11-09T20:01:01", "2005-11-09T20:15:32"),
    "Zookeeper_2k.log": ("2015-07-29T17:41:44.747", "2015-08-10T18:12:34.004"),
    "mysql/slow_mysql-ubuntu-8.0.15.log": ("2019-03-24T14:01:47.811234", "2019-03-24T14:04:53.713951"),
}


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_real_samples_are_read(name: str) -> None:
    lines = [line for line in (data_dir() / "logs" / name).read_bytes().split(b"\n") if line.strip()]
    reader = TimestampReader(detect_formats(lines[:400], ZONE, NOW), ZONE, NOW)
    times = [reader.read(line) for line in lines]
    known = [epoch for epoch in times if epoch is not None]
    first, last = (datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() for text in SAMPLES[name])
    assert (known[0], known[-1]) == (pytest.approx(first), pytest.approx(last))
    if name.startswith("mysql"):
        assert [line[:6] for line, epoch in zip(lines, times, strict=True) if epoch is not None] == [b"# Time"] * 2
    else:
        assert len(known) == len(lines)


def test_every_structured_sample_agrees_with_its_own_epoch_column() -> None:
    """BGL lines hold the epoch and the local time; both readings differ by the site's zone only."""
    for line in (data_dir() / "logs" / "BGL_2k.log").read_text().splitlines()[:200]:
        parts = line.split()
        assert TimestampReader(("epoch",), ZONE, NOW).read(line.encode()) == float(parts[1])
        local = TimestampReader(("iso",), ZoneInfo("America/Los_Angeles"), NOW).read(parts[4].encode())
        assert local == pytest.approx(float(parts[1]), abs=1.0)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("2026-03-01T03:05:00+08:00 x", "2026-02-28T19:05:00.000+00:00"),
        ("2026-03-01 03:05:00,123 INFO x", "2026-03-01T03:05:00.123+00:00"),
        ("2026/03/01 03:05:00 [error] 12#0: x", "2026-03-01T03:05:00.000+00:00"),
        ("[2026-03-01T03:05:00.5Z] x", "2026-03-01T03:05:00.500+00:00"),
        ('time="2026-03-01T03:05:00Z" level=error', "2026-03-01T03:05:00.000+00:00"),
        ("2026-03-01T03:05:00.123456789Z stdout F x", "2026-03-01T03:05:00.123+00:00"),
        ("<34>1 2026-03-01T03:05:00Z host app - - x", "2026-03-01T03:05:00.000+00:00"),
        ('10.0.0.1 - - [01/Mar/2026:03:05:00 +0800] "GET /"', "2026-02-28T19:05:00.000+00:00"),
        ("I0301 03:05:00.123456    1 main.go:1] x", "2026-03-01T03:05:00.123+00:00"),
        ("E1201 03:05:00.123456    1 main.go:1] x", "2026-12-01T03:05:00.123+00:00"),
        ("E1202 03:05:00.123456    1 main.go:1] x", "2025-12-02T03:05:00.123+00:00"),
        ("Feb 29 03:05:00 host app: x", "2024-02-29T03:05:00.000+00:00"),
        ("1:M 01 Mar 2026 03:05:00.123 * Ready", "2026-03-01T03:05:00.123+00:00"),
        ("Mar 01, 2026 3:05:00 PM org.x.Y run", "2026-03-01T15:05:00.000+00:00"),
        ("# Time: 190324 14:01:47", "2019-03-24T14:01:47.000+00:00"),
        ("20260301-03:05:00:606|x", "2026-03-01T03:05:00.606+00:00"),
        ("web-1  | 2026-03-01 03:05:00 x", "2026-03-01T03:05:00.000+00:00"),
        ("[pod/a/b] 2026-03-01T03:05:00Z x", "2026-03-01T03:05:00.000+00:00"),
        ('{"ts":1772334300.25,"msg":"x"}', "2026-03-01T03:05:00.250+00:00"),
        ('{"a":1,"@timestamp":"2026-03-01T03:05:00Z"}', "2026-03-01T03:05:00.000+00:00"),
        ('{"time":1772334300123}', "2026-03-01T03:05:00.123+00:00"),
        ("02.04.2026 10:00:00 ERROR x", "2026-04-02T10:00:00.000+00:00"),
        ("[2.4.2026, 9:05:00.25] x", "2026-04-02T09:05:00.250+00:00"),
        ("31.02.2026 10:00:00 x", None),
        ("10.0.0.1 10:00:00 x", None),
        ("25/04/2026 10:00:00 ERROR x", "2026-04-25T10:00:00.000+00:00"),
        ("04/25/2026 10:00:00.5 PM x", "2026-04-25T22:00:00.500+00:00"),
        ("25-04-2026 10:00:00 x", "2026-04-25T10:00:00.000+00:00"),
        ("25/04-2026 10:00:00 x", None),
        ("2026年4月2日 10:00:00 错误", "2026-04-02T10:00:00.000+00:00"),
        ("【2026年04月02日 下午3时05分06秒】 错误", "2026-04-02T15:05:06.000+00:00"),
        ("no time here", None),
        ("2026-13-41 99:00:00 x", None),
        ("Start Time:   Tue, 26 Nov 2024 12:38:58 +0100", None),
        ("Started: 2026-03-01T03:05:00Z", None),
        ("  at 2026-03-01 03:05:00", None),
    ],
)
def test_formats(line: str, expected: str | None) -> None:
    assert read(line) == expected


def first_of(*lines: str, now: float = NOW) -> str | None:
    raw = [line.encode() for line in lines]
    reader = TimestampReader(detect_formats(raw, ZONE, now), ZONE, now)
    return time_formatter(ZONE)(reader.read(raw[0]))


def test_the_file_says_whether_the_day_or_the_month_comes_first() -> None:
    line = "04/02/2026 10:00:00 x"
    day, month = "2026-02-04T10:00:00.000+00:00", "2026-04-02T10:00:00.000+00:00"
    assert first_of(line, "13/02/2026 10:00:00 x") == day
    assert first_of(line, "04/13/2026 10:00:00 x") == month
    # A stray line of another origin does not outvote the file.
    assert first_of(line, "04/13/2026 10:00:00 x", "04/14/2026 10:00:00 x", "14/04/2026 10:00:00 x") == month
    # All may be read either way: days taken for months would spread over the year.
    assert first_of(line, "05/02/2026 10:00:00 x", "06/02/2026 10:00:00 x") == day
    assert first_of(line, "04/03/2026 10:00:00 x", "04/04/2026 10:00:00 x") == month
    # One day alone: nothing is logged in the future, and recent is likelier than long ago.
    february = datetime(2026, 2, 5, tzinfo=UTC).timestamp()
    assert first_of(line, now=february) == day
    assert first_of(line) == month


def test_zone_of_the_topic_applies_where_the_line_names_none() -> None:
    assert read("2026-03-01 03:05:00 x", SHANGHAI) == "2026-03-01T03:05:00.000+08:00"
    assert read("2026-03-01 03:05:00Z x", SHANGHAI) == "2026-03-01T11:05:00.000+08:00"


def test_year_is_the_latest_not_after_now_plus_a_day() -> None:
    at = datetime(2005, 7, 27, 15, 0, tzinfo=UTC).timestamp()
    assert read("Jul 27 14:42:00 combo kernel: x", now=at) == "2005-07-27T14:42:00.000+00:00"
    assert read("Jul 28 14:42:00 combo kernel: x", now=at) == "2005-07-28T14:42:00.000+00:00"
    assert read("Jul 29 14:42:00 combo kernel: x", now=at) == "2004-07-29T14:42:00.000+00:00"


def test_descriptions_are_no_event_logs() -> None:
    lines = [b"Name: x", b"Namespace: y"] * 20 + [b"2026-03-01T03:05:00Z created"]
    assert detect_formats(lines, ZONE, NOW) == ()


def test_two_formats_in_one_file_are_both_kept() -> None:
    lines = [b"[2025-05-13 07:32:08,876] ERROR x", b'10.0.0.1 - - [13/May/2025 07:32:08] "GET / HTTP/1.1" 500 -']
    assert set(detect_formats(lines, ZONE, NOW)) == {"iso", "access"}


moments = st.datetimes(min_value=datetime(2002, 1, 1), max_value=datetime(2030, 1, 1))
WRITERS = {
    "iso": lambda at: at.strftime("%Y-%m-%d %H:%M:%S.%f"),
    "ctime": lambda at: at.strftime("[%a %b %d %H:%M:%S.%f %Y]"),
    "short-slash": lambda at: at.strftime("%y/%m/%d %H:%M:%S"),
    "short-digits": lambda at: at.strftime("%y%m%d %H%M%S 1"),
    "access": lambda at: at.strftime('h - - [%d/%b/%Y:%H:%M:%S +0000] "GET /"'),
    "day-first": lambda at: at.strftime("%d-%b-%Y %H:%M:%S.%f"),
    "month-first": lambda at: at.strftime("%b %d, %Y %I:%M:%S %p"),
    "digits": lambda at: at.strftime("%Y%m%d-%H:%M:%S"),
    "json": lambda at: at.strftime('{"level":"x","time":"%Y-%m-%dT%H:%M:%SZ"}'),
    "epoch": lambda at: f"{at.replace(tzinfo=UTC).timestamp():.6f} x",
}


@pytest.mark.parametrize("name", sorted(WRITERS))
@given(at=moments)
def test_round_trip(name: str, at: datetime) -> None:
    line = (WRITERS[name](at) + " text").encode()
    epoch = TimestampReader((name,), ZONE, NOW).read(line)
    assert epoch == pytest.approx(at.replace(tzinfo=UTC).timestamp(), abs=1.0)


@given(at=moments, minutes=st.integers(-12 * 60, 14 * 60))
def test_round_trip_with_offset(at: datetime, minutes: int) -> None:
    moment = at.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert TimestampReader(("iso",), ZONE, NOW).read(moment.isoformat().encode()) == pytest.approx(moment.timestamp())


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_error(line: bytes) -> None:
    reader = TimestampReader(detect_formats([line], ZONE, NOW), ZONE, NOW)
    found = reader.find(line)
    assert found is None or found.end <= len(line)
