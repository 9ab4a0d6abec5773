"""Kills the process of a Run with SIGKILL at every place where it writes something down, and lets another take it up.

    python -m tests.crash FOLDER URL-or-dash [PLACE...]

Prints one JSON object a line: first the undisturbed Run, then one for each kill. Without PLACEs every place is tried; a PLACE
is what a name of `Fuse.at` begins with. Children are forked off one warm process: they are processes of their own, and dying
ones run nothing on their way out.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodes.ports import ModelReply, ModelRequest
from service.app import App, open_app
from service.models.recorded import read_recorded
from service.recovery import recover
from service.runner import Question, RunManager
from service.settings import Settings
from service.store.clock import SystemClock
from tests.durable import QUESTION, SCRIPT, MovedClock
from tests.scenes import write_answers, write_scene

ROUTER = {"INTENT_ROUTER/1": {"text": '{"intent": "DIAGNOSIS"}', "usage": [20, 2]}}
CALLS = ("c1", "c2")


class Fuse:
    """Counts the places that are passed, writes their names down, and kills the process at one of them."""

    def __init__(self, log: Path, dies_at: int | None) -> None:
        self._log, self._dies_at, self._passed = log, dies_at, 0

    def at(self, name: str) -> None:
        self._passed += 1
        with self._log.open("a") as file:
            file.write(f"{name}\n")
        if self._passed == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)


class Fused:
    """Passes everything on; the named operations pass the fuse before and after."""

    def __init__(self, inner: Any, fuse: Fuse, label: str, *names: str) -> None:
        self._inner, self._fuse, self._label, self._names = inner, fuse, label, names

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if name not in self._names:
            return real

        async def fused(*arguments: Any, **options: Any) -> Any:
            place = f"{self._label}.{name} {getattr(arguments[0], 'key', '')}".strip()
            self._fuse.at(f"before {place}")
            result = await real(*arguments, **options)
            self._fuse.at(f"after {place}")
            return result

        return fused


class Logged:
    """A tool or a model whose every use leaves a line in a file."""

    def __init__(self, inner: Any, log: Path) -> None:
        self._inner, self._log = inner, log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def client(self, name: str | None) -> Logged:
        return self

    async def complete(self, request: ModelRequest) -> ModelReply:
        self._note(f"{request.component.value}/{request.round_}")
        reply: ModelReply = await self._inner.complete(request)
        return reply

    async def run(self, request: Any, context: Any) -> Any:
        self._note(request.query)
        return await self._inner.run(request, context)

    def _note(self, line: str) -> None:
        with self._log.open("a") as file:
            file.write(f"{line}\n")


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@asynccontextmanager
async def opened(folder: Path, url: str | None, dies_at: int | None, ahead: float) -> AsyncIterator[App]:
    """Open the whole stack over `folder`, with its fuse."""
    answers = folder / "answers.json"
    settings = Settings(
        catalog=folder / "superbiz.toml",
        home=folder / "home",
        model=f"scripted:{answers}",
        language="en",
        database_url=url,  # type: ignore[arg-type]
    )
    fuse = Fuse(folder / "places", dies_at)
    async with open_app(settings, env={}) as app:
        saver: Any = app.checkpointer
        for name in ("aput",):
            setattr(saver, name, _fused(getattr(saver, name), fuse, f"checkpoint.{name}"))
        journal = Fused(app.journal, fuse, "journal", "write")
        runs = Fused(app.runs, fuse, "runs", "create", "transition")
        resources = replace(
            app.resources,
            models=Logged(read_recorded(answers), folder / "asked"),
            tools={name: Logged(tool, folder / "ran") for name, tool in app.resources.tools.items()},
            canonical=Fused(app.resources.canonical, fuse, "canonical", "begin", "finish"),
            runs=runs,
            journal=journal,
            clock=MovedClock(SystemClock(), ahead),
        )
        yield replace(app, resources=resources, runs=runs, journal=journal)  # type: ignore[arg-type]


def _fused(real: Any, fuse: Fuse, name: str) -> Any:
    async def fused(*arguments: Any, **options: Any) -> Any:
        fuse.at(f"before {name}")
        result = await real(*arguments, **options)
        fuse.at(f"after {name}")
        return result

    return fused


async def run(folder: Path, url: str | None, dies_at: int | None) -> None:
    """Ask the question and follow the Run to its end, or to the kill."""
    async with opened(folder, url, dies_at, 0.0) as app, RunManager(app, max_runs=1) as manager:
        await manager.start(Question(QUESTION, session_id=folder.name, owner="alice"))
        await left_to_itself(manager)
        (folder / "summary").write_text(json.dumps(await summary(app, folder)))


async def left_to_itself(manager: RunManager) -> None:
    """Wait until the manager's tasks are over: a Run ends a moment before its trace does."""
    while manager.active:  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def resume(folder: Path, url: str | None) -> None:
    """Start as a process that finds what another has left; tell what there was, and what became of it."""
    asked, ran = lines(folder / "asked"), lines(folder / "ran")
    async with opened(folder, url, None, 61.0) as app, RunManager(app, max_runs=1) as manager:
        left = await app.runs.runs(2, session_id=folder.name)
        found: dict[str, Any] = {"runs_left": len(left), "archived": [], "ready": []}
        for record in left:
            found["archived"] = sorted(await app.journal.archived(record.run_id, "model_answer"))
            held = [await app.resources.canonical.get(record.run_id, call) for call in CALLS]
            found["ready"] = [each.request["query"] for each in held if each and each.status == "READY"]
        for takeover in await recover(app, 1):
            await manager.take_up(takeover)
            await left_to_itself(manager)
        after = await summary(app, folder)
    found |= {"asked_again": lines(folder / "asked")[len(asked) :], "ran_again": lines(folder / "ran")[len(ran) :]}
    (folder / "summary").write_text(json.dumps({**found, **after}))


async def summary(app: App, folder: Path) -> dict[str, Any]:
    """What a Run left behind that must not depend on where its process died."""
    (record,) = await app.runs.runs(2, session_id=folder.name) or (None,)
    if record is None:
        return {"record": None}
    trace = await app.journal.trace(record.run_id)
    return {
        "record": {
            "state": record.internal_state.value,
            "outcome": record.release_outcome.value,
            "result": record.published_result,
            "usage": record.usage,
            "owner": record.owner,
            "lock": record.session_lock,
        },
        "events": [[row.type.value, dict(row.fields)] for row in trace],
        "steps": [
            [step.round_, step.kind, list(step.tool_call_ids)] for step in await app.journal.steps(record.run_id)
        ],
        "result": await app.journal.archived(record.run_id, "result"),
    }


def forked(work: Any) -> int:
    """Run `work` in a process of its own; return its wait status."""
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(work)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    work.close()
    return os.waitpid(child, 0)[1]


def prepared(folder: Path) -> Path:
    folder.mkdir(parents=True)
    write_scene(folder)
    write_answers(folder / "answers.json", SCRIPT, **ROUTER)
    return folder


def main(root: Path, url: str | None, wanted: list[str]) -> None:
    """Print the undisturbed Run and every disturbed one."""
    whole = prepared(root / "whole")
    assert forked(run(whole, url, None)) == 0
    places = lines(whole / "places")
    print(json.dumps({"place": "", **json.loads((whole / "summary").read_text())}), flush=True)
    for number, place in enumerate(places, start=1):
        if wanted and not any(place.startswith(each) for each in wanted):
            continue
        folder = prepared(root / f"killed-{number}")
        status = forked(run(folder, url, number))
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert forked(resume(folder, url)) == 0, place
        told = json.loads((folder / "summary").read_text())
        print(json.dumps({"place": place, "number": number, "killed": killed, **told}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), None if sys.argv[2] == "-" else sys.argv[2], sys.argv[3:])
