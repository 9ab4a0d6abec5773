"""PostgreSQL goes away during a Run and comes back, over real connections: the Run goes on, nothing is released twice (R3, R8).

Rows and checkpoints are behind one TCP line that refuses and cuts; what the model and the log server were asked is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg_pool import PoolTimeout
from sqlalchemy import text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from nodes.ports import RunRecord
from service.app import open_app
from service.settings import load_settings
from service.store.engine import open_database
from tests.durable import url_of
from tests.e2e.backends import QUESTION, Backends, backends
from tests.http_service import SHOP, Event, Served, ended, serving, watching
from tests.redis_server import Line, line
from tools.database import is_out_of_reach

WHOLE = {
    "INTENT_ROUTER": 1,
    "DIAGNOSIS_AGENT/1": 1,
    "DIAGNOSIS_AGENT/2": 1,
    "DIAGNOSIS_AGENT/3": 1,
    "SEMANTIC_GUARD": 1,
}
STAGES = 9


@dataclass
class Place:
    """A service, what it works with, and the way to its database."""

    served: Served
    both: Backends
    way: Line
    database: URL

    async def ask(self) -> list[Event]:
        """Ask; read the stream as far as it comes."""
        events = list[Event]()
        async with self.served.client() as client:
            with contextlib.suppress(httpx.TransportError):
                async with watching(client, "POST", "/api/chat_stream", json={"Question": QUESTION}) as stream:
                    async for event in stream.events():
                        events.append(event)
        return events

    async def rest(self, events: list[Event]) -> list[Event]:
        """Come back for the rest of a stream that broke, as a browser does."""
        run_id, last = events[0].data["data"]["run_id"], {"Last-Event-ID": events[-1].id}
        async with (
            self.served.client() as client,
            watching(client, "GET", f"/api/runs/{run_id}/events", headers=last) as stream,
        ):
            return [event async for event in stream.events()]

    async def released_once(self, run_id: str) -> RunRecord:
        """The Run has ended with its conclusion, and its trace comes to tell one end."""
        run, kinds = await ended(self.served, run_id), Counter[str]()
        assert (run.internal_state, run.release_outcome) == ("SUCCESS", "CONCLUSION")
        async with asyncio.timeout(30):
            while "RUN_ENDED" not in kinds:
                await asyncio.sleep(0.05)
                kinds = Counter(row.type.value for row in await self.served.service.app.journal.trace(run_id))
        assert (kinds["RELEASE_DECIDED"], kinds["RUN_ENDED"], kinds["LATE_RESULT_DROPPED"]) == (1, 1, 0)
        return run


@contextlib.asynccontextmanager
async def over_a_line(folder: Path) -> AsyncIterator[Place]:
    """Serve over PostgreSQL behind a line."""
    url = make_url(await url_of("postgres", "outage") or "")
    async with line((url.host or "", url.port or 5432)) as way, backends(folder) as (both, _):
        through = url.set(host="127.0.0.1", port=way.port).render_as_string(hide_password=False)
        model = {"model": "openai:counting", "api_key": "k", "base_url": both.model_url, "language": "en"}
        catalog = folder / "superbiz.toml"
        async with serving(folder, catalog=catalog, database_url=through, lease_seconds=1.0, **model) as served:
            yield Place(served, both, way, url)


async def end_connections(database: URL) -> int:
    """Have the server end every connection to the database, at once; return how many there were."""
    own = create_async_engine(database.set(database="postgres"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    cut = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name")
    async with own.connect() as connection:
        found = (await connection.execute(cut, {"name": database.database})).all()
    await own.dispose()
    return len(found)


@pytest.mark.slow
async def test_r3_a_run_goes_on_when_the_server_ends_its_connections_while_the_model_answers(tmp_path: Path) -> None:
    async with over_a_line(tmp_path) as place:
        place.both.slow = dict.fromkeys(WHOLE, 0.5)
        cut = list[int]()

        async def cutting() -> None:
            while True:
                await place.both.arrived.wait()
                place.both.arrived.clear()
                cut.append(await end_connections(place.database))

        task = asyncio.create_task(cutting())
        events = await place.ask()
        task.cancel()
        assert len(cut) == len(WHOLE)
        assert all(cut), "there were connections to end"
        assert events[-1].event == "done"
        await place.released_once(events[0].data["data"]["run_id"])
        # An answer that was being stored when its connection was cut is asked for again, once.
        asked = place.both.counts()[0]
        assert asked.keys() == WHOLE.keys()
        assert all(WHOLE[each] <= count <= WHOLE[each] + 1 for each, count in asked.items())


@pytest.mark.parametrize("seconds", [1.5, pytest.param(30.0, marks=pytest.mark.slow)])
async def test_r3_r132_a_run_whose_database_is_away_when_the_model_answers_goes_on_when_it_is_back(
    seconds: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with over_a_line(tmp_path) as place:
        place.both.slow["DIAGNOSIS_AGENT/2"] = 0.5

        async def away() -> None:
            await place.both.arrived.wait()
            place.way.fault = "refuse"
            place.way.cut()
            await asyncio.sleep(seconds)
            async with place.served.client() as client:
                refused = await client.get("/api/chat/session/s")
            assert (refused.status_code, refused.json()["code"]) == (503, "STORE_UNAVAILABLE")
            place.way.fault = ""

        task = asyncio.create_task(away())
        events = await place.ask()
        await task
        if events[-1].event != "done":
            assert seconds > 20, "a short outage breaks no stream"
            events += await place.rest(events)
        await place.released_once(events[0].data["data"]["run_id"])
        assert len({event.id for event in events}) == len(events)
        assert [event.event for event in events] == ["run_started", *["status"] * STAGES, "content", "result", "done"]
        model, logs = place.both.counts()
        assert model - Counter(WHOLE) == {"DIAGNOSIS_AGENT/2": 1}, "the answer that could not be stored, and no other"
        assert all(count == 1 for count in logs.values())
        assert "out of reach" in caplog.text
        assert str(place.way.port) not in caplog.text, "no line tells where the database is"


async def test_r8_an_end_that_was_stored_but_not_acknowledged_is_told_once(tmp_path: Path) -> None:
    """The connection breaks after the server has committed the Run's end and before it says so."""
    async with over_a_line(tmp_path) as place:
        seen = list[bytes]()

        def watch() -> None:
            request = place.way.requests[-1]
            seen.append(request)
            if b"COMMIT" in request and any(b"release_outcome=" in each for each in seen[-3:]):
                place.way.fault, place.way.once, place.way.on_request = "cut before reply", True, None

        place.way.on_request = watch
        events = await place.ask()
        assert place.way.on_request is None, "the end was cut off"
        if events[-1].event != "done":
            events += await place.rest(events)
        await place.released_once(events[0].data["data"]["run_id"])
        assert place.both.counts()[0] == WHOLE


async def test_a_server_that_vanishes_without_a_word_is_not_waited_for_forever(tmp_path: Path) -> None:
    url = await url_of("postgres", "outage") or ""
    for asked, wanted in ((url, "20000"), (f"{url}?tcp_user_timeout=7000", "7000")):
        engine = await open_database(asked)
        async with engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            assert driver.info.get_parameters()["tcp_user_timeout"] == wanted
        await engine.dispose()
        async with open_app(load_settings(home=tmp_path, catalog=SHOP, database_url=asked), env={}) as app:
            saver: Any = app.checkpointer
            async with saver.conn.connection() as held:
                assert held.info.get_parameters()["tcp_user_timeout"] == wanted


LOST = psycopg.OperationalError("the connection is lost")


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (LOST, True),
        (PoolTimeout("none came free"), True),
        (psycopg.errors.AdminShutdown(), True),
        (OperationalError("SELECT", {}, LOST), True),
        (ConnectionRefusedError(), True),
        (ProgrammingError("SELECT", {}, psycopg.errors.UndefinedTable()), False),
        (OperationalError("SELECT", {}, sqlite3.OperationalError("disk I/O error")), False),
        (sqlite3.OperationalError("database is locked"), False),
        (FileNotFoundError(), False),
        (ValueError(), False),
    ],
)
def test_what_means_that_a_database_is_out_of_reach(error: Exception, wanted: bool) -> None:
    assert is_out_of_reach(error) is wanted
