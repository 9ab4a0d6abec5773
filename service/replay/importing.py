"""From a bundle into run store and journal: an archived Run, marked as imported, that show, trace and replay read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from graph.contract import TraceEvent, TraceEventType
from nodes.ports import AgentStepRow, ArchiveEntry, JournalBatch, RunRecord
from service.replay.bundle import Bundle
from service.replay.export import IMPORTED, ReadsJournal, export_run
from service.replay.text import BundleError

ARCHIVED = frozenset(
    {
        "question",
        "settings",
        "fork",
        "step",
        "clock",
        "id",
        "outside",
        "system",
        "model_answer",
        "agent_result",
        "result",
    }
)


class TakesRuns(Protocol):
    """What import needs of a run store."""

    async def create(self, run: RunRecord) -> bool:
        """Insert; False when the run_id exists already."""

    async def get(self, run_id: str) -> RunRecord | None:
        """Return the Run or None."""


class TakesJournal(ReadsJournal, Protocol):
    """What import needs of a journal."""

    async def write(self, batch: JournalBatch) -> None:
        """Store the batch; idempotent by (run_id, key)."""


async def import_bundle(bundle: Bundle, runs: TakesRuns, journal: TakesJournal, now: float) -> bool:
    """Store the bundle's Run; False when this very Run is there already.

    `now` is seconds since the epoch: from then on the archive lives as long as any other. Running it again completes an
    import that was interrupted. Raises BundleError when another Run has this id.
    """
    held = await runs.get(bundle.run_id)
    if held is not None and not await _is_same(bundle, held, journal):
        raise BundleError(f"run {bundle.run_id}: exists here with other content; it was left as it is")
    # The archive comes first: a Run that is listed is whole.
    for batch in _batches(bundle, now):
        await journal.write(batch)
    if not await _is_same(bundle, _record(bundle), journal):
        raise BundleError(f"run {bundle.run_id}: the journal here holds other entries of this run; it is not listed")
    return await runs.create(_record(bundle))


async def _is_same(bundle: Bundle, held: RunRecord, journal: ReadsJournal) -> bool:
    try:
        return (await export_run(held, journal)).digest == bundle.digest
    except BundleError:
        return False


def _batches(bundle: Bundle, now: float) -> Iterator[JournalBatch]:
    """Write the trace under the keys of its nodes, then everything else at once."""
    run_id = bundle.run_id
    events: dict[str, list[TraceEvent]] = {}
    times: dict[str, float] = {}
    for row in bundle.trace:
        key = row["node"] or f"outside:{row['seq']}"
        # What the trace had refused is refused, and counted, again.
        refused = {f"refused {number}": None for number in range(row["fields_refused"])}
        fields = {**row["fields"], **refused}
        events.setdefault(key, []).append(TraceEvent(type=TraceEventType(row["type"]), fields=fields))
        times[key] = row["at"]
    for key in bundle.path:
        if key not in events:
            times[key] = (bundle.by_kind["clock"].get(key) or {}).get("readings", [bundle.run.created_at])[-1]
    order = [*dict.fromkeys(row["node"] or f"outside:{row['seq']}" for row in bundle.trace)]
    for key in [*order, *(key for key in bundle.path if key not in events)]:
        yield JournalBatch(run_id, key, times[key], events=events.get(key, ()))
    steps = [
        AgentStepRow(row["round"], row["kind"], tuple(row["tool_call_ids"]), row["token_count"])
        for row in bundle.by_kind["agent_step"].values()
    ]
    archive = [ArchiveEntry(each.kind, each.key, each.payload) for each in bundle.entries if each.kind in ARCHIVED]
    mark = ArchiveEntry(IMPORTED, IMPORTED, {"digest": bundle.digest, "at": now})
    yield JournalBatch(run_id, "import", now, steps=steps, archive=[*archive, mark])


def _record(bundle: Bundle) -> RunRecord:
    run = bundle.run
    return RunRecord(
        run_id=run.run_id,
        query=run.query,
        # No session here: another machine's Run must not become the previous turn of a session of this one (R99).
        session_id=None,
        internal_state=run.internal_state,
        created_at=run.created_at,
        execution_id=IMPORTED if run.has_execution else None,
        forked_from=run.forked_from,
        intent=run.intent,
        release_outcome=run.release_outcome,
        published_result=run.published_result,
        fallback=run.fallback,
        stop_reason=run.stop_reason,
        error_code=run.error_code,
        total_token_count=run.total_token_count,
        usage=run.usage,
        ended_at=run.ended_at,
    )
