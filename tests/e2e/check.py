"""The exact-run end-to-end check (R148, R154): ask a served process by HTTP, then compare every source of that one Run.

    python -m tests.e2e.check [--servers | --database URL --redis URL] [--question TEXT ...] [--live]

Starts `superbiz serve` on the example shop with the offline model and asks it questions of each intent; then once more with
a scripted model, so that tokens are counted. `--live` asks the model that SUPERBIZ_MODEL and its key configure instead. Exits
with 1 and one line per disagreement when two sources of a Run do not say the same.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from service.app import App, open_app
from service.settings import Settings, load_settings
from tests.durable import url_of
from tests.e2e.agreement import disagreements
from tests.e2e.script import SCRIPTED_QUESTION, write_script
from tests.e2e.sources import Sources, collect, log_with_end
from tests.http_service import SHOP, process, watching
from tests.redis_server import SERVER_URL, leased_database

LIVE = (
    "SUPERBIZ_MODEL",
    "SUPERBIZ_API_KEY",
    "SUPERBIZ_BASE_URL",
    "SUPERBIZ_MODEL_PROFILE",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
)


@dataclass(frozen=True)
class Case:
    """A question, and what its Run must come to; empty where only the agreement counts."""

    question: str
    intent: str = ""
    outcome: str = ""


CASES = (
    Case("顾客说付款之后订单还是待支付，结算页一直报错，究竟是什么原因？", "DIAGNOSIS", "CONCLUSION"),
    Case("用户反馈短信验证码收不到，帮忙排查一下原因。", "DIAGNOSIS", "FALLBACK"),
    Case("回滚一次配置变更应该怎么操作？", "KNOWLEDGE_QUERY", "KNOWLEDGE_ANSWER"),
    Case("请问你都能做些什么？", "SYSTEM_CHAT", "CHAT"),
)
SCRIPTED = Case(SCRIPTED_QUESTION, "DIAGNOSIS", "CONCLUSION")


@dataclass(frozen=True)
class Place:
    """Where a service keeps its data."""

    home: Path
    database: str | None = None
    redis: str | None = None
    catalog: Path = SHOP

    def environment(self, model: dict[str, str]) -> dict[str, str]:
        """Variables of the served process."""
        env = {"SUPERBIZ_DATABASE_URL": self.database, "SUPERBIZ_REDIS_URL": self.redis, **model}
        return {"SUPERBIZ_HOME": str(self.home), **{name: value for name, value in env.items() if value}}

    def settings(self) -> Settings:
        """Settings that read the same data, with no model of their own."""
        return load_settings(
            home=self.home, catalog=self.catalog, database_url=self.database, redis_url=self.redis, model="offline"
        )


class Asking:
    """A served process, and what a client and an operator see of it."""

    def __init__(self, app: App, url: str, log: Path) -> None:
        self._app, self._url, self._log = app, url, log

    async def ask(self, question: str) -> Sources:
        """Ask, read the stream to its end, and collect what the Run has left."""
        async with (
            httpx.AsyncClient(base_url=self._url, timeout=330) as client,
            watching(client, "POST", "/api/chat_stream", json={"Question": question}) as stream,
        ):
            events = [event async for event in stream.events()]
        log = await log_with_end(self._log, events)
        return await collect(self._app, question, events, "\n".join(stream.lines), log)


@asynccontextmanager
async def asking(place: Place, model: dict[str, str]) -> AsyncIterator[Asking]:
    """Serve the example shop in a process of its own."""
    place.home.mkdir(parents=True, exist_ok=True)
    log = place.home.parent / f"{place.home.name}.log"
    with process(place.home.parent, log, **place.environment(model)) as (running, url):
        async with open_app(place.settings(), env={}) as app:
            yield Asking(app, url, log)
        running.terminate()
        await asyncio.to_thread(running.wait, 30)


def judged(case: Case, sources: Sources) -> list[str]:
    """Return what is wrong with a Run: where it did not come to what it must, and where its sources disagree."""
    wrong = disagreements(sources)
    for name, wanted, got in (
        ("intent", case.intent, sources.run["intent"]),
        ("outcome", case.outcome, sources.run["release_outcome"]),
    ):
        if wanted and wanted != got:
            wrong.append(f"expected {name}: {wanted}, got {got}")
    return wrong


async def check(place: Place, model: dict[str, str], cases: Sequence[Case]) -> bool:
    """Ask each question of one served process; print what came of it; say whether everything agrees."""
    agrees = True
    async with asking(place, model) as service:
        for case in cases:
            sources = await service.ask(case.question)
            wrong = judged(case, sources)
            agrees = agrees and not wrong
            print(*[account(sources, wrong), *(f"  {line}" for line in wrong)], sep="\n", flush=True)
    return agrees


def account(sources: Sources, wrong: Sequence[str]) -> str:
    """Say in one line what was compared."""
    run = sources.run
    return (
        f"{'disagrees' if wrong else 'agrees'}: run {sources.run_id} {run['intent']} {run['release_outcome']}: "
        f"{len(sources.events)} stream events, {len(sources.trace)} trace events, {len(sources.steps)} agent steps, "
        f"{len(sources.records)} records, {len(sources.positions)} steps with checkpoints, {run['total_token_count']} tokens: "
        f"{sources.question}"
    )


async def main(arguments: argparse.Namespace) -> int:
    """Check; return 0 when everything agrees."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        root = Path(folder)
        place = Place(root / "home", arguments.database, arguments.redis)
        if arguments.servers:
            number = stack.enter_context(leased_database())
            place = Place(root / "home", await url_of("postgres", "check"), f"{SERVER_URL}/{number}")
        questions = [Case(text) for text in arguments.question]
        if arguments.live:
            model = {name: os.environ[name] for name in LIVE if name in os.environ}
            return 0 if await check(place, model, questions or [Case(case.question) for case in CASES]) else 1
        agrees = await check(place, {}, questions or CASES)
        scripted = await check(place, {"SUPERBIZ_MODEL": write_script(root)}, [SCRIPTED])
        return 0 if agrees and scripted else 1


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    made = argparse.ArgumentParser(prog="python -m tests.e2e.check", description="The exact-run end-to-end check.")
    made.add_argument("--servers", action="store_true", help="the servers of the tests, in databases of their own")
    made.add_argument("--database", help="PostgreSQL URL of an empty database; default: an SQLite file")
    made.add_argument("--redis", help="Redis URL for canonical records; default: the database")
    made.add_argument("--question", action="append", default=[], help="ask this instead; may be repeated")
    made.add_argument("--live", action="store_true", help="ask the model that SUPERBIZ_MODEL configures")
    return made


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parser().parse_args())))
