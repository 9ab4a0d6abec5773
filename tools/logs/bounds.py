"""Where events begin and end inside blocks of bytes.

An event begins at a line with a timestamp and takes the lines without one that follow. In a file that tells no times
every line is an event, but for the frames of a stack trace, which belong to the line before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from tools.logs.timestamps import LineTime, TimestampReader

_FRAME = re.compile(
    rb"\s+at [\w$.<]|\s{2,8}File \"|\s*\.\.\. \d+ (?:more|common)|\s*Caused by:|\s*Suppressed:|Traceback \(most recent"
    rb"|\s+[\^~]+\s*$|The above exception was|During handling of the above|goroutine \d+|\t\S+\.go:\d+"
    rb"|[A-Za-z0-9+/=]{60,76}\s*$|[A-Za-z0-9+/=]{1,76}\r?\n-----END |-----END ",
    re.MULTILINE,
)
_FILE_LINE = re.compile(rb"\s{2,8}File \"")
_SUMMARY = re.compile(rb"[\w.]{0,120}(?:Error|Exception|Warning|Interrupt|Exit|Failure|error)\b")
CONTAINER_LINE = re.compile(rb"\S{20,40} (?P<stream>stdout|stderr) (?P<part>[FP]) ")
Stopper = Callable[[], None]
"""Called often; raises to end the scan (deadline or cancel)."""


class Events:
    """Event bounds inside byte blocks; `reader` is None for a file that tells no times.

    `container`: a container runtime wrote the file, a line of a program may be several with a time each.
    """

    def __init__(self, reader: TimestampReader | None, container: bool = False) -> None:
        self.reader = reader
        self._container = container
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
            return self.find(data, line) is not None and not (self._container and _goes_on(data, line))
        return not _continues(data, line)

    def first(self, data: bytes, start: int) -> int:
        """Return the first event start at or after the line start `start`; len(data) when there is none."""
        line = start
        while line < len(data):
            if self.begins(data, line):
                return line
            line = next_line(data, line)
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
                end = self.first(data, next_line(data, line))
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
                end = self.first(data, next_line(data, at))
                yield begin, end


def next_line(data: bytes, at: int) -> int:
    """Return the start of the line after the one that holds `at`; len(data) after the last one."""
    found = data.find(b"\n", at)
    return len(data) if found < 0 else found + 1


def _goes_on(data: bytes, line: int) -> bool:
    """Say whether a container's line is the next part of the one before it, or a frame of a stack trace."""
    here = CONTAINER_LINE.match(data, line)
    if here is None:
        return False
    before = CONTAINER_LINE.match(data, data.rfind(b"\n", 0, max(0, line - 1)) + 1) if line else None
    if before is not None and before["part"] == b"P" and before["stream"] == here["stream"]:
        return True
    return _FRAME.match(data, here.end()) is not None


def _continues(data: bytes, line: int) -> bool:
    """Say whether a line of a file without times belongs to the line before it."""
    end = next_line(data, line)
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
