"""Search of one knowledge folder's index: BM25 order, bounded score (R54). Blocking; no query text can raise."""

from __future__ import annotations

import hashlib
import re
import sqlite3
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tools.rag import schema
from tools.rag.score import Hit, document_score, first_of_files, term_weights
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
    """Return what `rank_documents` looks at among the best `CANDIDATES` chunks of a folder, best BM25 first.

    `deadline` is a reading of `time.monotonic`.

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
    weights = _weights(connection, terms)
    rows = connection.execute(
        "SELECT t.rank, t.rowid, c.slug, f.path FROM chunk_terms t "
        "JOIN chunks c ON c.id = t.rowid JOIN files f ON f.id = c.file_id "
        "WHERE chunk_terms MATCH ? AND t.rank MATCH ? ORDER BY t.rank LIMIT ?",
        (_expression(terms, weights), f"bm25({TITLE_WEIGHT}, 1.0)", CANDIDATES),
    ).fetchall()
    found = sorted(
        (_Found(-rank, document_id(name, path, slug), path, row_id) for rank, row_id, slug, path in rows),
        key=lambda each: (-each.rank, each.document_id),
    )
    return [_hit(connection, weights, each) for each in first_of_files(found, lambda each: each.source)]


class _Found(NamedTuple):
    """One candidate, before anything of it is read."""

    rank: float
    document_id: str
    source: str
    row_id: int


def _hit(connection: sqlite3.Connection, weights: Mapping[str, float], found: _Found) -> Hit:
    title_terms, body_terms, title, content, file_terms = connection.execute(
        "SELECT t.title, t.body, c.title, c.content, f.terms FROM chunk_terms t "
        "JOIN chunks c ON c.id = t.rowid JOIN files f ON f.id = c.file_id WHERE t.rowid = ?",
        (found.row_id,),
    ).fetchone()
    return Hit(
        document_id=found.document_id,
        title=title,
        source=found.source,
        content=content,
        rank=found.rank,
        score=document_score(weights, _present(weights, f"{title_terms} {body_terms}"), _present(weights, file_terms)),
    )


def match_expression(path: Path, query: str) -> str:
    """Return what FTS5 is asked for a query. Raises IndexMissingError, sqlite3.Error."""
    connection = schema.open_reader(path)
    if connection is None:
        raise IndexMissingError(path.stem)
    try:
        terms = query_terms(query)
        return _expression(terms, _weights(connection, terms))
    finally:
        schema.close(connection)


def _expression(terms: QueryTerms, weights: Mapping[str, float]) -> str:
    rarest = sorted(terms.ranked, key=lambda term: -weights[term])[:MAX_MATCH_TERMS]
    return " OR ".join(f'"{term}"' for term in rarest)


def _weights(connection: sqlite3.Connection, terms: QueryTerms) -> dict[str, float]:
    chunks = connection.execute("SELECT count(*) FROM chunks").fetchone()[0]
    return term_weights({term: _count(connection, term) for term in terms.judged}, chunks)


def _count(connection: sqlite3.Connection, term: str) -> int:
    row = connection.execute("SELECT doc FROM chunk_counts WHERE term = ?", (term,)).fetchone()
    return int(row[0]) if row else 0


def _present(terms: Iterable[str], joined: str) -> frozenset[str]:
    """Return which terms occur among words joined by spaces; a search in the text costs less than taking it apart."""
    text = f" {joined} "
    return frozenset(term for term in terms if f" {term} " in text)


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
