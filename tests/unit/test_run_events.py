"""Following a Run: heartbeats, and clients that are gone before anything was sent (R132, R134)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from graph.contract import RunState
from nodes.ports import RunRecord
from service.http.streaming import event_stream
from service.run_events import RunChanges, RunEvents
from tests.stores import a_run


class Runs:
    async def get(self, run_id: str) -> RunRecord | None:
        return a_run(run_id, internal_state=RunState.RUNNING)


class Busy:
    """A Run whose every look shows one more stage that no user sees."""

    def __init__(self) -> None:
        self.looks = 0

    async def stages(self, run_id: str, after: int) -> Sequence[tuple[int, str]]:
        self.looks += 1
        return [(after + 1, "dedup_scope")]


async def test_r132_a_run_at_work_of_which_nothing_is_shown_still_keeps_its_connection_alive() -> None:
    busy = Busy()
    events = RunEvents(Runs(), busy, RunChanges(), lambda record: [], poll_seconds=0.01)
    stream = events.follow("run-1", idle_seconds=0.1, stopping=asyncio.Event())
    assert (await anext(stream)) is not None, "run_started"
    assert (await asyncio.wait_for(anext(stream), 10)) is None
    assert (await asyncio.wait_for(anext(stream), 10)) is None
    assert busy.looks > 2
    await stream.aclose()


@pytest.mark.parametrize("asked", [True, False])
async def test_r134_a_client_that_is_gone_before_the_first_byte_cancels_where_it_asked_to(asked: bool) -> None:
    cancelled: list[str] = []

    async def cancel_left(run_id: str) -> None:
        cancelled.append(run_id)

    manager: Any = SimpleNamespace(stopping=asyncio.Event(), cancel_left=cancel_left)
    settings = SimpleNamespace(heartbeat_seconds=1)
    service: Any = SimpleNamespace(app=SimpleNamespace(settings=settings), manager=manager)
    response = event_stream(service, "run-1", cancel_on_disconnect=asked)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise OSError

    with pytest.raises(Exception):  # noqa: B017, PT011 - whichever the server framework has for it
        await response({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)
    await asyncio.sleep(0)
    assert cancelled == (["run-1"] if asked else [])
