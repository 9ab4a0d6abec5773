"""Races cancel, completion, timeout and process stop over one database; what must hold afterwards is `judged`.

    python -m tests.race FOLDER URL-or-dash SEED HOSTS RUNS

starts HOSTS processes one after another, each over RUNS Runs, and kills each with SIGKILL at a moment drawn from SEED.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import text

import service.recovery
import service.runner
from graph.contract import Component, RunState
from nodes.ports import ModelReply, ModelRequest
from release.contract import ReleaseOutcome
from service.app import App, Parts, build_parts, open_runs
from service.checkpoints import open_checkpoints
from service.contract import StepView
from service.models.recorded import read_recorded
from service.runner import Question, RunManager, ServiceStopping, open_manager
from service.settings import Settings
from service.store.status import TERMINAL
from tests.durable import settings_of
from tests.scenes import conclusion, log_call, write_answers
from tools.database import Database

STEPS = 18
"""Steps of an undisturbed diagnosis."""
LAST_SECONDS = 120.0
SCRIPT = [log_call("c1", "timeout"), conclusion("c1")]
HELLO = "hello, what can you do?"
FAILURE = "why do orders fail?"

DIFFERS = " OR ".join(f"OLD.{it} <> NEW.{it}" for it in ("internal_state", "release_outcome", "published", "ended_at"))
NOTE = "INSERT INTO moved VALUES (NEW.run_id, OLD.internal_state, NEW.internal_state);"
WATCHED = {
    "sqlite": [
        "CREATE TABLE moved (run_id TEXT, was TEXT, became TEXT)",
        f"CREATE TRIGGER moves AFTER UPDATE ON diagnosis_run WHEN {DIFFERS} BEGIN {NOTE} END",
    ],
    "postgresql": [
        "CREATE TABLE moved (run_id TEXT, was TEXT, became TEXT)",
        f"CREATE FUNCTION note_move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {NOTE} RETURN NEW; END $$",
        "CREATE TRIGGER moves AFTER UPDATE ON diagnosis_run FOR EACH ROW"
        f" WHEN ({DIFFERS}) EXECUTE FUNCTION note_move()",
    ],
}
"""Writes down every change of a Run's state or end, whoever makes it."""


class Unsteady:
    """Passes on; every use takes a moment, drawn from the seed."""

    def __init__(self, inner: Any, dice: random.Random) -> None:
        self._inner, self._dice = inner, dice

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def client(self, name: str | None) -> Unsteady:
        return self

    async def complete(self, request: ModelRequest) -> ModelReply:
        await self._moment()
        if request.component is Component.INTENT_ROUTER and HELLO in str(request.messages[-1].content):
            request = replace(request, round_=99)
        reply: ModelReply = await self._inner.complete(request)
        return reply

    async def run(self, request: Any, context: Any) -> Any:
        await self._moment()
        return await self._inner.run(request, context)

    async def _moment(self) -> None:
        await asyncio.sleep(self._dice.choice([0, 0, 0.001, 0.01, 0.05]))


def prepared(folder: Path, url: str | None) -> Any:
    """Write incident and answers; return the settings of every host."""
    settings = settings_of(folder, url, SCRIPT, stop_seconds=0.05, max_runs=200)
    routed = {f"INTENT_ROUTER/{number}": {"text": '{"intent": "DIAGNOSIS"}', "usage": [20, 2]} for number in (1, 2)}
    routed["INTENT_ROUTER/99"] = {"text": '{"intent": "SYSTEM_CHAT"}', "usage": [20, 2]}
    routed["SYSTEM_CHAT/1"] = {"text": "I diagnose.", "usage": [20, 2]}
    write_answers(folder / "answers.json", SCRIPT, **routed)
    return settings


@functools.cache
def _parts(catalog: Path, home: Path, url: str | None) -> Parts:
    return build_parts(Settings(catalog=catalog, home=home, database_url=url, language="en"), env={})  # type: ignore[arg-type]


def parts_of(settings: Settings) -> Parts:
    """Read catalogue and schemas once for all hosts of this process."""
    url = settings.database_url.get_secret_value() if settings.database_url else None
    return replace(_parts(settings.catalog, settings.home, url), settings=settings)


@dataclass
class Host:
    """What one process would be: an app of its own over the shared database, with manager and sweep."""

    app: App
    manager: RunManager
    passed: Counter[str] = field(default_factory=Counter)
    steps: int = 0

    def stepped(self, view: StepView) -> None:
        self.passed[view.run_id] = view.step_no
        self.steps += 1

    async def reached(self, run_id: str, step: int) -> None:
        """Wait until the Run has passed a step here, or is not carried here any more."""
        with self.manager.changes.watch(run_id) as changed:
            while run_id in self.manager.active and self.passed[run_id] < step:
                changed.clear()
                await changed.wait()


@asynccontextmanager
async def host(settings: Settings, seed: int, lease_seconds: float = 1.0, last: float = 30.0) -> AsyncIterator[Host]:
    """Open a host whose model and tools take their moments from `seed`."""
    dice = random.Random(seed)
    given = settings.model_copy(update={"lease_seconds": lease_seconds, "run_timeout_seconds": last})
    parts = parts_of(given)
    models: Any = Unsteady(read_recorded(settings.home.parent / "answers.json"), dice)
    tools = {name: Unsteady(tool, dice) for name, tool in parts.tools.items()}
    async with open_runs(replace(parts, models=models, tools=tools)) as app, open_checkpoints(given) as saver:
        app = replace(app, checkpointer=saver)
        async with open_manager(app) as manager:
            opened = Host(app, manager)
            manager._shown = opened.stepped
            yield opened


def staying(settings: Settings, seed: int) -> AbstractAsyncContextManager[Host]:
    """Open a host that no other takes a Run from, however slow the machine is: the race gets on."""
    return host(settings, seed, LAST_SECONDS, LAST_SECONDS)


def hurry() -> None:
    """Shorten what a service waits for, in this process."""
    service.recovery.SWEEP_SECONDS = 0.1
    service.runner.CANCEL_POLL_SECONDS = 0.1
    service.runner.WAIT_POLL_SECONDS = 0.1
    service.runner.GRACE_SECONDS = 0.1


@dataclass
class Race:
    """What was promised to whoever asked: ids of begun Runs, and of those whose cancel was acknowledged."""

    settings: Any
    dice: random.Random
    hosts: list[Host] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)

    async def run(self, number: int) -> None:
        """Begin a Run somewhere and disturb it at a random step."""
        dice = random.Random(self.dice.random())
        while True:
            at = dice.choice(self.hosts)
            try:
                asked = Question(HELLO if dice.random() < 0.6 else FAILURE, session_id=f"s-{number}")
                run_id = (await at.manager.start(asked)).run_id
                break
            except ServiceStopping:
                await asyncio.sleep(0.01)
        self.begun.append(run_id)
        if dice.random() < 0.6:
            await at.reached(run_id, dice.randint(0, STEPS))
            await asyncio.sleep(dice.choice([0, 0, 0.003, 0.01]))
            here = [at] if at in self.hosts else []
            await self._cancel(dice.choice([*here, *self.hosts]), run_id)
        await self.hosts[0].manager.wait(run_id)

    async def _cancel(self, asked: Host, run_id: str) -> None:
        self.asked.add(run_id)
        record = await asked.manager.cancel(run_id)
        assert record is not None
        if record.internal_state is RunState.CANCEL_REQUESTED:
            self.acknowledged.add(run_id)

    async def host(self, over: asyncio.Event, ready: asyncio.Event) -> None:
        """Be a process that is stopped and started again, until the race is over; its first life times its Runs out."""
        dice = random.Random(self.dice.random())
        last, most = 0.05, 40
        while not over.is_set():
            async with host(self.settings, dice.randrange(1 << 30), last=last) as opened:
                self.hosts.append(opened)
                ready.set()
                while opened.steps < most and not over.is_set():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                self.hosts.remove(opened)
            last, most = dice.choice([0.05, 0.8, 30.0, 30.0, 30.0]), dice.randint(1, 80)


async def raced(settings: Any, seed: int, runs: int, at_once: int) -> Race:
    """Let `runs` Runs begin over three hosts, one of which stays, and wait until each has ended."""
    race = Race(settings, random.Random(seed))
    over, room = asyncio.Event(), asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with room:
            await race.run(number)

    async with staying(settings, seed) as first:
        race.hosts.append(first)
        ready = [asyncio.Event() for _ in range(2)]
        others = [asyncio.create_task(race.host(over, each)) for each in ready]
        await asyncio.gather(*(each.wait() for each in ready))
        try:
            async with asyncio.timeout(LAST_SECONDS + 2 * runs):
                await asyncio.gather(*(one(number) for number in range(runs)))
        finally:
            over.set()
            await asyncio.gather(*others)
    return race


async def settled(settings: Any, engine: Database, seed: int) -> None:
    """Let one last service run until nothing is left to do, as any later start would."""
    left = text("SELECT count(*) FROM diagnosis_run WHERE ended_at IS NULL OR lease_until IS NOT NULL")
    async with staying(settings, seed), asyncio.timeout(LAST_SECONDS):
        while True:
            async with engine.connect() as connection:
                if not (await connection.execute(left)).scalar_one():
                    return
            await asyncio.sleep(0.1)


async def watched(engine: Database) -> None:
    async with engine.begin() as connection:
        for statement in WATCHED[engine.dialect.name]:
            await connection.exec_driver_sql(statement)


async def judged(app: App, engine: Database, begun: list[str], asked: set[str], acknowledged: set[str]) -> Counter[str]:
    """Hold every Run of the store against the rules; return how many ended in which state."""
    async with engine.connect() as connection:
        moved = [tuple(row) for row in await connection.execute(text("SELECT run_id, was, became FROM moved"))]
        held = list(
            (await connection.execute(text("SELECT run_id FROM diagnosis_run WHERE lease_until IS NOT NULL"))).scalars()
        )
    terminal = {state.value for state in TERMINAL}
    assert [each for each in moved if each[1] in terminal] == [], "an end was changed"
    ends = Counter(run_id for run_id, _, became in moved if became in terminal)
    records = {record.run_id: record for record in await app.runs.runs(100_000)}
    assert set(begun) <= set(records), "a Run is lost"
    assert held == [], "a lease is left"
    for run_id, record in records.items():
        trace = await app.journal.trace(run_id)
        told = Counter(row.type.value for row in trace)
        changes = [each[1:] for each in moved if each[0] == run_id]
        story = (run_id, record.internal_state.value, record.error_code, changes, [row.type.value for row in trace])
        assert record.internal_state in TERMINAL, (run_id, record.internal_state)
        assert ends[run_id] == 1, (run_id, record)
        assert record.session_lock is None, run_id
        if run_id in acknowledged:
            assert record.internal_state is RunState.CANCELLED, (run_id, record.internal_state)
        if record.internal_state is RunState.CANCELLED:
            released = (record.release_outcome, record.published_result, record.fallback)
            assert released == (ReleaseOutcome.NONE, None, None), run_id
            assert run_id in asked, ("nobody had cancelled it", story)
        assert [row.seq for row in trace] == list(range(1, len(trace) + 1)), story
        assert told["RUN_ENDED"] == 1, story
        assert told["RELEASE_DECIDED"] <= 1, story
        assert told["RUN_STARTED"] <= 1, story
        (ended,) = (row for row in trace if row.type.value == "RUN_ENDED")
        assert ended.fields["internal_state"] == record.internal_state.value, story
    return Counter(record.internal_state.value for record in records.values())


async def killed(settings: Any, seed: int, runs: int, promises: Path) -> None:
    """Carry Runs in this process until it is killed; write down what is promised."""
    dice = random.Random(seed)
    race = Race(settings, dice)
    with promises.open("a") as file:

        def promised(**told: str) -> None:
            file.write(json.dumps(told) + "\n")
            file.flush()

        async with host(settings, seed) as opened:
            race.hosts.append(opened)
            threading.Timer(dice.uniform(0.05, 1.5), os.kill, (os.getpid(), signal.SIGKILL)).start()

            async def one(number: int) -> None:
                asked = Question(FAILURE, session_id=f"k-{seed}-{number}")
                run_id = (await opened.manager.start(asked)).run_id
                promised(begun=run_id)
                if dice.random() < 0.5:
                    await opened.reached(run_id, dice.randint(0, STEPS))
                    promised(asked=run_id)
                    await race._cancel(opened, run_id)
                    if run_id in race.acknowledged:
                        promised(acknowledged=run_id)

            await asyncio.gather(*(one(number) for number in range(runs)))
            await asyncio.Event().wait()


def promises_of(folder: Path) -> dict[str, set[str]]:
    """Read what killed processes had promised: ids of Runs begun, asked to cancel, and acknowledged."""
    told = [json.loads(line) for line in (folder / "promises").read_text().splitlines()]
    return {name: {each[name] for each in told if name in each} for name in ("begun", "asked", "acknowledged")}


def main(folder: Path, url: str | None, seed: int, hosts: int, runs: int) -> None:
    (folder / "killed").mkdir()
    settings = prepared(folder / "killed", url).model_copy(update={"home": folder / "home"})
    hurry()
    for number in range(hosts):
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(killed(settings, seed + number, runs, folder / "promises"))
            finally:
                os._exit(1)
        status = os.waitpid(child, 0)[1]
        assert os.WIFSIGNALED(status), status


if __name__ == "__main__":
    main(Path(sys.argv[1]), None if sys.argv[2] == "-" else sys.argv[2], *map(int, sys.argv[3:]))
