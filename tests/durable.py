"""The whole durable stack over a small incident, on SQLite or PostgreSQL, with a clock that a test moves."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import text

from graph.context import DiagnosisContext
from graph.diagnosis import recursion_limit
from nodes.ports import ORIGIN, RunOrigin
from service.app import App, open_app
from service.recovery import Takeover
from service.settings import Settings
from service.store.engine import create_engine
from tests.scenes import conclusion, log_call, write_answers, write_scene
from tests.stores import OWN, own_database

QUESTION = "why do orders fail?"
SCRIPT = [log_call("c1", "timeout"), log_call("c2", "nothing-like-this", ("c1", "GAINED")), conclusion("c1")]


class MovedClock:
    """The system's clock, ahead by `seconds`."""

    def __init__(self, clock: Any, seconds: float = 0.0) -> None:
        self._clock = clock
        self.seconds = seconds

    def now(self) -> float:
        return float(self._clock.now()) + self.seconds


async def url_of(kind: str, name: str = "durable") -> str | None:
    """Return the URL of an empty database of a kind; None for the file in the home folder."""
    if kind == "sqlite":
        return None
    url = await own_database(f"{OWN}_{name}")
    engine = create_engine(url)
    async with engine.begin() as connection:
        for statement in ("DROP SCHEMA public CASCADE", "CREATE SCHEMA public"):
            await connection.execute(text(statement))
    await engine.dispose()
    return url


def settings_of(folder: Path, url: str | None, script: list[dict[str, Any]] | None = None, **options: Any) -> Settings:
    """Write the incident and its answers; return the settings."""
    model = write_answers(folder / "answers.json", SCRIPT if script is None else script)
    values: dict[str, Any] = {"catalog": write_scene(folder), "home": folder / "home", "model": model, "language": "en"}
    return Settings(**{**values, "database_url": url, **options})


@asynccontextmanager
async def opened(settings: Settings, **changes: Any) -> AsyncIterator[App]:
    """Open the app with some resources replaced."""
    async with open_app(settings, env={}) as app:
        resources = replace(app.resources, **changes)
        yield replace(app, resources=resources)


def config_of(run_id: str, thread: str, execution: str, owner: str | None = None, alone: bool = True) -> Any:
    """The config of an execution over one Run."""
    return {
        "configurable": {"thread_id": thread, ORIGIN: RunOrigin(run_id, owner, alone)},
        "recursion_limit": recursion_limit(DiagnosisContext().budget),
        "run_id": uuid.UUID(execution),
    }


async def begin(app: App, run_id: str, *, owner: str | None = None, session: str | None = "s-1") -> dict[str, Any]:
    """Start a Run on a thread of its own and follow it to its end."""
    config = config_of(run_id, f"thread-{run_id}", str(uuid.uuid4()), owner)
    graph_input: Any = {"query": QUESTION, "session_id": session}
    return await app.graph.ainvoke(graph_input, config, context=app.settings.context(), durability="sync")


async def carry(app: App, takeover: Takeover) -> dict[str, Any]:
    """Go on with a Run that was taken up, to its end."""
    record = takeover.record
    assert record.thread_id is not None
    config = config_of(record.run_id, record.thread_id, takeover.execution_id, record.owner)
    graph_input: Any = {"query": record.query, "session_id": record.session_id} if takeover.from_start else None
    return await app.graph.ainvoke(graph_input, config, context=takeover.context, durability="sync")
