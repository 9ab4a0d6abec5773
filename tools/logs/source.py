"""Reading log files: positional reads that survive growth, rotation and truncation.

Reads use `pread`, not a memory map: a file that is truncated while mapped ends the process with SIGBUS.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Iterator

from tools.logs.encoding import GB18030, UNKNOWN, guess
from tools.logs.files import TopicFile
from tools.logs.unpack import is_unread_archive, unpack, unpacker

MAX_UNPACKED_BYTES = 256 * 1024 * 1024
"""A compressed or transcoded file is held in memory up to this size."""
SAMPLE_BYTES = 64 * 1024
_BINARY_BYTES = 8192
_UTF8_BOM = b"\xef\xbb\xbf"
_WIDE_BOMS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_WIDE = ("utf-16", "utf-32")
"""Encodings in which text itself has zero bytes."""
_ASCII_COMPATIBLE = frozenset({"utf-8", "utf8", "utf-8-sig", "ascii", "us-ascii"})
_HOLE = re.compile(rb"\0{8,}")
"""Binary data has shorter runs of zero bytes too."""


class BinaryFileError(Exception):
    """The file is no text log. `archive`: it is one that may hold log lines, in a form that is not read."""

    def __init__(self, archive: bool) -> None:
        super().__init__()
        self.archive = archive


class Source:
    """A file opened for positional reads over the size it had when opened. Close after use.

    `bytes_read` counts what was taken from it. `recoded`: it is read as GB18030, which nobody said it was; `odd`: it is in
    an encoding that was not recognised.
    """

    def __init__(self, file: TopicFile, encoding: str) -> None:
        self.file = file
        self.bytes_read = 0
        self.cut_short = self.recoded = self.odd = False
        self._begin = 0
        self._memory: bytes | None = None
        self._fd = os.open(file.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        try:
            status = os.fstat(self._fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError("not a regular file")
            self.size = status.st_size
            self.identity = (status.st_dev, status.st_ino)
            self._prepare(encoding.lower())
        except BaseException:
            self.close()
            raise

    def _prepare(self, encoding: str) -> None:
        if not codecs.lookup(encoding).name.startswith(_WIDE):
            self._skip_hole()
        head = self._head()
        if unpacker(head) is not None:
            content, cut = unpack(self._chunks(), MAX_UNPACKED_BYTES)
            self.cut_short = cut
            self._hold(content)
            head = self._head()
        if is_unread_archive(head):
            raise BinaryFileError(archive=True)
        encoding = next((name for mark, name in _WIDE_BOMS if head.startswith(mark)), encoding)
        if head.startswith(_UTF8_BOM):
            self._skip(len(_UTF8_BOM))
            encoding = "utf-8"
        if encoding in _ASCII_COMPATIBLE:
            if self._is_binary(head[:_BINARY_BYTES]):
                raise BinaryFileError(archive=False)
            found = guess(self.samples())
            self.recoded, self.odd = found == GB18030, found == UNKNOWN
            encoding = GB18030 if self.recoded else encoding
        if encoding not in _ASCII_COMPATIBLE:
            self._hold(self._everything().decode(encoding, "replace").lstrip("\ufeff").encode("utf-8", "replace"))
        head = self._head()
        if b"\r" in head and b"\n" not in head:  # lines of old Macs, or a progress bar alone
            self._hold(self._everything().replace(b"\r", b"\n"))

    def _head(self) -> bytes:
        return self.read(0, min(self.size, SAMPLE_BYTES))

    def samples(self) -> Iterator[bytes]:
        """Yield whole lines from the beginning, the middle and the end of the file."""
        for start in (0, max(SAMPLE_BYTES, self.size // 2), max(2 * SAMPLE_BYTES, self.size - SAMPLE_BYTES)):
            if start < self.size:
                part = self.read(start, min(self.size, start + SAMPLE_BYTES))
                first = part.find(b"\n") + 1 if start else 0
                last = part.rfind(b"\n") + 1 if start + SAMPLE_BYTES < self.size else len(part)
                yield part[first : last if last > first else len(part)]

    def _is_binary(self, head: bytes) -> bool:
        if b"\0" not in head or not _has_zeros(head):
            return False
        tail = self.read(max(0, self.size - _BINARY_BYTES), self.size)
        return _has_zeros(tail) or not tail.strip(b"\0")

    def _skip_hole(self) -> None:
        """Leave out zero bytes at the beginning: a writer went on behind a file that was truncated under it."""
        while chunk := self._head():
            rest = chunk.lstrip(b"\0")
            self._skip(len(chunk) - len(rest))
            if rest:
                return

    def _skip(self, count: int) -> None:
        if self._memory is not None:
            self._hold(self._memory[count:])
        else:
            self._begin, self.size = self._begin + count, self.size - count

    def _hold(self, content: bytes) -> None:
        self._memory = content
        self.size = len(content)

    def _everything(self) -> bytes:
        self.cut_short = self.cut_short or self.size > MAX_UNPACKED_BYTES
        return self.read(max(0, self.size - MAX_UNPACKED_BYTES), self.size)

    def _chunks(self) -> Iterator[bytes]:
        for start in range(0, self.size, 1024 * 1024):
            yield self.read(start, min(self.size, start + 1024 * 1024))

    def read(self, start: int, end: int) -> bytes:
        """Return bytes [start, end); fewer when the file has been truncated since it was opened."""
        if self._memory is not None:
            data = self._memory[start:end]
            self.bytes_read += len(data)
            return data
        parts: list[bytes] = []
        while start < end:
            part = os.pread(self._fd, end - start, self._begin + start)
            if not part:
                break
            parts.append(part)
            start += len(part)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.bytes_read += len(data)
        return data

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _has_zeros(data: bytes) -> bool:
    """Say whether zero bytes are strewn over data; long runs of them are holes in a text."""
    return b"\0" in _HOLE.sub(b"", data.strip(b"\0"))
