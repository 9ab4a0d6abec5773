"""The exact-run end-to-end check on each store, and that it can fail: one changed row of any source is named (R148, R154)."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.app import App, open_app
from tests.durable import url_of
from tests.e2e.agreement import disagreements
from tests.e2e.check import CASES, SCRIPTED, Case, Place, asking, judged
from tests.e2e.script import write_script
from tests.e2e.sources import Sources, collect
from tests.redis_server import SERVER_URL, leased_database


async def agree(place: Place, model: dict[str, str], cases: tuple[Case, ...]) -> list[Sources]:
    """Ask, and hold every Run to its case."""
    found = list[Sources]()
    async with asking(place, model) as service:
        for case in cases:
            sources = await service.ask(case.question)
            assert judged(case, sources) == [], case.question
            found.append(sources)
    return found


async def test_r154_one_run_of_each_intent_is_the_same_in_every_source(tmp_path: Path) -> None:
    await agree(Place(tmp_path / "home"), {}, CASES)


async def test_r154_on_postgresql_and_redis(tmp_path: Path) -> None:
    with leased_database() as number:
        place = Place(tmp_path / "home", await url_of("postgres", "e2e"), f"{SERVER_URL}/{number}")
        (scripted,) = await agree(place, {"SUPERBIZ_MODEL": write_script(tmp_path)}, (SCRIPTED,))
        assert not (tmp_path / "home" / "superbiz.db").exists()
        assert len(scripted.records) == 3


@pytest.mark.slow
async def test_r154_each_intent_on_postgresql_and_redis(tmp_path: Path) -> None:
    with leased_database() as number:
        place = Place(tmp_path / "home", await url_of("postgres", "e2e"), f"{SERVER_URL}/{number}")
        await agree(place, {}, CASES)


TABLES = (
    "diagnosis_run",
    "diagnosis_trace_event",
    "agent_step",
    "canonical_record",
    "run_archive",
    "journal_batch",
    "journal_cursor",
)


class Left:
    """A Run that a service has left in SQLite files, where somebody changes a row and changes it back."""

    def __init__(self, app: App, whole: Sources) -> None:
        self.app, self.whole = app, whole
        self._home = app.settings.home
        with self._opened("kept.db") as kept, self._opened("superbiz.db") as now:
            now.backup(kept)

    async def disagreements(self) -> list[str]:
        whole = self.whole
        return disagreements(
            await collect(self.app, whole.question, list(whole.events), whole.sse, "\n".join(whole.log))
        )

    def change(self, statement: str) -> None:
        with self._opened("superbiz.db") as database:
            assert database.execute(statement.replace(":run", f"'{self.whole.run_id}'")).rowcount > 0, statement
            database.commit()

    def change_back(self) -> None:
        with self._opened("superbiz.db") as database:
            database.execute("ATTACH DATABASE ? AS kept", (str(self._home / "kept.db"),))
            for table in TABLES:
                database.execute(f"DELETE FROM {table}")
                database.execute(f"INSERT INTO {table} SELECT * FROM kept.{table}")
            database.commit()

    async def change_checkpoint(self, channel: str, value: Any) -> None:
        saver: Any = self.app.checkpointer
        found = await saver.aget_tuple({"configurable": {"thread_id": self.whole.run_id, "checkpoint_ns": ""}})
        found.checkpoint["channel_values"][channel] = value
        kind, blob = saver.serde.dumps_typed(found.checkpoint)
        with self._opened("checkpoints.db") as database:
            place = (self.whole.run_id, found.checkpoint["id"])
            done = database.execute(
                "UPDATE checkpoints SET type = ?, checkpoint = ? "
                "WHERE thread_id = ? AND checkpoint_ns = '' AND checkpoint_id = ?",
                (kind, blob, *place),
            )
            assert done.rowcount == 1
            database.commit()

    def _opened(self, name: str) -> contextlib.closing[sqlite3.Connection]:
        return contextlib.closing(sqlite3.connect(self._home / name, timeout=10))


ROWS = [
    ("UPDATE diagnosis_run SET total_token_count = total_token_count + 1 WHERE run_id = :run", "tokens: "),
    ("UPDATE diagnosis_run SET query = 'another' WHERE run_id = :run", "query: "),
    ("UPDATE diagnosis_run SET intent = 'SYSTEM_CHAT' WHERE run_id = :run", "intent: "),
    ("UPDATE diagnosis_run SET release_outcome = 'FALLBACK' WHERE run_id = :run", "outcome: "),
    ("UPDATE diagnosis_run SET status = 'FAILED' WHERE run_id = :run", "status: "),
    (
        "UPDATE diagnosis_run SET published_result = json_set(published_result, '$.conclusion', 'x') WHERE run_id = :run",
        "published result: ",
    ),
    ("DELETE FROM diagnosis_trace_event WHERE run_id = :run AND seq = 5", "seq: "),
    (
        "UPDATE diagnosis_trace_event SET fields = json_set(fields, '$.total_tokens', 9) "
        "WHERE run_id = :run AND type = 'MODEL_CALL' AND json_extract(fields, '$.total_tokens') = 110",
        "tokens: ",
    ),
    (
        "UPDATE diagnosis_trace_event SET fields = json_set(fields, '$.tokens_reconciled', json('true')) "
        "WHERE run_id = :run AND type = 'RUN_ENDED'",
        "tokens reconciled: ",
    ),
    (
        "UPDATE agent_step SET token_count = 0 WHERE run_id = :run AND token_count IS NULL",
        "token count of agent step 2: ",
    ),
    ("UPDATE agent_step SET tool_call_ids = '[\"s9\"]' WHERE run_id = :run AND position = 1", "asked calls: "),
    ("DELETE FROM agent_step WHERE run_id = :run AND position = 5", "agent step count: "),
    ("DELETE FROM canonical_record WHERE key = 'harness:canonical:' || :run || ':s1'", "citation: "),
    (
        "UPDATE canonical_record SET payload = replace(payload, 'PaymentPool', 'another') "
        "WHERE key = 'harness:canonical:' || :run || ':s1'",
        "citation: ",
    ),
    (
        "INSERT INTO canonical_record SELECT key || 'x', status, payload, expires_at FROM canonical_record "
        "WHERE key = 'harness:canonical:' || :run || ':s1'",
        "canonical keys: ",
    ),
    ("DELETE FROM run_archive WHERE run_id = :run AND kind = 'model_answer' AND key = 'DIAGNOSIS_AGENT/3'", "rounds: "),
    (
        "UPDATE run_archive SET payload = json_set(payload, '$.reason', 'FAULT') WHERE run_id = :run AND kind = 'result'",
        "reason: ",
    ),
    ("DELETE FROM journal_batch WHERE run_id = :run AND key LIKE '0007:%'", "steps: "),
    ("UPDATE journal_cursor SET last_seq = last_seq + 1 WHERE run_id = :run", "last seq: "),
]

CHANNELS: list[tuple[str, Any, str]] = [
    ("release_outcome", "FALLBACK", "outcome: "),
    ("published_result", None, "published result: "),
    ("query", "another", "query: "),
    ("budget", {"model_calls": 8, "tool_calls": 3, "tokens": 1, "observation_bytes": 1}, "tokens: "),
    ("position", {"turn": 5, "step": 3}, "position: "),
]
STREAM: list[tuple[Callable[[Any], Any], str]] = [
    (lambda s: replace(s, events=s.events[:3] + s.events[4:]), "stages: "),
    (lambda s: replace(s, events=(*s.events, s.events[-1])), "stream: "),
    (lambda s: replace(s, events=tuple(e for e in s.events if e.event != "content")), "content: "),
    (lambda s: replace(s, sse=s.sse + "budget_total_tokens"), "stream: tells the operator's"),
    (lambda s: replace(s, diagnosis={**s.diagnosis, "tracker_index": []}), "tool calls: "),
    (lambda s: replace(s, log=s.log[:-1]), "end: "),
    (lambda s: replace(s, log=(*s.log, s.question)), "log: tells"),
    (lambda s: replace(s, log=tuple(line.replace("CONCLUSION", "CHAT") for line in s.log)), "outcome: "),
]


async def test_r154_a_change_in_any_source_is_named(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    # One of the scripted answers came without usage: a gap, and not reconciled (R116).
    (whole,) = await agree(place, {"SUPERBIZ_MODEL": write_script(tmp_path, gaps=True)}, (SCRIPTED,))
    assert whole.run["usage"]["tokens_reconciled"] is False
    for change, named in STREAM:
        assert_named(named, disagreements(change(whole)))
    async with open_app(place.settings(), env={}) as app:
        left = Left(app, whole)
        for statement, named in ROWS:
            left.change(statement)
            assert_named(named, await left.disagreements())
            left.change_back()
        assert await left.disagreements() == []
        for channel, value, named in CHANNELS:
            await left.change_checkpoint(channel, value)
            assert_named(named, await left.disagreements())
            await left.change_checkpoint(channel, whole.chat[channel])
        assert await left.disagreements() == []


def assert_named(named: str, told: list[str]) -> None:
    assert any(line.startswith(named) for line in told), (named, told)
