"""What a log file looks like, told once from its sample: its time formats, and what must be tidied before it is read. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from tools.logs.bounds import CONTAINER_LINE
from tools.logs.noise import ANSI
from tools.logs.timestamps import TimestampReader, detect_formats

_LONE_RETURN = re.compile(rb"\r(?![\r\n])")
_NEWEST_LINES = 5
_MAX_LINES = 400
_MAX_LINE_BYTES = 4096
_MAX_OBJECT_LINES = 60


@dataclass(frozen=True, slots=True)
class Look:
    """A file's time formats; whether progress bars write into it; whether a container runtime wrote it.

    `newest` is about the newest time in the sample: of its last few lines the least, one stray time is none.
    """

    formats: tuple[str, ...] = ()
    bars: bool = False
    container: bool = False
    newest: float | None = None

    def tidy(self, data: bytes) -> bytes:
        """Leave out colours and zero bytes; the states of a progress bar become lines."""
        if b"\x1b" in data:
            data = ANSI.sub(b"", data)
        if b"\0" in data:
            data = data.replace(b"\0", b"")
        return _LONE_RETURN.sub(b"\n", data) if self.bars else data


PLAIN = Look()


def look_at(parts: Iterable[bytes], zone: ZoneInfo, reference: float) -> Look:
    """Judge a file by whole lines of its beginning, middle and end."""
    lines: list[bytes] = []
    bars = False
    for number, part in enumerate(parts):
        bars = bars or _LONE_RETURN.search(part) is not None
        split = Look(bars=bars).tidy(part).split(b"\n")
        lines += _joined(split[-_MAX_LINES:] if number else split[:_MAX_LINES])
    formats = detect_formats(lines, zone, reference)
    reader = TimestampReader(formats, zone, reference)
    last: list[float] = []
    for line in reversed(lines) if formats else ():
        epoch = reader.read(line)
        if epoch is not None:
            last.append(epoch)
        if len(last) == _NEWEST_LINES:
            break
    container = sum(CONTAINER_LINE.match(line) is not None for line in lines) > len(lines) // 2
    return Look(formats, bars, container, min(last, default=None))


def _joined(lines: list[bytes]) -> list[bytes]:
    """Make one line of an object that is written over several."""
    joined: list[bytes] = []
    start: int | None = None
    for at, line in enumerate(lines):
        if line.rstrip() == b"{":
            start = at
        if start is None or at - start > _MAX_OBJECT_LINES:
            joined.append(line[:_MAX_LINE_BYTES])
        elif line[:1] == b"}":
            joined.append(b"\n".join(lines[start : at + 1]))
            start = None
    return joined
