"""Log files made for a test, and how to ask for what they hold."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.catalog import TopicEntry
from tools.logs.backend import Lookback, ParsedQuery
from tools.logs.backend_files import FilesBackend
from tools.logs.request import QueryLogsResponse

NOW = datetime(2026, 3, 1, 3, 5, tzinfo=UTC).timestamp()


def ask(
    folder: Path,
    query: str = "",
    path: str = "app.log",
    minutes: int = 30,
    now: float | None = NOW,
    limit: int = 20,
    deadline: float = 10.0,
    **topic: Any,
) -> QueryLogsResponse:
    entry = TopicEntry(name="app", path=path, **topic)
    backend = FilesBackend(folder)
    lookback = Lookback(minutes, now, NOW)
    return asyncio.run(backend.query(entry, ParsedQuery.of(query), lookback, limit, deadline))


def messages(response: QueryLogsResponse) -> list[str]:
    return [event.message for event in response.events]


def write(folder: Path, content: str | bytes, name: str = "app.log") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
