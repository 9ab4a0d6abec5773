"""Logs in files: a topic is a file, a folder or a glob of plain-text or JSONL logs.

The work runs in a thread, block by block from the end of each file, and looks at its deadline and cancel flag on the
way.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from zoneinfo import ZoneInfo

from tools.catalog import TopicEntry
from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.logs.backend import Lookback, ParsedQuery
from tools.logs.collect import MAX_HITS, MAX_UNORDERED_HITS, Collector
from tools.logs.events import EventCut, EventView
from tools.logs.files import TopicFile, TopicUnavailableError, topic_files
from tools.logs.keys import FILE_KEY
from tools.logs.look import Look, look_at
from tools.logs.match import Predicate, compile_predicate, prefilter
from tools.logs.query import needles
from tools.logs.request import QueryLogsResponse
from tools.logs.scan import LogFile, Orders, Window
from tools.logs.sections import Sections
from tools.logs.source import BinaryFileError, Source
from tools.logs.timestamps import TimestampReader, time_formatter

_log = logging.getLogger(__name__)
_AHEAD_SECONDS = 600.0
"""Clocks differ by less."""


class ScanEndedError(Exception):
    """The deadline has passed or the caller has gone."""


class StopFlag:
    """Deadline and cancel flag of one scan; called often by the scanning thread."""

    def __init__(self, deadline: float) -> None:
        self._until = time.monotonic() + deadline
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Ask the scan to end."""
        self._cancelled.set()

    def __call__(self) -> None:
        """Raise ScanEndedError when it is time."""
        if self._cancelled.is_set() or time.monotonic() > self._until:
            raise ScanEndedError


class FilesBackend:
    """LogBackend over files; `base` anchors the topics' relative paths."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.last_bytes_read = 0
        """Bytes that the latest query took from files; for tests and operators."""

    async def query(
        self, topic: TopicEntry, parsed_query: ParsedQuery, window: Lookback, limit: int, deadline: float
    ) -> QueryLogsResponse:
        """Search the topic's files. See LogBackend."""
        stop = StopFlag(deadline)
        scan = _TopicScan(topic, parsed_query, window, stop, Collector(needles(parsed_query.node)))
        try:
            return await asyncio.to_thread(self._run, scan, limit)
        finally:
            stop.cancel()

    def _run(self, scan: _TopicScan, limit: int) -> QueryLogsResponse:
        try:
            files, more = topic_files(self._base, scan.topic.path or "")
        except TopicUnavailableError:
            raise ToolFailure(ToolErrorCode.BACKEND_UNAVAILABLE) from None
        scan.partial = more
        try:
            scan.search(files)
        finally:
            self.last_bytes_read = scan.bytes_read
        return scan.response(limit, len(files))


@dataclass(slots=True)
class _Tally:
    """How many files were taken in which way. `missed`: archives that may hold events of the window."""

    usable: int = 0
    binary: int = 0
    archives: int = 0
    missed: int = 0
    unreadable: int = 0
    recoded: int = 0
    odd: int = 0
    ahead: int = 0


@dataclass
class _TopicScan:
    """One query over one topic: what it looks for and what it has found."""

    topic: TopicEntry
    query: ParsedQuery
    lookback: Lookback
    stop: StopFlag
    found: Collector
    partial: bool = False
    timed_out: bool = False
    tally: _Tally = field(default_factory=_Tally)
    bytes_read: int = 0
    window: Window | None = None
    scanned_from: float | None = None
    looks: dict[Path, Look] = field(default_factory=dict)
    orders: Orders = field(default_factory=dict)

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.topic.timezone)

    def search(self, files: list[TopicFile]) -> None:
        """Fix the window, then scan file by file. A passed deadline leaves what was found so far."""
        predicate, hits = compile_predicate(self.query.node), prefilter(self.query.node)
        try:
            self.window = self._window(files)
            for number, file in enumerate(files):
                self.stop()
                self._with_file(file, partial(self._scan, number, number == len(files) - 1, predicate, hits))
        except ScanEndedError:
            self.partial = self.timed_out = True

    def _window(self, files: list[TopicFile]) -> Window | None:
        seconds = self.lookback.minutes * 60.0
        if self.lookback.now is not None:
            return Window(self.lookback.now - seconds, self.lookback.now)
        newest: list[float] = []

        def look(log: LogFile) -> None:
            epoch = log.newest(self.stop)
            if epoch is not None:
                newest.append(epoch)

        for file in files:
            self._with_file(file, look)
        self.tally = _Tally()
        return Window(max(newest) - seconds, max(newest)) if newest else None

    def _with_file(self, file: TopicFile, work: Callable[[LogFile], None]) -> None:
        tally = self.tally
        try:
            source = Source(file, self.topic.encoding)
        except BinaryFileError as error:
            tally.binary += not error.archive
            tally.archives += error.archive
            tally.missed += error.archive and (self.window is None or file.written >= self.window.start)
            return
        except OSError:
            tally.unreadable += 1
            return
        with source:
            self.partial = self.partial or source.cut_short
            tally.recoded += source.recoded
            tally.odd += source.odd
            try:
                look = self._look(source)
                tally.ahead += self._is_ahead(look, file)
                work(LogFile(source, self._reader(look), look, self.orders))
                tally.usable += 1
            except OSError:
                tally.unreadable += 1
            finally:
                self.bytes_read += source.bytes_read

    def _look(self, source: Source) -> Look:
        path = source.file.path
        if path not in self.looks:
            self.looks[path] = look_at(source.samples(), self.zone, self.lookback.reference)
        return self.looks[path]

    def _reader(self, look: Look) -> TimestampReader | None:
        return TimestampReader(look.formats, self.zone, self.lookback.reference) if look.formats else None

    def _is_ahead(self, look: Look, file: TopicFile) -> bool:
        """Say whether a file tells times that were not yet, by the Run's clock and when it was written."""
        clock = max(self.lookback.reference, file.written)
        return look.newest is not None and look.newest > clock + _AHEAD_SECONDS

    def _scan(self, number: int, last: bool, predicate: Predicate, hits: Any, log: LogFile) -> None:
        region = log.region(self.window, self.stop)
        before, bound = self.found.total, MAX_HITS if region.ordered else MAX_UNORDERED_HITS
        scanned: float | None = None
        try:
            for base, data in log.blocks(region, self.stop):
                oldest = self._scan_block(number, predicate, log, base, data, log.cuts(base, data, hits, self.stop))
                scanned = oldest if scanned is None else min(scanned, oldest or scanned)
                if self.found.total - before >= bound and base > region.start:
                    self.partial = True
                    self._scanned_back_to(scanned if region.ordered else None)
                    return
        except ScanEndedError:
            self._scanned_back_to(scanned if region.ordered and last else None)
            raise

    def _scan_block(
        self, number: int, predicate: Predicate, log: LogFile, base: int, data: bytes, cuts: Iterable[EventCut]
    ) -> float | None:
        """Collect the matches of one block and return its oldest time."""
        oldest: float | None = None
        sections = Sections(data)
        labels = {FILE_KEY: log.source.file.label}
        for count, cut in enumerate(cuts):
            if count % 500 == 0:
                self.stop()
            if cut.epoch is not None:
                if self.window is not None and not self.window.holds(cut.epoch):
                    continue
                oldest = cut.epoch if oldest is None else min(oldest, cut.epoch)
            view = EventView(data[cut.start : cut.end], cut.stamp_end, labels)
            if predicate(view):
                timeless = cut.epoch is None or cut.implied
                headings = sections.above(cut.start) if timeless else ()
                self.found.add(cut, view, number, log.source.file.label, base + cut.start, headings)
        return oldest

    def _scanned_back_to(self, epoch: float | None) -> None:
        if epoch is not None:
            self.scanned_from = epoch if self.scanned_from is None else max(self.scanned_from, epoch)

    def response(self, limit: int, files: int) -> QueryLogsResponse:
        """Make the answer. Raises ToolFailure when nothing was usable, or nothing was found in an incomplete scan."""
        tally = self.tally
        if not tally.usable and not self.timed_out:
            self._fail(ToolErrorCode.BACKEND_UNAVAILABLE)
        blind = tally.odd > 0 and not all(text.isascii() for text in needles(self.query.node))
        incomplete = self.partial or tally.unreadable > 0 or tally.missed > 0 or blind
        if self.found.total == 0 and (incomplete or tally.ahead):
            self._fail(ToolErrorCode.TOOL_TIMEOUT if self.timed_out else ToolErrorCode.PARTIAL_RESULT)
        format_time = time_formatter(self.zone)
        events = self.found.events(limit, files > 1, format_time)
        window = self.window
        start = None if window is None else max(window.start, self.scanned_from or window.start)
        return QueryLogsResponse(
            topic=self.topic.name,
            query=self.query.text,
            from_=format_time(start),
            to=format_time(window.end if window else None),
            total=self.found.total,
            total_is_lower_bound=incomplete,
            returned=len(events),
            truncated=incomplete or self.found.total > len(events),
            events=events,
            patterns=self.found.patterns(format_time),
            levels=self.found.levels(),
            notes=self._notes(),
        )

    def _fail(self, code: ToolErrorCode) -> NoReturn:
        _log.warning("logs: topic %s: %s (%s)", self.topic.name, code.value, "; ".join(self._notes()) or "no log file")
        raise ToolFailure(code)

    def _notes(self) -> list[str]:
        tally = self.tally
        told = (
            (tally.binary, f"{tally.binary} binary file(s) skipped"),
            (tally.archives, f"{tally.archives} archive(s) not read: only gzip, bzip2 and xz are"),
            (tally.unreadable, f"{tally.unreadable} file(s) could not be read"),
            (
                tally.recoded,
                f'{tally.recoded} file(s) read as GB18030: encoding = "{self.topic.encoding}" is not theirs',
            ),
            (
                tally.odd,
                f'{tally.odd} file(s) not in encoding = "{self.topic.encoding}": words beyond ASCII are not found',
            ),
            (
                tally.ahead,
                f'{tally.ahead} file(s) with times in the future: is timezone = "{self.topic.timezone}" theirs?',
            ),
            (self.timed_out, "the scan ended at its deadline"),
            (self.partial and not self.timed_out, "the scan ended at a bound of matches, files or size"),
        )
        return [text for happened, text in told if happened]
