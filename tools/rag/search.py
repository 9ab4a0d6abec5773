"""Search of one knowledge folder's index: BM25 order, bounded score (R54). Blocking; no query text can raise."""

from __future__ import annotations

import hashlib
import re
import sqlite3
import time
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from tools.rag import schema
from tools.rag.score import Hit, document_score, term_weights
from tools.rag.tokenize import QueryTerms, query_terms

CANDIDATES = 50
MAX_MATCH_TERMS = 64
"""Terms looked up in the index, rarest first; all of them count in the score."""
TITLE_WEIGHT = 3.0
MAX_ID_CHARS = 160
_PROGRESS_STEPS = 5_000
_UNSAFE = re.compile(r"[^\w./\-]+")


class IndexMissingError(Exception):
    """The folder has no finished index yet."""


def search_index(path: Path, name: str, query: str, deadline: float) -> list[Hit]:
    """Return at most `CANDIDATES` chunks of a folder, best BM25 first. `deadline` is a reading of `time.monotonic`.

    Raises IndexMissingError, TimeoutError, sqlite3.Error (a damaged or unreadable index).
    """
    if time.monotonic() > deadline:
        raise TimeoutError
    connection = schema.open_reader(path)
    if connection is None:
        raise IndexMissingError(name)
    try:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _PROGRESS_STEPS)
        return _search(connection, name, query_terms(query))
    except sqlite3.OperationalError as error:
        if time.monotonic() > deadline:
            raise TimeoutError from error
        raise
    finally:
        schema.close(connection)


def _search(connection: sqlite3.Connection, name: str, terms: QueryTerms) -> list[Hit]:
    if not terms.judged:
        return []
    chunks = connection.execute("SELECT count(*) FROM chunks").fetchone()[0]
    weights = term_weights({term: _count(connection, term) for term in terms.judged}, chunks)
    rarest = sorted(terms.ranked, key=lambda term: -weights[term])[:MAX_MATCH_TERMS]
    rows = connection.execute(
        "SELECT t.rank, t.title, t.body, c.slug, c.title, c.content, f.path, f.terms FROM chunk_terms t "
        "JOIN chunks c ON c.id = t.rowid JOIN files f ON f.id = c.file_id "
        "WHERE chunk_terms MATCH ? AND t.rank MATCH ? ORDER BY t.rank LIMIT ?",
        (" OR ".join(f'"{term}"' for term in rarest), f"bm25({TITLE_WEIGHT}, 1.0)", CANDIDATES),
    ).fetchall()
    file_terms = {row[6]: frozenset(row[7].split(" ")) for row in rows}
    hits = [
        Hit(
            document_id=document_id(name, source, slug),
            title=title,
            source=source,
            content=content,
            rank=-rank,
            score=document_score(weights, _words(title_terms, body_terms), file_terms[source]),
        )
        for rank, title_terms, body_terms, slug, title, content, source, _ in rows
    ]
    return sorted(hits, key=lambda hit: (-hit.rank, hit.document_id))


def _count(connection: sqlite3.Connection, term: str) -> int:
    row = connection.execute("SELECT doc FROM chunk_counts WHERE term = ?", (term,)).fetchone()
    return int(row[0]) if row else 0


def _words(*joined: str) -> frozenset[str]:
    split: Iterable[list[str]] = (text.split(" ") for text in joined)
    return frozenset(chain.from_iterable(split))


def document_id(name: str, source: str, slug: str) -> str:
    """Return the stable id of a chunk: `knowledge/relative/path.md#section`, letters, digits and `_ . / - # ~` only.

    A path with other characters, or one too long, gets a hash of itself, so that two files never share an id.
    """
    path = _UNSAFE.sub("-", source)
    tail = f"#{slug}"
    room = MAX_ID_CHARS - len(name) - 1 - len(tail)
    if path != source or len(path) > room:
        digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        path = f"{path[: room - 9]}~{digest}"
    return f"{name}/{path}{tail}"
