"""`superbiz index`: bring the knowledge index up to date."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from service.cli.console import CliError, ExitCode, complain, print_json, say
from service.cli.options import CatalogOption, JsonOption, settings_from

if TYPE_CHECKING:
    from pathlib import Path

    from tools.catalog import Catalog
    from tools.rag.index import IndexReport


def index(json: JsonOption = False, catalog: CatalogOption = None) -> int:
    """Index the catalogue's knowledge folders; only what changed is read anew."""
    from service.home import KNOWLEDGE_FOLDER, prepare_home
    from tools.catalog import load_catalog

    settings = settings_from(catalog=catalog)
    found = load_catalog(settings.catalog)
    if not found.folders:
        raise CliError("catalogue: names no [[knowledge]] folder; there is nothing to index")
    prepare_home(settings.home)
    report = _indexed(found, settings.home / KNOWLEDGE_FOLDER, quiet=json)
    if json:
        print_json(asdict(report))
    else:
        _show(report)
    for problem in report.problems:
        complain(problem)
    return ExitCode.USAGE if report.problems else ExitCode.OK


def _indexed(catalog: Catalog, index_dir: Path, *, quiet: bool) -> IndexReport:
    from rich.console import Console
    from rich.progress import Progress

    from tools.rag.index import index_catalog

    console = Console(file=sys.stderr)
    if quiet or not console.is_terminal:
        return index_catalog(catalog, index_dir)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("indexing", total=None)
        return index_catalog(catalog, index_dir, lambda done, total: progress.update(task, completed=done, total=total))


def _show(report: IndexReport) -> None:
    say(
        f"{report.chunks} passages; files: {report.added} added, {report.updated} updated, {report.removed} removed, "
        f"{report.unchanged} unchanged, {report.skipped} skipped"
    )
    for skipped in report.skipped_files:
        say(f"  skipped {skipped.path}: {skipped.reason}")
