"""Rules of a Run's life that every run store shares (R8, R9). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from graph.contract import PublicStatus, RunState
from nodes.ports import TERMINAL as TERMINAL
from nodes.ports import RunEnd
from release.contract import ReleaseOutcome

_STATUS = {
    RunState.CREATED: PublicStatus.RUNNING,
    RunState.RUNNING: PublicStatus.RUNNING,
    RunState.CANCEL_REQUESTED: PublicStatus.RUNNING,
    RunState.SUCCESS: PublicStatus.SUCCESS,
    RunState.FAILED: PublicStatus.FAILED,
    RunState.CANCELLED: PublicStatus.CANCELLED,
    RunState.TIMED_OUT: PublicStatus.FAILED,
    RunState.BUDGET_EXHAUSTED: PublicStatus.FAILED,
}


def public_status(state: RunState, release_outcome: ReleaseOutcome) -> PublicStatus:
    """Return the status that leaves the system (R9). Pure.

    A Run that its budget ended is a success when it published a fallback, otherwise a failure.
    """
    if state is RunState.BUDGET_EXHAUSTED and release_outcome is ReleaseOutcome.FALLBACK:
        return PublicStatus.SUCCESS
    return _STATUS[state]


def leaving(expected: frozenset[RunState], to: RunState, end: RunEnd | None) -> frozenset[RunState]:
    """Return the states a transition may start from: those expected that are not terminal (R8).

    Raises ValueError when `end` comes with a state that is no end.
    """
    if end is not None and to not in TERMINAL:
        raise ValueError("end: allowed only with a terminal state")
    return expected - TERMINAL


def plain(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Copy JSON data, so that store and caller share nothing; empty becomes None."""
    return json.loads(json.dumps(dict(value))) if value else None
