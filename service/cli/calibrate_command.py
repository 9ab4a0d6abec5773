"""`superbiz calibrate`: which relevance thresholds fit a knowledge folder, from labelled queries (R54)."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.console import CliError, ExitCode, print_json, run_async, say
from service.cli.options import CatalogOption, JsonOption, settings_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.catalog import Catalog, KnowledgeEntry
    from tools.rag.evaluate import LabelledQuery, Search
    from tools.rag.score import Hit

SEARCH_SECONDS = 30.0
"""Time one query may take."""
MAX_NAMED = 10


def calibrate(
    queries: Annotated[
        Path,
        typer.Argument(help='JSON lines {"query": text, "relevant": [path in the folder, ...]}; [] for no answer.'),
    ],
    knowledge: Annotated[
        str | None, typer.Option("--knowledge", help="Name of the [[knowledge]] entry. Default: the only one.")
    ] = None,
    json: JsonOption = False,
    catalog: CatalogOption = None,
) -> int:
    """Print precision and recall per threshold and propose the two thresholds of a knowledge folder."""
    from service.home import KNOWLEDGE_FOLDER, prepare_home
    from tools.catalog import load_catalog
    from tools.rag.evaluate import calibrate as tabulate
    from tools.rag.evaluate import format_calibration, format_proposal, judge, load_queries, propose
    from tools.rag.score import Thresholds

    labelled = load_queries(queries)
    settings = settings_from(catalog=catalog)
    found = load_catalog(settings.catalog)
    entry = _chosen(found, knowledge)
    prepare_home(settings.home)
    search = _indexed(found, entry, settings.home / KNOWLEDGE_FOLDER, labelled)
    proposal = propose(labelled, search)
    table = tabulate(labelled, search)
    current = judge(labelled, search, Thresholds(entry.high, entry.reference))
    if json:
        shown = {"knowledge": entry.name, "proposal": asdict(proposal), "current": asdict(current)}
        print_json(shown | {"table": asdict(table)})
    else:
        say(format_calibration(table))
        say()
        say(format_proposal(proposal, current))
    return ExitCode.OK


def _chosen(catalog: Catalog, name: str | None) -> KnowledgeEntry:
    names = ", ".join(entry.name for entry in catalog.knowledge[:MAX_NAMED])
    if not catalog.knowledge:
        raise CliError("catalogue: names no [[knowledge]] folder; there is nothing to calibrate")
    if name is None and len(catalog.knowledge) > 1:
        raise CliError(f"--knowledge: must name one of {names}")
    chosen = [entry for entry in catalog.knowledge if name is None or entry.name.lower() == name.lower()]
    if not chosen:
        raise CliError(f"--knowledge: the catalogue has no such entry; must be one of {names}")
    return chosen[0]


def _indexed(catalog: Catalog, entry: KnowledgeEntry, index_dir: Path, labelled: Sequence[LabelledQuery]) -> Search:
    """Bring the folder's index up to date and return its search. Refuses labels that name no file of the folder."""
    if entry.store is not None:
        return _of_store(catalog, entry, labelled)
    from tools.rag import schema
    from tools.rag.folder import knowledge_folder, list_folder
    from tools.rag.index import index_folder
    from tools.rag.search import search_index

    folder = knowledge_folder(catalog, entry)
    files = {file.path for file in list_folder(entry.name, folder).files}
    for query in labelled:
        unknown = sorted(query.relevant - files)
        if unknown:
            raise CliError(
                f"queries: line {query.line}: relevant: knowledge {entry.name} has no file {unknown[0][:200]}; "
                "must be paths relative to its folder"
            )
    path = schema.index_file(index_dir, entry.name, folder)
    index_folder(entry.name, folder, path)
    return lambda query: search_index(path, entry.name, query, time.monotonic() + SEARCH_SECONDS)


def _of_store(catalog: Catalog, entry: KnowledgeEntry, labelled: Sequence[LabelledQuery]) -> Search:
    """Ask a vector store everything once. Labels are its documents' sources, which nothing can list."""
    from service.vector_store import open_vector_store
    from tools.evidence_tool import ToolFailure
    from tools.rag.backend_vector import store_hits

    store = open_vector_store(catalog, entry)

    async def ask() -> dict[str, list[Hit]]:
        return {each.query: await store_hits(entry, store, each.query, SEARCH_SECONDS) for each in labelled}

    try:
        found = run_async(ask)
    except ToolFailure as failure:
        text = f"knowledge {entry.name}: the vector store does not answer: {failure.code.value}"
        raise CliError(text, ExitCode.FAILED) from None
    return lambda query: found[query]
