"""Names of the documents in a knowledge folder: what may be said of it without searching it. Blocking."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tools.rag import schema
from tools.rag.folder import KnowledgeError, list_folder
from tools.rag.markdown import HEADING_JOINT


def document_titles(name: str, folder: Path, index: Path, limit: int) -> tuple[list[str], int]:
    """Return the first `limit` titles in path order and the number of documents.

    Titles come from the index; where there is none yet, the files' names stand for them. Nothing where the folder
    cannot be read.
    """
    try:
        indexed = _indexed(index, limit)
        if indexed is not None:
            return indexed
        files = list_folder(name, folder).files
    except (sqlite3.Error, OSError, KnowledgeError):
        return [], 0
    return [Path(file.path).stem for file in files[:limit]], len(files)


def _indexed(index: Path, limit: int) -> tuple[list[str], int] | None:
    connection = schema.open_reader(index)
    if connection is None:
        return None
    try:
        total = connection.execute("SELECT count(*) FROM files").fetchone()[0]
        rows = connection.execute(
            "SELECT (SELECT title FROM chunks WHERE file_id = f.id ORDER BY id LIMIT 1) FROM files f ORDER BY path LIMIT ?",
            (limit,),
        ).fetchall()
    finally:
        schema.close(connection)
    return [str(title).split(HEADING_JOINT, 1)[0] for (title,) in rows if title], int(total)
