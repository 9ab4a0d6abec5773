"""Finding events in one file: blocks from the end, the window by bisection (sorted files).

Lines before the first timestamp of a file are events of their own, as old as that timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tools.logs.bounds import Events, Stopper, next_line
from tools.logs.events import EventCut
from tools.logs.look import PLAIN, Look
from tools.logs.source import Source
from tools.logs.timestamps import TimestampReader

BLOCK_BYTES = 1024 * 1024
"""Small enough that the search finds in the processor's cache what was just read: a third faster than 4 MiB."""
MAX_EVENT_BYTES = 16 * 1024 * 1024
"""A longer event (or line) is cut into pieces of this size."""
BISECT_FROM_BYTES = 1024 * 1024
"""Smaller files are scanned whole, whatever their order."""
DISORDER_SECONDS = 60.0
"""Lines of one file may be this much out of order (several threads write it) and it still counts as sorted."""
_PROBES = 64
_TAIL_BYTES = 256 * 1024
_PROBE_BYTES = 4 * 1024
_BISECT_TO_BYTES = 16 * 1024
_CUT_BYTES = 64 * 1024
_CUT_MARGIN = 128
"""A line is judged by at most so many bytes of the next one."""


@dataclass(frozen=True, slots=True)
class Window:
    """Inclusive bounds in seconds since the epoch."""

    start: float
    end: float

    def holds(self, epoch: float) -> bool:
        """Say whether the time lies in the window."""
        return self.start <= epoch <= self.end


@dataclass(frozen=True, slots=True)
class Region:
    """The part [start, end) of a file that can hold events of the window; `ordered` tells that it ascends in time."""

    start: int
    end: int
    ordered: bool


Orders = dict[tuple[tuple[int, int], int], bool]
"""Whether a file, by identity and size, ascends in time: looked at once a query."""


class LogFile:
    """One opened file with its event bounds; `orders` is shared by the openings of one query."""

    def __init__(
        self, source: Source, reader: TimestampReader | None, look: Look = PLAIN, orders: Orders | None = None
    ) -> None:
        self.source = source
        self.reader = reader
        self.look = look
        self._orders = {} if orders is None else orders
        self.events = Events(reader, look.container)
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
            line = next_line(data, 0) if start else 0
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
            cut = self._early_cut(begin, end) if begin > region.start else 0
            data = self.source.read(begin + cut, end)
            if cut:
                begin += cut
            elif begin > region.start:
                whole = size >= MAX_EVENT_BYTES
                cut = self.events.first(data, next_line(data, 0))
                if cut >= len(data) and not whole and len(data) == end - begin:
                    size *= 2
                    continue
                cut = 0 if cut >= len(data) else cut
                begin, data = begin + cut, data[cut:]
            yield begin, self.look.tidy(data)
            end, size = begin, BLOCK_BYTES

    def _early_cut(self, begin: int, end: int) -> int:
        """Return how far behind `begin` the first event starts, 0 when it takes more to tell: a block need not be copied."""
        if end - begin <= _CUT_BYTES:
            return 0
        head = self.source.read(begin, begin + _CUT_BYTES)
        cut = self.events.first(head, next_line(head, 0))
        return cut if 0 <= head.find(b"\n", cut) < len(head) - _CUT_MARGIN else 0

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
            line = next_line(data, line)

    def _whole_lines(self, start: int, size: int) -> bytes:
        """Read up to `size` bytes without the line that is cut off at the end: half a timestamp is a wrong one."""
        data = self.source.read(start, min(self.source.size, start + size))
        return data if start + size >= self.source.size else data[: data.rfind(b"\n") + 1]

    def _sorted(self, stop: Stopper) -> bool:
        key = self.source.identity, self.source.size
        if key not in self._orders:
            self._orders[key] = self._looks_sorted(stop)
        return self._orders[key]

    def _looks_sorted(self, stop: Stopper) -> bool:
        """Look at evenly spread, disjoint stretches of the file; one step back in time tells that it is unsorted."""
        latest, told = float("-inf"), 0
        starts = range(0, self.source.size, max(_PROBE_BYTES, self.source.size // _PROBES))
        for start in starts:
            stop()
            data = self._whole_lines(start, _PROBE_BYTES)
            times = list(self._times(data, next_line(data, 0) if start else 0))
            for epoch in times:
                if epoch < latest - DISORDER_SECONDS:
                    return False
                latest = max(latest, epoch)
            told += bool(times)
        return told > len(starts) // 2

    def _bisect(self, moment: float, stop: Stopper) -> int:
        """Return an event start such that everything before it is older than `moment` (sorted files)."""
        low, high = 0, self.source.size
        while high - low > _BISECT_TO_BYTES:
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
            line = next_line(data, 0)
            while line < len(data) and start + line < end:
                epoch = self.reader.read(data, line) if self.reader else None
                if epoch is not None:
                    return start + line, epoch
                line = next_line(data, line)
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
                line = next_line(data, line)
            complete = data.rfind(b"\n") + 1
            at += complete if complete > 0 else len(data)
            if not data:
                return None
        return None
