"""Files of a knowledge folder: which are read, which are skipped and why, and their text (item 7)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.catalog import Catalog, KnowledgeEntry

MARKDOWN_SUFFIXES = frozenset({".md", ".markdown"})
TEXT_SUFFIXES = MARKDOWN_SUFFIXES | {".txt"}
MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_FILES = 50_000
MAX_PATH_CHARS = 512


class KnowledgeError(Exception):
    """A knowledge folder or its index cannot be used; the message is one bounded line without absolute paths."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to index. `path` is relative to the folder, with `/`; `size` in bytes, `modified` in nanoseconds."""

    path: str
    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that is not searchable, and the reason in one sentence."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """What a folder holds, in path order. Files of other types are not mentioned."""

    files: tuple[SourceFile, ...]
    skipped: tuple[SkippedFile, ...]


def knowledge_folder(catalog: Catalog, entry: KnowledgeEntry) -> Path:
    """Return the folder of an entry; relative paths are relative to the catalogue. Raises KnowledgeError."""
    if entry.path is None:
        raise KnowledgeError(f"knowledge {entry.name}: path: is a vector store, not a folder")
    return catalog.base / entry.path


def list_folder(name: str, folder: Path) -> Listing:
    """List the Markdown and text files below a folder. Raises KnowledgeError when it cannot be listed."""
    files: list[SourceFile] = []
    skipped: list[SkippedFile] = []
    if not folder.is_dir():
        raise KnowledgeError(f"knowledge {name}: path: folder not found; must be a folder of Markdown or text files")
    for found in _walk(name, folder):
        if isinstance(found, SkippedFile):
            skipped.append(found)
        else:
            files.append(found)
            if len(files) > MAX_FILES:
                raise KnowledgeError(
                    f"knowledge {name}: path: more than {MAX_FILES:,} files; point it at a smaller folder"
                )
    return Listing(tuple(sorted(files, key=lambda file: file.path)), tuple(sorted(skipped, key=lambda file: file.path)))


def _walk(name: str, folder: Path) -> Iterator[SourceFile | SkippedFile]:
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            with os.scandir(folder / below) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError:
            if not below:
                raise KnowledgeError(f"knowledge {name}: path: folder cannot be read") from None
            yield SkippedFile(_shown(below), "folder cannot be read")
            continue
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
            elif Path(entry.name).suffix.lower() in TEXT_SUFFIXES:
                yield _examined(folder, path)


def _examined(folder: Path, path: str) -> SourceFile | SkippedFile:
    """Decide about one file. A link is followed only to a file inside the folder: knowledge must not show others."""
    if len(path) > MAX_PATH_CHARS or not path.isprintable():
        return SkippedFile(_shown(path), f"path has control characters or more than {MAX_PATH_CHARS} characters")
    full = folder / path
    try:
        if full.is_symlink() and not full.resolve(strict=True).is_relative_to(folder.resolve()):
            return SkippedFile(path, "link to a file outside the folder")
        status = full.stat()
    except (OSError, RuntimeError):
        return SkippedFile(path, "file cannot be read")
    if not stat.S_ISREG(status.st_mode):
        return SkippedFile(path, "not a regular file")
    if status.st_size > MAX_FILE_BYTES:
        return SkippedFile(path, f"larger than {MAX_FILE_BYTES // 2**20} MiB")
    return SourceFile(path, status.st_size, status.st_mtime_ns)


def read_file(folder: Path, file: SourceFile) -> bytes | SkippedFile:
    """Read a file's bytes, at most `MAX_FILE_BYTES`."""
    try:
        with (folder / file.path).open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError:
        return SkippedFile(file.path, "file cannot be read")
    if len(data) > MAX_FILE_BYTES:
        return SkippedFile(file.path, f"larger than {MAX_FILE_BYTES // 2**20} MiB")
    return data


def decode(path: str, data: bytes) -> str | SkippedFile:
    """Decode text: UTF-8, UTF-16 with a byte order mark, or GB18030 (older Chinese files)."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ["utf-16"]
    elif b"\0" in data:
        return SkippedFile(path, "binary content")
    else:
        encodings = ["utf-8-sig", "gb18030"]
    for encoding in encodings:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        return text.replace("\0", " ")
    return SkippedFile(path, "not text in UTF-8, UTF-16 or GB18030")


def _shown(path: str) -> str:
    return path[:MAX_PATH_CHARS].encode("ascii", "backslashreplace").decode()
