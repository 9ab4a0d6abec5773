"""Reading log files: which files a topic has, and positional reads that survive growth, rotation and truncation.

Reads use `pread`, not a memory map: a file that is truncated while mapped ends the process with SIGBUS.
"""

from __future__ import annotations

import codecs
import errno
import glob
import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_FILES = 1000
"""Files of one topic; more are told as a partial answer."""
MAX_UNPACKED_BYTES = 256 * 1024 * 1024
"""A compressed or transcoded file is held in memory up to this size."""
SAMPLE_BYTES = 64 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_WIDE = ("utf-16", "utf-32")
"""Encodings in which text itself has zero bytes."""
_ASCII_COMPATIBLE = frozenset({"utf-8", "utf8", "utf-8-sig", "ascii", "us-ascii"})


class TopicUnavailableError(Exception):
    """The topic's path does not exist, holds no readable log file, or may not be read."""


class BinaryFileError(Exception):
    """The file is no text log."""


@dataclass(frozen=True, slots=True)
class TopicFile:
    """One file of a topic; `label` is its path inside the topic, for people."""

    path: Path
    label: str


def topic_files(base: Path, pattern: str) -> tuple[list[TopicFile], bool]:
    """List a topic's regular files, most recently written first, at most 1000; the flag tells that there are more.

    `pattern` is a file, a folder (searched in depth, hidden entries left out) or a glob (`**` for any depth), relative
    to `base`. What is rotated away meanwhile is no file of it. Raises TopicUnavailableError.
    """
    path = base / pattern
    try:
        found = _walk(path) if path.is_dir() else [path] if path.exists() else _glob(base, pattern)
        stamped = []
        for file in found:
            status = _status(file)
            if status is not None and stat.S_ISREG(status.st_mode):
                stamped.append((-status.st_mtime, str(file), file))
    except OSError as error:
        raise TopicUnavailableError from error
    if not stamped:
        raise TopicUnavailableError
    root = path if path.is_dir() else Path(os.path.commonpath([file.parent for _, _, file in stamped]))
    files = [TopicFile(file, file.relative_to(root).as_posix()) for _, _, file in sorted(stamped)]
    return files[:MAX_FILES], len(files) > MAX_FILES


def _status(file: Path) -> os.stat_result | None:
    """Look at a file; None when it is gone, or a link to nothing or to itself."""
    try:
        return os.stat(file)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def _walk(folder: Path) -> list[Path]:
    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    found = []
    for root, folders, names in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(root) / name for name in names if not name.startswith(".")]
        if len(found) > 20 * MAX_FILES:
            break
    return found


def _glob(base: Path, pattern: str) -> list[Path]:
    if not glob.has_magic(pattern):
        return []
    return [base / name for name in glob.iglob(pattern, root_dir=base, recursive=True) if (base / name).is_file()]


class Source:
    """A file opened for positional reads over the size it had when opened. Close after use.

    `bytes_read` counts what was taken from it.
    """

    def __init__(self, file: TopicFile, encoding: str) -> None:
        self.file = file
        self.bytes_read = 0
        self.cut_short = False
        self._begin = 0
        self._memory: bytes | None = None
        self._fd = os.open(file.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        try:
            status = os.fstat(self._fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError("not a regular file")
            self.size = status.st_size
            self.identity = (status.st_dev, status.st_ino)
            self._prepare(encoding)
        except BaseException:
            self.close()
            raise

    def _prepare(self, encoding: str) -> None:
        if not codecs.lookup(encoding).name.startswith(_WIDE):
            self._skip_hole()
        head = self.read(0, min(self.size, SAMPLE_BYTES))
        if head.startswith(_GZIP_MAGIC):
            self._hold(self._unzip())
            head = self.read(0, min(self.size, SAMPLE_BYTES))
        marked = next((name for mark, name in _BOMS if head.startswith(mark)), None)
        encoding = (marked or encoding).lower()
        if encoding not in _ASCII_COMPATIBLE:
            self._hold(self._everything().decode(encoding, "replace").lstrip("\ufeff").encode("utf-8", "replace"))
        elif b"\0" in head[:8192] and b"\0" in self.read(max(0, self.size - 8192), self.size):
            raise BinaryFileError

    def _skip_hole(self) -> None:
        """Leave out zero bytes at the beginning: a writer went on behind a file that was truncated under it."""
        while chunk := self.read(0, min(self.size, SAMPLE_BYTES)):
            rest = chunk.lstrip(b"\0")
            zeros = len(chunk) - len(rest)
            self._begin, self.size = self._begin + zeros, self.size - zeros
            if rest:
                return

    def _hold(self, content: bytes) -> None:
        self._memory = content
        self.size = len(content)

    def _everything(self) -> bytes:
        self.cut_short = self.cut_short or self.size > MAX_UNPACKED_BYTES
        return self.read(max(0, self.size - MAX_UNPACKED_BYTES), self.size)

    def _unzip(self) -> bytes:
        """Unpack every member; a damaged or unfinished end (a file still being written) keeps what came before it."""
        out = bytearray()
        unpacker, begun = zlib.decompressobj(zlib.MAX_WBITS | 16), False
        for chunk in self._chunks():
            while chunk:
                try:
                    out += unpacker.decompress(chunk, MAX_UNPACKED_BYTES + 1 - len(out))
                except zlib.error:
                    self.cut_short = True
                    return bytes(out)
                if len(out) > MAX_UNPACKED_BYTES:
                    self.cut_short = True
                    return bytes(out)
                chunk, begun = unpacker.unconsumed_tail or unpacker.unused_data, True
                if unpacker.eof:
                    unpacker, begun = zlib.decompressobj(zlib.MAX_WBITS | 16), False
        self.cut_short = begun
        return bytes(out)

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
