"""Which files a topic has: a file, a folder or a glob; every real file once, whatever links lead to it."""

from __future__ import annotations

import glob
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

MAX_FILES = 1000
"""Files of one topic; more are told as a partial answer."""
_MAX_FOUND = 20 * MAX_FILES


class TopicUnavailableError(Exception):
    """The topic's path does not exist, holds no readable log file, or may not be read."""


@dataclass(frozen=True, slots=True)
class TopicFile:
    """One file of a topic; `label` is its path inside the topic, for people; `written`: when it was last written to."""

    path: Path
    label: str
    written: float = math.inf


def topic_files(base: Path, pattern: str) -> tuple[list[TopicFile], bool]:
    """List a topic's regular files, most recently written first, at most 1000; the flag tells that there are more.

    `pattern` is a file, a folder (searched in depth, hidden entries left out) or a glob (`**` for any depth), relative
    to `base`. A file that several links lead to is listed once. Raises TopicUnavailableError.
    """
    path = base / pattern
    try:
        found = _walk(path) if path.is_dir() else [path] if path.exists() else _glob(base, pattern)
        written = _each_once(found)
    except OSError as error:
        raise TopicUnavailableError from error
    if not written:
        raise TopicUnavailableError
    root = path if path.is_dir() else Path(os.path.commonpath([file.parent for file in written]))
    order = sorted(written, key=lambda file: (-written[file], str(file)))
    files = [TopicFile(file, file.relative_to(root).as_posix(), written[file]) for file in order[:MAX_FILES]]
    return files, len(order) > MAX_FILES


def _each_once(found: list[Path]) -> dict[Path, float]:
    """Return the regular files and when they were written; of several names of one file the plainest."""
    known: set[tuple[int, int]] = set()
    written: dict[Path, float] = {}
    for file in sorted(found, key=lambda file: (file.is_symlink(), len(file.parts), str(file))):
        status = os.stat(file)
        identity = status.st_dev, status.st_ino
        if stat.S_ISREG(status.st_mode) and identity not in known:
            known.add(identity)
            written[file] = status.st_mtime
    return written


def _walk(folder: Path) -> list[Path]:
    def fail(error: OSError) -> None:
        raise error

    found = []
    for root, folders, names in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(root) / name for name in names if not name.startswith(".")]
        if len(found) > _MAX_FOUND:
            break
    return [file for file in found if file.exists()]


def _glob(base: Path, pattern: str) -> list[Path]:
    if not glob.has_magic(pattern):
        return []
    return [file for file in islice(_matching(base, pattern), _MAX_FOUND) if file.is_file()]


def _matching(base: Path, pattern: str) -> Iterator[Path]:
    """Expand a glob. `**` enters every real folder once: links that lead back would multiply with the depth."""
    parts = Path(pattern).parts
    if "**" not in parts:
        yield from (base / name for name in glob.iglob(pattern, root_dir=base))
        return
    at = parts.index("**")
    rest = os.path.join(*parts[at + 1 :]) if at + 1 < len(parts) else "*"
    heads = glob.iglob(os.path.join(*parts[:at]), root_dir=base) if at else iter([""])
    for head in heads:
        for folder in _folders(base / head):
            yield from _matching(folder, rest)


def _folders(root: Path) -> Iterator[Path]:
    entered: set[tuple[int, int]] = set()
    for folder, inner, _ in os.walk(root, followlinks=True):
        here = Path(folder)
        try:
            status = os.stat(here)
        except OSError:
            inner.clear()
            continue
        if (status.st_dev, status.st_ino) in entered:
            inner.clear()
            continue
        entered.add((status.st_dev, status.st_ino))
        inner[:] = sorted(
            (name for name in inner if name[0] != "."), key=lambda name: ((here / name).is_symlink(), name)
        )
        yield here
