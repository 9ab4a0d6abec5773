"""The index file of one knowledge folder: SQLite with FTS5, write-ahead log, one writer, any number of readers."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import sqlite3
import time
from importlib.metadata import version
from pathlib import Path

from tools.rag.folder import KnowledgeError

INDEX_RULES = f"1 rjieba-{version('rjieba')} snowballstemmer-{version('snowballstemmer')}"
"""Rules an index was built by; an index of other rules is rebuilt. Raise the number when chunks or terms change."""
WRITER_WAIT_SECONDS = 60.0
READER_WAIT_SECONDS = 2.0

_TABLES = (
    "CREATE TABLE meta (rules TEXT NOT NULL)",
    "CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, "
    "modified INTEGER NOT NULL, hash BLOB NOT NULL, terms TEXT NOT NULL)",
    "CREATE TABLE chunks (id INTEGER PRIMARY KEY, file_id INTEGER NOT NULL REFERENCES files(id), slug TEXT NOT NULL, "
    "title TEXT NOT NULL, content TEXT NOT NULL)",
    "CREATE INDEX chunks_of_file ON chunks(file_id)",
    # Terms arrive cut and stemmed, joined by spaces; unicode61 only takes them apart again.
    'CREATE VIRTUAL TABLE chunk_terms USING fts5(title, body, tokenize="unicode61 remove_diacritics 0")',
    "CREATE VIRTUAL TABLE chunk_counts USING fts5vocab(chunk_terms, row)",
)
_NAMES = ("chunk_counts", "chunk_terms", "chunks", "files", "meta")
_log = logging.getLogger(__name__)


def index_file(index_dir: Path, name: str, folder: Path) -> Path:
    """Return where the index of a folder lies; catalogues that name the same folder share it."""
    place = hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return index_dir / f"{name.lower()}-{place}.db"


def open_writer(name: str, path: Path) -> sqlite3.Connection:
    """Open the index for writing and start the write transaction, with the tables in place.

    A damaged file is replaced. Raises KnowledgeError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return _begin(path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            _log.warning("index %s is damaged and is built anew", path.name)
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            return _begin(path)
    except (OSError, sqlite3.Error) as error:
        raise KnowledgeError(f"knowledge {name}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = str(error)
    if "no such module" in text:
        return "this Python's SQLite lacks FTS5; use one built with SQLITE_ENABLE_FTS5"
    if "locked" in text:
        return f"its index is being written by another process for more than {WRITER_WAIT_SECONDS:.0f} s"
    return "its index cannot be written; check the index folder's permissions and space"


def _begin(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=WRITER_WAIT_SECONDS, isolation_level=None)
    try:
        _switch_to_wal(connection)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        if _rules(connection) != INDEX_RULES:
            for table in _NAMES:
                connection.execute(f"DROP TABLE IF EXISTS {table}")
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute("INSERT INTO meta VALUES (?)", (INDEX_RULES,))
    except BaseException:
        connection.close()
        raise
    return connection


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Set the journal mode; SQLite answers "locked" at once, without waiting, when two processes do it together."""
    deadline = time.monotonic() + WRITER_WAIT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def open_reader(path: Path) -> sqlite3.Connection | None:
    """Open a finished index for one consistent reading; None without one by today's rules. Raises sqlite3.Error."""
    if not path.is_file():
        return None
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=READER_WAIT_SECONDS, isolation_level=None
    )
    try:
        connection.execute("BEGIN")
        if _rules(connection) == INDEX_RULES:
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def _rules(connection: sqlite3.Connection) -> str | None:
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone()
    row = connection.execute("SELECT rules FROM meta").fetchone() if known else None
    return str(row[0]) if row else None


def close(connection: sqlite3.Connection) -> None:
    """Roll back whatever is open and close; never raises."""
    with contextlib.suppress(sqlite3.Error):
        connection.close()
