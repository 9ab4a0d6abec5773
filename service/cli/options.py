"""Options that several commands share, and the settings they make."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from service.settings import Settings
    from service.store.journal import SqlJournal
    from service.store.runs import SqlRunStore

JsonOption = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout, nothing else.")]
CatalogOption = Annotated[
    Path | None, typer.Option("--catalog", help="Catalogue file. Default: SUPERBIZ_CATALOG, else superbiz.toml.")
]
LanguageOption = Annotated[
    str | None, typer.Option("--language", help="zh or en. Default: SUPERBIZ_LANGUAGE, else zh.")
]


def settings_from(**overrides: Any) -> Settings:
    """Read the settings; options that were given win over the environment. Raises SettingsError."""
    from service.settings import load_settings

    return load_settings(**{name: value for name, value in overrides.items() if value is not None})


def stores() -> AbstractAsyncContextManager[tuple[SqlRunStore, SqlJournal]]:
    """Open the run store and the journal, and nothing else of the system."""
    from service.home import open_stores

    return open_stores(settings_from())
