"""Finding events in one file: event bounds, blocks from the end, the window by bisection (sorted files).

An event begins at a line with a timestamp and takes the lines without one that follow. In a file that tells no times
every line is an event, but for the frames of a stack trace, which belong to the line before. Lines before the first
timestamp are events of their own, as old as that timestamp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tools.logs.events import EventCut
from tools.logs.source import SAMPLE_BYTES, Source
from tools.logs.timestamps import LineTime, TimestampReader

BLOCK_BYTES = 4 * 1024 * 1024
MAX_EVENT_BYTES = 16 * 1024 * 1024
"""A longer event (or line) is cut into pieces of this size."""
BISECT_FROM_BYTES = 1024 * 1024
"""Smaller files are scanned whole, whatever their order."""
DISORDER_SECONDS = 60.0
"""Lines of one file may be this much out of order (several threads write it) and it still counts as sorted."""
_PROBES = 64
_TAIL_BYTES = 256 * 1024
_PROBE_BYTES = 4 * 1024

_FRAME = re.compile(
    rb"\s+at [\w$.<]|\s{2,8}File \"|\s*\.\.\. \d+ (?:more|common)|\s*Caused by:|\s*Suppressed:|Traceback \(most recent"
    rb"|\s+[\^~]+\s*$|The above exception was|During handling of the above|goroutine \d+|\t\S+\.go:\d+"
    rb"|[A-Za-z0-9+/=]{60,76}\s*$|[A-Za-z0-9+/=]{1,76}\r?\n-----END |-----END ",
    re.MULTILINE,
)
_FILE_LINE = re.compile(rb"\s{2,8}File \"")
_SUMMARY = re.compile(rb"[\w.]{0,120}(?:Error|Exception|Warning|Interrupt|Exit|Failure|error)\b")
Stopper = Callable[[], None]
"""Called often; raises to end the scan (deadline or cancel)."""


@dataclass(frozen=True, slots=True)
class Window:
    """Inclusive bounds in seconds since the epoch."""

    start: float
    end: float

    def holds(self, epoch: float) -> bool:
        """Say whether the time lies in the window."""
        return self.start <= epoch <= self.end


def sample_lines(source: Source) -> list[bytes]:
    """Return whole lines from the beginning, the middle and the end of a file."""
    lines: list[bytes] = []
    middle = max(SAMPLE_BYTES, source.size // 2)
    for start in (0, middle, max(2 * SAMPLE_BYTES, source.size - SAMPLE_BYTES)):
        if start >= source.size:
            continue
        part = source.read(start, min(source.size, start + SAMPLE_BYTES)).split(b"\n")
        lines += part[1 if start else 0 :][:400]
    return [line[:4096] for line in lines]


class Events:
    """Event bounds inside byte blocks; `reader` is None for a file that tells no times."""

    def __init__(self, reader: TimestampReader | None) -> None:
        self.reader = reader
        self._data = b""
        self._memo: dict[int, LineTime | None] = {}

    def find(self, data: bytes, line: int) -> LineTime | None:
        """Return the timestamp of the line that starts at `line`; recent answers are remembered."""
        if self.reader is None:
            return None
        if data is not self._data or len(self._memo) > 4096:
            self._data, self._memo = data, {}
        if line not in self._memo:
            self._memo[line] = self.reader.find(data, line)
        return self._memo[line]

    def begins(self, data: bytes, line: int) -> bool:
        """Say whether an event begins at the line that starts at `line`."""
        if self.reader is not None:
            return self.find(data, line) is not None
        return not _continues(data, line)

    def first(self, data: bytes, start: int) -> int:
        """Return the first event start at or after the line start `start`; len(data) when there is none."""
        line = start
        while line < len(data):
            if self.begins(data, line):
                return line
            line = _next_line(data, line)
        return len(data)

    def before(self, data: bytes, at: int) -> int:
        """Return the start of the event that holds the byte `at`; 0 when it began before the block."""
        line = data.rfind(b"\n", 0, at) + 1
        while line > 0 and not self.begins(data, line):
            line = data.rfind(b"\n", 0, line - 1) + 1
        return line

    def spans(self, data: bytes, start: int, prefilter: Any, stop: Stopper) -> Iterator[tuple[int, int]]:
        """Yield the bounds of candidate events of a block, oldest first: all, or those a prefilter hit lies in."""
        if prefilter is None:
            line = self.first(data, start)
            count = 0
            while line < len(data):
                end = self.first(data, _next_line(data, line))
                yield line, end
                line = end
                count += 1
                if count % 2000 == 0:
                    stop()
            return
        end = start
        for count, hit in enumerate(prefilter.finditer(data, start)):
            if count % 2000 == 0:
                stop()
            at = hit.start()
            if at >= end:
                begin = max(start, self.before(data, at))
                end = self.first(data, _next_line(data, at))
                yield begin, end


def _next_line(data: bytes, at: int) -> int:
    found = data.find(b"\n", at)
    return len(data) if found < 0 else found + 1


def _continues(data: bytes, line: int) -> bool:
    """Say whether a line of a file without times belongs to the line before it."""
    end = _next_line(data, line)
    if not data[line : min(end, line + 200)].strip():
        return True
    if _FRAME.match(data, line):
        return True
    previous = data.rfind(b"\n", 0, max(0, line - 1)) + 1
    if line == 0 or previous >= line:
        return False
    if data[line : line + 1].isspace():
        return _FILE_LINE.match(data, previous) is not None
    return (
        data[previous : previous + 2].isspace() and _SUMMARY.match(data, line) is not None and _in_trace(data, previous)
    )


def _in_trace(data: bytes, line: int) -> bool:
    """Say whether the indented line at `line` is code or a marker of a Python stack frame."""
    for _ in range(3):
        if line <= 0:
            return False
        line = data.rfind(b"\n", 0, line - 1) + 1
        if _FILE_LINE.match(data, line):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Region:
    """The part [start, end) of a file that can hold events of the window; `ordered` tells that it ascends in time."""

    start: int
    end: int
    ordered: bool


class LogFile:
    """One opened file with its event bounds."""

    def __init__(self, source: Source, reader: TimestampReader | None) -> None:
        self.source = source
        self.reader = reader
        self.events = Events(reader)
        self._lines = Events(None)

    def region(self, window: Window | None, stop: Stopper) -> Region:
        """Narrow the file to the window by bisection when it is large and sorted, else take all of it."""
        size = self.source.size
        if self.reader is None or size < BISECT_FROM_BYTES:
            return Region(0, size, self.reader is None)
        if not self._sorted(stop):
            return Region(0, size, False)
        if window is None:
            return Region(0, size, True)
        start = self._bisect(window.start - DISORDER_SECONDS, stop)
        return Region(start, self._bisect(window.end + DISORDER_SECONDS + 0.001, stop), True)

    def newest(self, stop: Stopper) -> float | None:
        """Return the newest timestamp of the file, or None."""
        if self.reader is None:
            return None
        size = self.source.size
        if size >= BISECT_FROM_BYTES and self._sorted(stop):
            return self._newest_at_end(stop)
        newest: float | None = None
        for _, data in self.blocks(Region(0, size, False), stop):
            times = list(self._times(data, 0))
            newest = max([*times, newest] if newest is not None else times, default=None)
        return newest

    def _newest_at_end(self, stop: Stopper) -> float | None:
        """Go back from the end of a sorted file until nothing earlier can be newer."""
        newest: float | None = None
        end = self.source.size
        while end > 0:
            stop()
            start = max(0, end - _TAIL_BYTES)
            data = self.source.read(start, end)
            line = _next_line(data, 0) if start else 0
            times = list(self._times(data, line))
            newest = max([*times, newest] if newest is not None else times, default=None)
            if newest is not None and times and min(times) + DISORDER_SECONDS <= newest:
                break
            end = start + line if 0 < line < len(data) else start
        return newest

    def blocks(self, region: Region, stop: Stopper) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, bytes) from the end of the region to its start, each beginning at an event's start."""
        end, size = region.end, BLOCK_BYTES
        while end > region.start:
            stop()
            begin = max(region.start, end - size)
            data = self.source.read(begin, end)
            if begin > region.start:
                whole = size >= MAX_EVENT_BYTES
                cut = self.events.first(data, _next_line(data, 0))
                if cut >= len(data) and not whole and len(data) == end - begin:
                    size *= 2
                    continue
                cut = 0 if cut >= len(data) else cut
                begin, data = begin + cut, data[cut:]
            yield begin, data
            end, size = begin, BLOCK_BYTES

    def cuts(self, base: int, data: bytes, prefilter: Any, stop: Stopper) -> Iterator[EventCut]:
        """Yield the candidate events of a block, oldest first."""
        start = 0
        if base == 0 and self.reader is not None:
            start = self.events.first(data, 0)
            epoch = self._first_epoch(stop) if start > 0 else None
            for begin, end in self._lines.spans(data[:start], 0, prefilter, stop):
                yield EventCut(begin, end, epoch, implied=True)
        for begin, end in self.events.spans(data, start, prefilter, stop):
            found = self.events.find(data, begin)
            leads = found is not None and data[begin : begin + 12].lstrip()[:1] != b"{"
            yield EventCut(
                begin, end, found.epoch if found else None, found.end - begin if found is not None and leads else 0
            )

    def _first_epoch(self, stop: Stopper) -> float | None:
        """Return the first timestamp of the file."""
        at = 0
        while at < self.source.size:
            stop()
            data = self.source.read(at, min(self.source.size, at + _TAIL_BYTES))
            first = next(self._times(data, 0), None)
            complete = data.rfind(b"\n") + 1
            if first is not None or not data:
                return first
            at += complete or len(data)
        return None

    def _times(self, data: bytes, line: int) -> Iterator[float]:
        while line < len(data) and self.reader is not None:
            epoch = self.reader.read(data, line)
            if epoch is not None:
                yield epoch
            line = _next_line(data, line)

    def _whole_lines(self, start: int, size: int) -> bytes:
        """Read up to `size` bytes without the line that is cut off at the end: half a timestamp is a wrong one."""
        data = self.source.read(start, min(self.source.size, start + size))
        return data if start + size >= self.source.size else data[: data.rfind(b"\n") + 1]

    def _sorted(self, stop: Stopper) -> bool:
        latest, told = float("-inf"), 0
        step = max(1, (self.source.size - _PROBE_BYTES) // _PROBES)
        for probe in range(_PROBES + 1):
            stop()
            start = min(probe * step, max(0, self.source.size - _PROBE_BYTES))
            data = self._whole_lines(start, _PROBE_BYTES)
            seen = 0
            for epoch in self._times(data, _next_line(data, 0) if start else 0):
                if epoch < latest - DISORDER_SECONDS:
                    return False
                latest, seen = max(latest, epoch), 1
            told += seen
        return told > _PROBES // 2

    def _bisect(self, moment: float, stop: Stopper) -> int:
        """Return an event start such that everything before it is older than `moment` (sorted files)."""
        low, high = 0, self.source.size
        while high - low > BLOCK_BYTES // 16:
            stop()
            middle = (low + high) // 2
            found = self._first_time(middle, high)
            if found is None or found[1] >= moment:
                high = middle
            else:
                low = found[0]
        position = self._first_time_from(low, moment)
        return self.source.size if position is None else position

    def _first_time(self, start: int, end: int) -> tuple[int, float] | None:
        """Return position and time of the first timestamped line that begins after `start` and before `end`."""
        size = _PROBE_BYTES
        while True:
            data = self._whole_lines(start, size)
            line = _next_line(data, 0)
            while line < len(data) and start + line < end:
                epoch = self.reader.read(data, line) if self.reader else None
                if epoch is not None:
                    return start + line, epoch
                line = _next_line(data, line)
            if start + size >= min(end, self.source.size) or size >= MAX_EVENT_BYTES:
                return None
            size *= 4

    def _first_time_from(self, low: int, moment: float) -> int | None:
        """Walk forward from the event at `low` to the first one that is not older than `moment`."""
        at = low
        while at < self.source.size:
            data = self.source.read(at, min(self.source.size, at + BLOCK_BYTES // 8))
            line = 0
            while line < len(data):
                epoch = self.reader.read(data, line) if self.reader else None
                if epoch is not None and epoch >= moment:
                    return at + line
                line = _next_line(data, line)
            complete = data.rfind(b"\n") + 1
            at += complete if complete > 0 else len(data)
            if not data:
                return None
        return None
