"""Event streams over real TCP: grammar, places to go on from, heartbeats, readers that are slow or leave (R132)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.http_service import QUESTION, Event, Served, ask_stream, serving, watching


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as running:
        yield running


@pytest.fixture
async def client(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with served.client() as opened:
        yield opened


def kinds(events: list[Event]) -> list[str]:
    return [event.data["type"] for event in events]


async def test_r132_a_stream_tells_a_whole_run(client: httpx.AsyncClient) -> None:
    events = await ask_stream(client, body={"Id": "s-1"})
    told = kinds(events)
    assert told[0] == "run_started"
    assert told[-3:] == ["content", "result", "done"]
    assert set(told[1:-3]) == {"status"}
    assert all(event.event == event.data["type"] and set(event.data) == {"type", "data"} for event in events)
    assert len({event.id for event in events}) == len(events)
    run_id = events[0].data["data"]["run_id"]
    run = (await client.get(f"/api/runs/{run_id}")).json()
    assert events[-2].data["data"] == {
        "release_outcome": run["release_outcome"],
        "published_result": run["published_result"],
    }
    assert run["published_result"]["conclusion"] in events[-3].data["data"]
    assert run["question"] == QUESTION
    assert run["status"] == "SUCCESS"


async def test_r132_every_place_of_a_stream_can_be_gone_on_from(client: httpx.AsyncClient) -> None:
    events = await ask_stream(client)
    run_id = events[0].data["data"]["run_id"]
    for number, event in enumerate(events[:-1]):
        ways = ({"headers": {"Last-Event-ID": event.id}}, {"params": {"after": event.id}})
        async with watching(client, "GET", f"/api/runs/{run_id}/events", **ways[number % 2]) as stream:
            assert [each async for each in stream.events()] == events[number + 1 :]
    again = await client.get(f"/api/runs/{run_id}/events", headers={"Last-Event-ID": events[-1].id})
    assert again.status_code == 204
