"""Any sequence of calls gives the same answers from the in-memory and the SQL stores (R8, R9, R99)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from graph.contract import Intent, RunState, TraceEvent, TraceEventType
from nodes.ports import AgentStepRow, ArchiveEntry, JournalBatch, RunEnd, RunRecord, SessionBusy
from release.contract import ReleaseOutcome
from service.store.clock import FixedClock
from service.store.engine import open_database, sqlite_url
from service.store.journal import SqlJournal
from service.store.memory import InMemoryJournal, InMemoryRunStore
from service.store.runs import SqlRunStore

RUN_IDS = st.sampled_from(["run-1", "run-2", "run-3"])
SESSIONS = st.sampled_from(["s-1", "s-2", None])
OWNERS = st.sampled_from(["alice", None])
EXECUTIONS = st.sampled_from(["e-1", "e-2"])
TIMES = st.integers(0, 50).map(float)
STATES = st.sampled_from(list(RunState))
JSON = st.none() | st.dictionaries(st.text(max_size=4), st.none() | st.integers(0, 9) | st.text(max_size=4), max_size=2)
ENDS = st.none() | st.builds(
    RunEnd,
    release_outcome=st.sampled_from(list(ReleaseOutcome)),
    ended_at=TIMES,
    published_result=JSON,
    fallback=JSON,
    stop_reason=st.none() | st.just("INFORMATION_SATURATED"),
    total_token_count=st.integers(0, 2**40),
    usage=st.just({}) | st.just({"model_calls": 2}),
)
BATCHES = st.builds(
    JournalBatch,
    run_id=RUN_IDS,
    key=st.sampled_from(["1:a", "2:b", "3:c", "4:d"]),
    at=TIMES,
    events=st.lists(
        st.builds(
            TraceEvent,
            type=st.sampled_from([TraceEventType.SEMANTIC_GUARD, TraceEventType.RUN_ENDED]),
            fields=st.dictionaries(
                st.sampled_from(["verdict", "attempt", "model_calls", "prompt"]),
                st.integers(-1, 3) | st.text(max_size=3),
            ),
        ),
        max_size=3,
    ),
    steps=st.lists(
        st.builds(AgentStepRow, st.integers(1, 3), st.just("DRAFT"), st.just(("c",)), st.none()), max_size=2
    ),
    archive=st.lists(
        st.builds(
            ArchiveEntry, st.sampled_from(["clock", "id"]), st.sampled_from("ab"), st.just({"v": 1}) | st.just({})
        ),
        max_size=3,
    ),
)


class StoresAgree(RuleBasedStateMachine):
    """Drives both kinds of stores with the same calls."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FixedClock(0.0)
        self.engine = self._do(open_database(sqlite_url(Path(self.folder.name) / "runs.db")))
        self.sql, self.memory = SqlRunStore(self.engine), InMemoryRunStore()
        self.sql_journal = SqlJournal(self.engine, self.clock, archive_days=10 / 86_400)
        self.memory_journal = InMemoryJournal(self.clock, archive_days=10 / 86_400, strict=False)

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def _same(self, name: str, *arguments: Any) -> None:
        sql, memory = (getattr(store, name)(*arguments) for store in (self.sql, self.memory))
        try:
            expected = self._do(memory)
        except (ValueError, SessionBusy) as error:
            expected = type(error)
        try:
            actual = self._do(sql)
        except (ValueError, SessionBusy) as error:
            actual = type(error)
        assert actual == expected, name

    @rule(
        run_id=RUN_IDS,
        session=SESSIONS,
        created=TIMES,
        intent=st.sampled_from([None, *Intent]),
        query=st.text(max_size=5),
        owner=OWNERS,
        lock=st.sampled_from(["l-1", "l-2", None]),
    )
    def create(
        self,
        run_id: str,
        session: str | None,
        created: float,
        intent: Intent | None,
        query: str,
        owner: str | None,
        lock: str | None,
    ) -> None:
        run = RunRecord(
            run_id, query, session, RunState.CREATED, created, intent=intent, owner=owner, session_lock=lock
        )
        self._same("create", run)

    @rule(run_id=RUN_IDS, expected=st.frozensets(STATES), to=STATES, end=ENDS)
    def transition(self, run_id: str, expected: frozenset[RunState], to: RunState, end: RunEnd | None) -> None:
        self._same("transition", run_id, expected, to, end)

    @rule(run_id=RUN_IDS, execution=EXECUTIONS, now=TIMES, until=TIMES, force=st.booleans())
    def take_lease(self, run_id: str, execution: str, now: float, until: float, force: bool) -> None:
        self._same("take_lease", run_id, execution, now, until, force)

    @rule(run_id=RUN_IDS, execution=EXECUTIONS, told=st.booleans())
    def release_lease(self, run_id: str, execution: str, told: bool) -> None:
        self._same("release_lease", run_id, execution, told)

    @rule(run_id=RUN_IDS, intent=st.sampled_from(list(Intent)))
    def set_intent(self, run_id: str, intent: Intent) -> None:
        self._same("set_intent", run_id, intent)

    @rule(batch=BATCHES)
    def write(self, batch: JournalBatch) -> None:
        for journal in (self.sql_journal, self.memory_journal):
            self._do(journal.write(batch))

    @rule(seconds=st.integers(0, 5))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(float(seconds))

    @rule(now=TIMES)
    def purge(self, now: float) -> None:
        assert self._do(self.sql_journal.purge(now)) == self._do(self.memory_journal.purge(now))

    @rule(now=TIMES, session=SESSIONS, run_id=RUN_IDS, owner=OWNERS)
    def look(self, now: float, session: str | None, run_id: str, owner: str | None) -> None:
        self._same("runs", 2, session, owner)
        self._same("previous_turn", session or "s-1", owner)
        self._same("active", session or "s-1", owner)
        self._same("abandoned", now)
        for kind in ("clock", "id"):
            one = [self._do(j.archived_one(run_id, kind, "a")) for j in (self.sql_journal, self.memory_journal)]
            assert one[0] == one[1], kind
        for read in ("trace", "steps", "archive"):
            sql, memory = (getattr(journal, read)(run_id) for journal in (self.sql_journal, self.memory_journal))
            assert self._do(sql) == self._do(memory), read

    @invariant()
    def runs_agree(self) -> None:
        self._same("runs", 9)

    def teardown(self) -> None:
        self._do(self.engine.dispose())
        self.loop.close()
        self.folder.cleanup()


StoresAgree.TestCase.settings = settings(
    # 20 of the suite's 100: each opens a database. SUPERBIZ_HYPOTHESIS=thorough makes it 400.
    max_examples=settings.default.max_examples // 5,  # type: ignore[union-attr]
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow],
)
TestStoresAgree = StoresAgree.TestCase
