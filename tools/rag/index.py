"""Indexing of knowledge folders: incremental by content hash, one transaction per folder (item 7).

Searches go on against the old state until the transaction commits; a failed indexing leaves it as it was.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath

from tools.catalog import Catalog, KnowledgeEntry
from tools.masking import mask_text
from tools.rag import schema
from tools.rag.chunks import Chunk, split_document
from tools.rag.folder import (
    MARKDOWN_SUFFIXES,
    KnowledgeError,
    Listing,
    SkippedFile,
    SourceFile,
    decode,
    knowledge_folder,
    list_folder,
    read_file,
)
from tools.rag.tokenize import index_terms

Progress = Callable[[int, int], None]
"""Called with files done and files in all."""
FRESH_SECONDS = 2.0
"""A file changed this shortly before it was read may change again within the clock's step: its time is not trusted."""
MAX_REPORTED_SKIPS = 50


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What indexing did, in files, and what it left out. `problems`: one line per folder that could not be indexed."""

    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    skipped: int = 0
    chunks: int = 0
    skipped_files: tuple[SkippedFile, ...] = ()
    problems: tuple[str, ...] = ()

    def plus(self, other: IndexReport) -> IndexReport:
        """Return both reports as one."""
        return IndexReport(
            self.added + other.added,
            self.updated + other.updated,
            self.removed + other.removed,
            self.unchanged + other.unchanged,
            self.skipped + other.skipped,
            self.chunks + other.chunks,
            (self.skipped_files + other.skipped_files)[:MAX_REPORTED_SKIPS],
            self.problems + other.problems,
        )


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file as its index knows it; `modified` in nanoseconds, -1 where that time is not trusted."""

    id: int
    size: int
    modified: int
    hash: bytes


def index_catalog(catalog: Catalog, index_dir: Path, progress: Progress | None = None) -> IndexReport:
    """Bring the indexes of all knowledge folders up to date. Blocking; safe to run twice at once.

    A folder that cannot be indexed keeps its old index and is named in `problems`; the others are indexed.
    """
    report = IndexReport()
    listings: list[tuple[KnowledgeEntry, Path, Listing]] = []
    for entry in catalog.folders:
        folder = knowledge_folder(catalog, entry)
        try:
            listings.append((entry, folder, list_folder(entry.name, folder)))
        except KnowledgeError as error:
            report = report.plus(IndexReport(problems=(str(error),)))
    total = sum(len(listing.files) for _, _, listing in listings)
    done = 0
    for entry, folder, listing in listings:

        def count(files: int, before: int = done) -> None:
            if progress is not None:
                progress(before + files, total)

        path = schema.index_file(index_dir, entry.name, folder)
        try:
            report = report.plus(_index_folder(entry.name, folder, listing, path, count))
        except KnowledgeError as error:
            report = report.plus(IndexReport(problems=(str(error),)))
        done += len(listing.files)
    return report


def index_folder(name: str, folder: Path, path: Path) -> IndexReport:
    """Bring the index file `path` of one folder up to date. Raises KnowledgeError; then the old index stands."""
    return _index_folder(name, folder, list_folder(name, folder), path, lambda files: None)


def _index_folder(name: str, folder: Path, listing: Listing, path: Path, count: Callable[[int], None]) -> IndexReport:
    connection = schema.open_writer(name, path)
    try:
        report = _update(connection, folder, listing, count)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    except sqlite3.Error as error:
        raise KnowledgeError(
            f"knowledge {name}: its index cannot be written; check the index folder's space"
        ) from error
    finally:
        schema.close(connection)
    return report


def _update(
    connection: sqlite3.Connection, folder: Path, listing: Listing, count: Callable[[int], None]
) -> IndexReport:
    known = known_files(connection)
    skipped = list(listing.skipped)
    seen: set[str] = set()
    added = updated = 0
    for number, file in enumerate(listing.files, start=1):
        outcome = update_file(connection, folder, file, known.get(file.path))
        if isinstance(outcome, SkippedFile):
            skipped.append(outcome)
        else:
            seen.add(file.path)
            added += outcome == "added"
            updated += outcome == "updated"
        count(number)
    gone = [known[path].id for path in _gone(folder, known.keys() - seen, {file.path for file in skipped})]
    for file_id in gone:
        _remove(connection, file_id)
    chunks = connection.execute("SELECT count(*) FROM chunks").fetchone()[0]
    unchanged = len(seen) - added - updated
    return IndexReport(added, updated, len(gone), unchanged, len(skipped), chunks, tuple(skipped[:MAX_REPORTED_SKIPS]))


def _gone(folder: Path, missing: set[str], skipped: set[str]) -> set[str]:
    """Return which known files went; one that is there by now came with an upload after the folder was listed."""
    if not missing:
        return missing
    came = {file.path for file in list_folder(folder.name, folder).files} - skipped
    return missing - came


def known_files(connection: sqlite3.Connection) -> dict[str, KnownFile]:
    """Return what the index holds, by path relative to the folder."""
    rows = connection.execute("SELECT path, id, size, modified, hash FROM files")
    return {path: KnownFile(*values) for path, *values in rows}


def update_file(
    connection: sqlite3.Connection, folder: Path, file: SourceFile, known: KnownFile | None
) -> str | SkippedFile:
    """Index one file if its content changed; says `added`, `updated` or `unchanged`, or why it was skipped."""
    if known and (known.size, known.modified) == (file.size, file.modified):
        return "unchanged"
    data = read_file(folder, file)
    if isinstance(data, SkippedFile):
        return data
    digest = hashlib.sha256(data).digest()
    fresh = time.time_ns() - file.modified < FRESH_SECONDS * 1e9
    status = (len(data), -1 if fresh else file.modified, digest)
    if known and known.hash == digest:
        connection.execute("UPDATE files SET size = ?, modified = ?, hash = ? WHERE id = ?", (*status, known.id))
        return "unchanged"
    text = decode(file.path, data)
    if isinstance(text, SkippedFile):
        return text
    if known:
        _remove(connection, known.id)
    _insert(connection, file.path, status, _chunks(file.path, text))
    return "updated" if known else "added"


def _chunks(path: str, text: str) -> tuple[Chunk, ...]:
    """Mask before splitting: a key cut in two would no longer be recognized."""
    name = PurePosixPath(path)
    return split_document(mask_text(text), name.stem, markdown=name.suffix.lower() in MARKDOWN_SUFFIXES)


def _insert(connection: sqlite3.Connection, path: str, status: tuple[int, int, bytes], chunks: Sequence[Chunk]) -> None:
    stem = PurePosixPath(path).stem
    terms = [(index_terms(f"{chunk.title} {stem}"), index_terms(chunk.text)) for chunk in chunks]
    of_file = sorted(set(chain.from_iterable(chain(title, body) for title, body in terms)))
    file_id = connection.execute(
        "INSERT INTO files (path, size, modified, hash, terms) VALUES (?, ?, ?, ?, ?)",
        (path, *status, " ".join(of_file)),
    ).lastrowid
    first = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM chunks").fetchone()[0]
    connection.executemany(
        "INSERT INTO chunks (id, file_id, slug, title, content) VALUES (?, ?, ?, ?, ?)",
        ((number, file_id, chunk.slug, chunk.title, chunk.content) for number, chunk in enumerate(chunks, start=first)),
    )
    connection.executemany(
        "INSERT INTO chunk_terms (rowid, title, body) VALUES (?, ?, ?)",
        ((number, " ".join(title), " ".join(body)) for number, (title, body) in enumerate(terms, start=first)),
    )


def _remove(connection: sqlite3.Connection, file_id: int) -> None:
    chunk_ids: Iterable[tuple[int]] = connection.execute(
        "SELECT id FROM chunks WHERE file_id = ?", (file_id,)
    ).fetchall()
    connection.executemany("DELETE FROM chunk_terms WHERE rowid = ?", chunk_ids)
    connection.execute("DELETE FROM chunks WHERE file_id = ?", (file_id,))
    connection.execute("DELETE FROM files WHERE id = ?", (file_id,))
