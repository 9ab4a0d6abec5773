"""One document put into a knowledge folder: its file and its index change together, or neither does (R134).

Searches go on against the old state until the index commits. The index's write lock makes all who change a folder take
turns, in this process and in others.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.rag import schema
from tools.rag.folder import KnowledgeError, SkippedFile, SourceFile
from tools.rag.index import index_folder, known_files, update_file

SIDE_PREFIX = ".upload-"
"""Files with a dot in front are not indexed; what a crash leaves of these is removed by a later upload."""
LEFT_BEHIND_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class ReplacedDocument:
    """A document that is searchable now: in how many passages, and whether one of that name was there before."""

    chunks: int
    replaced: bool


def replace_document(name: str, folder: Path, index_path: Path, file_name: str, data: bytes) -> ReplacedDocument:
    """Write `data` as `file_name` into the folder of knowledge `name` and index it. Blocking.

    `file_name` is a base name. Raises KnowledgeError (bounded, without paths); then file and index are as before.
    """
    _index_whole_first(name, folder, index_path)
    try:
        _remove_left_behind(folder)
        staged = _write_beside(folder, data, _mode_for(folder / file_name))
    except OSError as error:
        raise KnowledgeError(f"knowledge {name}: {_reason(error)}") from None
    try:
        connection = schema.open_writer(name, index_path)
        try:
            with _in_place_of(folder / file_name, staged) as replaced:
                chunks = _index(connection, folder, file_name)
                connection.execute("COMMIT")
        finally:
            schema.close(connection)
        return ReplacedDocument(chunks, replaced)
    except OSError as error:
        raise KnowledgeError(f"knowledge {name}: {_reason(error)}") from None
    except sqlite3.Error as error:
        raise KnowledgeError(
            f"knowledge {name}: its index cannot be written; check the index folder's space"
        ) from error
    finally:
        staged.unlink(missing_ok=True)


def _index_whole_first(name: str, folder: Path, index_path: Path) -> None:
    """An index that held the new document alone would hide the others until the next indexing."""
    with contextlib.suppress(sqlite3.Error):  # whoever opens it for writing replaces a damaged one
        reader = schema.open_reader(index_path)
        if reader is not None:
            schema.close(reader)
            return
    index_folder(name, folder, index_path)


def _index(connection: sqlite3.Connection, folder: Path, file_name: str) -> int:
    status = (folder / file_name).stat()
    known = known_files(connection).get(file_name)
    source = SourceFile(file_name, status.st_size, status.st_mtime_ns)
    outcome = update_file(connection, folder, source, known)
    if isinstance(outcome, SkippedFile):
        raise KnowledgeError(f"file {file_name}: {outcome.reason}")
    row = connection.execute(
        "SELECT count(*) FROM chunks JOIN files ON files.id = chunks.file_id WHERE files.path = ?", (file_name,)
    ).fetchone()
    return int(row[0])


def _mode_for(target: Path) -> int:
    """Keep a file's mode; a new one is for whoever may use its folder, whatever this process gives its own files."""
    with contextlib.suppress(FileNotFoundError):
        status = target.lstat()
        if stat.S_ISREG(status.st_mode):
            return stat.S_IMODE(status.st_mode)
    return stat.S_IMODE(target.parent.stat().st_mode) & 0o666


def _write_beside(folder: Path, data: bytes, mode: int) -> Path:
    """Write a file in the folder itself: only there can it take a name's place in one step."""
    staged = folder / f"{SIDE_PREFIX}{uuid.uuid4().hex}.new"
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    return staged


@contextlib.contextmanager
def _in_place_of(target: Path, staged: Path) -> Iterator[bool]:
    """Put `staged` at `target`; put the old file back when the block fails. Yields whether there was one."""
    kept = _keep(target, staged.with_suffix(".old"))
    try:
        os.replace(staged, target)
        try:
            yield kept is not None
        except BaseException:
            if kept is None:
                target.unlink(missing_ok=True)
            else:
                os.replace(kept, target)
            raise
        _sync_folder(target.parent)
    finally:
        if kept is not None:
            kept.unlink(missing_ok=True)


def _keep(target: Path, beside: Path) -> Path | None:
    """Give the old file a second name; None when there is none. A link is kept as a link, never followed."""
    try:
        status = target.lstat()
    except FileNotFoundError:
        return None
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
        raise KnowledgeError(f"file {target.name}: something that is no file has this name already")
    try:
        os.link(target, beside, follow_symlinks=False)
    except OSError:  # a file system without hard links
        shutil.copy2(target, beside, follow_symlinks=False)
    return beside


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove_left_behind(folder: Path) -> None:
    for path in folder.glob(f"{SIDE_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > LEFT_BEHIND_SECONDS:
                path.unlink()


def _reason(error: OSError) -> str:
    return f"its folder cannot be written ({os.strerror(error.errno) if error.errno else 'unknown reason'})"
