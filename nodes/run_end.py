"""The end of a Run that publishes nothing, written once by compare-and-set together with its last event (R8, R94, R108)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graph.contract import RunState, TraceEvent, TraceEventType
from nodes.events import event
from nodes.ports import ArchiveEntry, Journal, JournalBatch, RunEnd, RunStore
from nodes.usage import end_fields
from release.contract import ReleaseOutcome

LIVE = frozenset({RunState.CREATED, RunState.RUNNING, RunState.CANCEL_REQUESTED})


async def end_without_result(
    runs: RunStore,
    journal: Journal,
    run_id: str,
    state: RunState,
    code: str,
    at: float,
    *,
    usage: dict[str, Any] | None = None,
    expected: frozenset[RunState] = LIVE,
    events: Sequence[TraceEvent] = (),
    archive: Sequence[ArchiveEntry] = (),
    holder: str | None = None,
) -> bool:
    """Move the Run from one of `expected` to `state` at `at` (epoch seconds); False when another end won.

    A Run whose cancel was acknowledged ends as CANCELLED, whatever was to end it (R120).
    `usage` is what it had spent by then; None or empty where that is not known. `events` go before the last one, `archive`
    is stored with them. `holder` is the execution that ends it: a Run that another has taken over is not its to end (R3).
    """
    totals = end_fields(usage) if usage else {}
    end = RunEnd(
        release_outcome=ReleaseOutcome.NONE,
        ended_at=at,
        error_code=code,
        total_token_count=usage["total_tokens"] if usage else 0,
        usage=usage or {},
    )
    asked = frozenset({RunState.CANCEL_REQUESTED})
    first = expected if state is RunState.CANCELLED else expected - asked
    moved = await runs.transition(run_id, first, state, end, holder=holder)
    if not moved and asked <= expected and state is not RunState.CANCELLED:
        state, code = RunState.CANCELLED, "CANCELLED"
        moved = await runs.transition(run_id, asked, state, replace(end, error_code=code), holder=holder)
    if moved:
        ended = event(TraceEventType.RUN_ENDED, internal_state=state.value, **totals)
        key = f"end:{code.lower()}"
        await journal.write(JournalBatch(run_id=run_id, key=key, at=at, events=[*events, ended], archive=archive))
    return moved
