"""Time of one knowledge search beside a bare FTS5 MATCH of the same words, in paired rounds of one process.

Both open the index themselves. Prints medians and the median ratio of the pairs; exit status 1 above `LIMIT`.
`python -m tests.bench.knowledge_cost [--large]`; `--large` replicates the corpus to 100,000 passages.
"""

from __future__ import annotations

import argparse
import gc
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.data import ROOT
from tools.rag.evaluate import load_queries
from tools.rag.index import index_folder
from tools.rag.search import CANDIDATES, TITLE_WEIGHT, match_expression, search_index
from tools.rag.tokenize import query_terms

LIMIT = 3.0
LARGE_CHUNKS = 100_000
NAME = "runbooks"


def bare_match(path: Path, expression: str) -> int:
    """Open the index and rank with nothing but FTS5."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        rows = connection.execute(
            "SELECT rowid FROM chunk_terms WHERE chunk_terms MATCH ? AND rank MATCH ? ORDER BY rank LIMIT ?",
            (expression, f"bm25({TITLE_WEIGHT}, 1.0)", CANDIDATES),
        ).fetchall()
    finally:
        connection.close()
    return len(rows)


def replicate(path: Path, chunks: int) -> None:
    """Copy files, passages and terms within an index until it holds that many passages."""
    connection = sqlite3.connect(path, isolation_level=None)
    files, passages = (
        connection.execute(f"SELECT max(id) FROM {table}").fetchone()[0] for table in ("files", "chunks")
    )
    have = connection.execute("SELECT count(*) FROM chunks").fetchone()[0]
    connection.execute("BEGIN")
    for copy in range(1, -(-chunks // have)):
        connection.execute(
            "INSERT INTO files SELECT id + ?, ? || path, size, modified, hash, terms FROM files WHERE id <= ?",
            (copy * files, f"copy{copy}/", files),
        )
        connection.execute(
            "INSERT INTO chunks SELECT id + ?, file_id + ?, slug, title, content FROM chunks WHERE id <= ?",
            (copy * passages, copy * files, passages),
        )
        connection.execute(
            "INSERT INTO chunk_terms (rowid, title, body) SELECT rowid + ?, title, body FROM chunk_terms WHERE rowid <= ?",
            (copy * passages, passages),
        )
    connection.execute("COMMIT")
    connection.execute("INSERT INTO chunk_terms (chunk_terms) VALUES ('optimize')")
    connection.close()


def timed(work: Callable[[], object]) -> float:
    """Seconds one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(path: Path, queries: list[str], rounds: int) -> float:
    """Print the medians; return the median of the pairs' ratios."""
    expressions = {query: match_expression(path, query) for query in queries}
    pairs: list[tuple[float, float]] = []
    gc.disable()
    for turn in range(rounds):
        for query in queries:
            works: list[Callable[[], object]] = [
                lambda query=query: search_index(path, NAME, query, time.monotonic() + 60),  # type: ignore[misc]
                lambda query=query: bare_match(path, expressions[query]),  # type: ignore[misc]
            ]
            if turn % 2:
                ours, bare = timed(works[0]), timed(works[1])
            else:
                bare, ours = timed(works[1]), timed(works[0])
            pairs.append((ours, bare))
        gc.collect()
    ratio = statistics.median(ours / bare for ours, bare in pairs)
    worst = statistics.quantiles([ours * 1e3 for ours, _ in pairs], n=20)[-1]
    print(
        f"search_index {statistics.median(ours for ours, _ in pairs) * 1e3:.2f} ms (p95 {worst:.2f}), "
        f"bare MATCH {statistics.median(bare for _, bare in pairs) * 1e3:.2f} ms, "
        f"ratio {ratio:.2f} (limit {LIMIT:.1f}), {len(pairs)} pairs"
    )
    return ratio


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also with 100,000 passages, by replication")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    data = Path(os.environ.get("SUPERBIZ_DATA", ROOT.parent / "shared" / "data"))
    if not data.is_dir():
        print("real material not found at SUPERBIZ_DATA")
        return 0
    queries = [entry.query for entry in load_queries(data / "kb_queries.jsonl") if query_terms(entry.query).ranked]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.db"
        report = index_folder(NAME, data / "runbooks", path)
        print(f"{report.chunks} passages, {len(queries)} queries: ", end="", flush=True)
        ratios = [compare(path, queries, options.rounds)]
        if options.large:
            replicate(path, LARGE_CHUNKS)
            print(f"{LARGE_CHUNKS} passages, {len(queries)} queries: ", end="", flush=True)
            ratios.append(compare(path, queries, max(2, options.rounds // 3)))
    return int(max(ratios) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
