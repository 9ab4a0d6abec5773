"""Timestamps at the head of a log line: one table, tried on samples, the formats a file uses are kept. Pure.

Lines are bytes (ASCII-compatible). Times are seconds since the epoch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from tools.logs.noise import ANSI

_MONTHS = {
    name: number
    for number, name in enumerate(
        (b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"), start=1
    )
}
_DAY_SECONDS = 86_400
_LEAP_SEARCH_YEARS = 9
"""29 February without a year may lie this far back (1900 and 2100 are no leap years)."""
_ODD_STARTS = (b"\0", b"\xef")
_LEAD = re.compile(rb"\0*(?:\xef\xbb\xbf)?")
_HEAD_BYTES = 4096
_SAMPLE_SHARE = 0.10
"""A file's second format counts when it has this share of the first one's lines."""

_MONTH = rb"(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_CLOCK = rb"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_ZONE = rb"(?: ?(?P<zone>Z|UTC|GMT|[+\-]\d\d:?\d\d)(?!\w|:\d))?"
_YEAR_CLOCK = (
    rb"(?P<year>\d{4})(?:[ T]|, ?)(?P<hour>\d{1,2}):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
    rb"(?: ?(?P<half>[AP]M))?" + _ZONE
)
_AFTERNOON = (b"PM", "下午".encode())
_TOKEN = rb"(?:\[[^\]\s]{1,100}\] {1,4}|[^\s:=][^\s]{0,98}[^\s:=] {1,4}(?:\| {1,4})?|[^\s:=] )"
_ISO = (
    rb"(?P<year>\d{4})[\-/.](?P<month>\d\d)[\-/.](?P<day>\d\d)[T ,\-](?P<hour>\d\d)[:.](?P<minute>\d\d)[:.]"
    rb"(?P<second>\d\d)(?:[.,:](?P<fraction>\d{1,9}))?" + _ZONE
)
_JSON_KEYS = (
    rb"@?timestamp|time|ts|t|datetime|date|asctime|event_?time|log_?time|timeMillis|epochSecond|time_?stamp|@t|start_time"
    rb"|__REALTIME_TIMESTAMP|requestReceivedTimestamp|StartUTC|time_local|time_iso8601|timeUnixNano"
)
_JSON_TIME = (
    rb"\"(?:" + _JSON_KEYS + rb")\"[ \t]{0,4}:[ \t]{0,4}(?:\{[ \t]{0,4}\"\$date\"[ \t]{0,4}:[ \t]{0,4})?"
    rb"(?:\"(?P<text>[^\"\n]{8,48})\"|(?P<number>\d{9,19}(?:\.\d{1,9})?))"
)


@dataclass(frozen=True, slots=True)
class _Format:
    name: str
    pattern: re.Pattern[bytes]


def _compile(name: str, pattern: bytes, flags: int = 0) -> _Format:
    return _Format(name, re.compile(pattern, flags))


_PLAIN: tuple[_Format, ...] = (
    _compile(
        "iso",
        rb"(?:# Time: ?|<\d{1,3}>1? ?|(?:[a-z]{1,10}=[^\s=]{1,60} )?(?:time|ts|timestamp|datetime|t|date)=|"
        rb"[A-Z]{4,8} {1,2}\[[^\]\n]{1,100}\] {1,2}|" + _TOKEN + rb")?[\[(\"']?" + _ISO,
    ),
    _compile("access", rb"[^\[\n]{0,200}\[(?P<day>\d\d)/" + _MONTH + rb"/(?P<year>\d{4})[: ]" + _CLOCK + _ZONE),
    _compile(
        "ctime",
        rb"\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) "
        + _MONTH
        + rb" {1,2}(?P<day>\d{1,2}) "
        + _CLOCK
        + rb"(?: (?:UTC|GMT|[A-Z]{3,4}))? (?P<year>\d{4})",
    ),
    _compile(
        "month-first",
        rb"(?:<\d{1,3}>)?" + _MONTH + rb" {1,2}(?P<day>\d{1,2}),? (?P<year>\d{4}),? "
        rb"(?P<hour>\d{1,2}):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?(?: ?(?P<half>[AP]M))?",
    ),
    _compile("syslog", rb"(?:<\d{1,3}>)?" + _MONTH + rb" {1,2}(?P<day>\d{1,2}) " + _CLOCK + rb"(?=[\s:]|$)"),
    _compile(
        "day-first",
        rb"(?:\d{1,8}:[A-Z] |\[)?(?P<day>\d{1,2})[ \-/]" + _MONTH + rb"[ \-/](?P<year>\d{4})[ :]" + _CLOCK + _ZONE,
    ),
    _compile("klog", rb"[IWEF](?P<year>\d{4})?(?P<month>\d\d)(?P<day>\d\d) " + _CLOCK),
    _compile("short-slash", rb"\[?(?P<year>\d\d)/(?P<month>\d\d)/(?P<day>\d\d) " + _CLOCK),
    _compile(
        "short-digits",
        rb"(?:# Time: )?(?P<year>\d\d)(?P<month>\d\d)(?P<day>\d\d) {1,2}(?P<hour>\d{1,2}):?(?P<minute>\d\d):?"
        rb"(?P<second>\d\d)(?=\s|$)",
    ),
    _compile(
        "digits",
        rb"\[?(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)[T \-]?(?P<hour>\d\d):?(?P<minute>\d\d):?"
        rb"(?P<second>\d\d)(?:[.,:](?P<fraction>\d{1,9}))?" + _ZONE + rb"(?!\d)",
    ),
    _compile("dotted", rb"[\[(]?(?P<day>\d{1,2})\.(?P<month>\d{1,2})\." + _YEAR_CLOCK),
    _compile(
        "chinese",
        "(?:\\[|【)?(?P<year>\\d{4}) ?年 ?(?P<month>\\d{1,2}) ?月 ?(?P<day>\\d{1,2}) ?日 ?(?:(?P<half>上午|下午) ?)?"
        "(?P<hour>\\d{1,2})(?::|时|点)(?P<minute>\\d\\d)(?::|分)(?P<second>\\d\\d)(?:秒)?(?:[.,](?P<fraction>\\d{1,9}))?".encode(),
    ),
    _compile("audit", rb"(?:node=\S{1,64} )?type=\S{1,40} msg=audit\((?P<epoch>\d{10}\.\d{3}):\d{1,20}\):"),
    _compile("month-day", rb"(?P<month>\d\d)-(?P<day>\d\d) " + _CLOCK),
    _compile("epoch", rb"(?:[^\s\d]{1,20} )?\[?(?P<epoch>[12]\d{9}(?:\.\d{1,9}|\d{3}|\d{6}|\d{9})?)(?=[\s\]|,:]|$)"),
)
_JSON = _compile("json", rb"[ \t]{0,8}\{[^\n]{0,4000}?" + _JSON_TIME, re.IGNORECASE)
_OBJECT = _compile(
    "object",
    rb"\{[ \t]{0,4}\r?\n(?=(?P<indent>[ \t]{1,8}+)\")(?:[ \t][^\n]{0,2000}\n){0,60}?(?P=indent)" + _JSON_TIME,
    re.IGNORECASE,
)
"""An object that is written over several lines is one event: it begins at its brace, and its own keys tell its time."""
_MONTH_FIRST, _DAY_FIRST = "slash-month-first", "slash-day-first"
_SLASH: tuple[_Format, ...] = tuple(
    _compile(
        name,
        rb"(?:\[\w{1,20}\] {1,3}\d{1,8} {1,3}- )?[\[(]?(?P<"
        + one
        + rb">\d{1,2})(?P<mark>[/\-])(?P<"
        + two
        + rb">\d{1,2})(?P=mark)"
        + _YEAR_CLOCK,
    )
    for name, one, two in ((_MONTH_FIRST, b"month", b"day"), (_DAY_FIRST, b"day", b"month"))
)
"""`04/02/2026` is two days; the file decides which (see `_slash_order`)."""
_FORMATS: tuple[_Format, ...] = (_JSON, *_PLAIN, *_SLASH, _OBJECT)


@dataclass(frozen=True, slots=True)
class LineTime:
    """A recognised timestamp: `epoch` in seconds, and the bytes [start, end) of the line that spell it out."""

    epoch: float
    end: int


class TimestampReader:
    """Reads timestamps of the given formats at the head of a line.

    `zone` applies where the line names none; `reference` (the Run's now) settles the year where the line names none:
    the latest one that is not after `reference` plus one day.
    """

    def __init__(self, formats: tuple[str, ...], zone: ZoneInfo, reference: float) -> None:
        self.formats = formats
        self._patterns = tuple(item.pattern for item in _FORMATS if item.name in formats)
        self._zone = zone
        self._reference = reference

    def read(self, data: bytes, start: int = 0) -> float | None:
        """Return the time of the line that begins at `start`, or None when it begins with no timestamp."""
        found = self.find(data, start)
        return found.epoch if found else None

    def find(self, data: bytes, start: int = 0) -> LineTime | None:
        """As `read`, with the position after the timestamp."""
        found = self._find(data, start)
        if found is None and (data[start : start + 1] in _ODD_STARTS or data.find(b"\x1b", start, start + 80) >= 0):
            return self._find_in_noise(data, start)
        return found

    def _find(self, data: bytes, start: int) -> LineTime | None:
        for pattern in self._patterns:
            match = pattern.match(data, start)
            if match is not None:
                epoch = self._epoch(match.groupdict())
                if epoch is not None:
                    return LineTime(epoch, match.end())
        return None

    def _find_in_noise(self, data: bytes, start: int) -> LineTime | None:
        """Look behind zero bytes and a byte order mark, and between colour codes."""
        lead = _LEAD.match(data, start)
        begin = lead.end() if lead else start
        head = data[begin : begin + _HEAD_BYTES]
        found = self._find(ANSI.sub(b"", head), 0)
        if found is None:
            return None
        end = found.end
        for code in ANSI.finditer(head):
            if code.start() <= end:
                end += len(code[0])
        return LineTime(found.epoch, begin + end)

    def _epoch(self, groups: Mapping[str, bytes | None]) -> float | None:
        text = groups.get("text")
        if text is not None:
            return self._of_value(text)
        number = groups.get("number") or groups.get("epoch")
        if number is not None:
            return _of_number(float(number))
        return self._of_fields(groups)

    def _of_value(self, text: bytes) -> float | None:
        padded = text + b" "
        for item in _PLAIN:
            match = item.pattern.match(padded)
            if match is not None:
                groups = match.groupdict()
                number = groups.get("epoch")
                return _of_number(float(number)) if number is not None else self._of_fields(groups)
        return None

    def _of_fields(self, groups: Mapping[str, bytes | None]) -> float | None:
        month_text, year_text = groups["month"] or b"", groups.get("year")
        month = int(month_text) if month_text.isdigit() else _MONTHS[month_text[:3].lower()]
        day, hour = int(groups["day"] or 0), int(groups["hour"] or 0)
        half = groups.get("half")
        if half is not None:
            hour = hour % 12 + (12 if half in _AFTERNOON else 0)
        minute, second = int(groups["minute"] or 0), int(groups["second"] or 0)
        if minute > 59 or second > 60:
            return None
        fraction = groups.get("fraction")
        rest = minute * 60 + second + (float(b"0." + fraction) if fraction else 0.0)
        if year_text is None:
            return self._without_year(month, day, hour, rest)
        year = int(year_text) + (2000 if len(year_text) == 2 else 0)
        zone = groups.get("zone")
        if zone:
            base = _hour_epoch(year, month, day, hour, _UTC)
            return None if base is None else base - _offset(zone) + rest
        base = _hour_epoch(year, month, day, hour, self._zone)
        return None if base is None else base + rest

    def _without_year(self, month: int, day: int, hour: int, rest: float) -> float | None:
        latest = datetime.fromtimestamp(self._reference, UTC).year + 1
        for year in range(latest, latest - _LEAP_SEARCH_YEARS, -1):
            base = _hour_epoch(year, month, day, hour, self._zone)
            if base is not None and base + rest <= self._reference + _DAY_SECONDS:
                return base + rest
        return None


_UTC = ZoneInfo("UTC")


@lru_cache(maxsize=4096)
def _hour_epoch(year: int, month: int, day: int, hour: int, zone: ZoneInfo) -> float | None:
    try:
        return datetime(year, month, day, hour, tzinfo=zone).timestamp()
    except (ValueError, OverflowError):
        return None


def _offset(zone: bytes) -> int:
    if zone in (b"Z", b"UTC", b"GMT"):
        return 0
    digits = zone[1:].replace(b":", b"")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if zone[:1] == b"-" else seconds


def _of_number(value: float) -> float | None:
    for limit, unit in ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6), (1e20, 1e9)):
        if value < limit:
            return value / unit
    return None


def detect_formats(lines: Iterable[bytes], zone: ZoneInfo, reference: float) -> tuple[str, ...]:
    """Say which formats the sampled lines use, most frequent first; empty when the lines tell no times.

    One stray timestamp among many lines is no log of events (a description or a configuration file).
    """
    readers = [(item.name, TimestampReader((item.name,), zone, reference)) for item in _FORMATS]
    counts: Counter[str] = Counter()
    slashed: list[bytes] = []
    seen = 0
    for line in lines:
        if not line.strip():
            continue
        seen += 1
        name = next((name for name, reader in readers if reader.read(line) is not None), None)
        if name in (_MONTH_FIRST, _DAY_FIRST):
            slashed.append(line)
        elif name:
            counts[name] += 1
    if slashed:
        counts[_slash_order(slashed, zone, reference)] = len(slashed)
    stamped = sum(counts.values())
    if stamped == 0 or (stamped == 1 and stamped < seen * _SAMPLE_SHARE):
        return ()
    top = counts.most_common(3)
    return tuple(name for name, count in top if count >= top[0][1] * _SAMPLE_SHARE)


def _slash_order(lines: Sequence[bytes], zone: ZoneInfo, reference: float) -> str:
    """Say whether the month or the day comes first in lines that may be read either way.

    The reading that fits more lines wins (there is no 13th month); then the one with less time between the lines, because
    days taken for months spread over a year; then the one that is not after `reference` and nearest to it.
    """

    def judged(name: str) -> tuple[int, float, float]:
        reader = TimestampReader((name,), zone, reference)
        times = [time for line in lines if (time := reader.read(line)) is not None]
        if not times:
            return 0, 0.0, 0.0
        newest = max(times)
        distance = reference - newest if newest <= reference + _DAY_SECONDS else float("inf")
        return -len(times), newest - min(times), distance

    return min((_MONTH_FIRST, _DAY_FIRST), key=judged)


FormatTime = Callable[[float | None], str | None]


def time_formatter(zone: ZoneInfo) -> FormatTime:
    """Return a function that writes epoch seconds as ISO 8601 with the zone's offset, to the millisecond."""

    def format_time(epoch: float | None) -> str | None:
        if epoch is None:
            return None
        return datetime.fromtimestamp(round(epoch, 3), zone).isoformat(timespec="milliseconds")

    return format_time
