"""A finished Run entered again becomes a new Run with its own copy of the evidence (R3, R67)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.types import Overwrite

from graph.contract import Intent
from graph.state import load_budget, load_ledger, load_tracker
from nodes.contract import RunSettings
from nodes.ports import ArchiveEntry, Resources
from release.answers.contract import LOOKUP_ID
from tools.canonical.store import CanonicalRecordTooLarge, CanonicalStoreUnavailable, canonical_key
from tools.contract import CanonicalRecord, EvidenceStatus, InvocationStatus, ToolErrorCode

logger = logging.getLogger("superbiz.harness")

COPIED_KINDS = ("question", "settings")


@dataclass(frozen=True, slots=True)
class Fork:
    """What a fork writes: the update of the state, and the archive that the new Run starts with."""

    update: Mapping[str, Any]
    archive: Sequence[ArchiveEntry]


def check_forkable(state: Mapping[str, Any]) -> None:
    """Refuse a state that was edited into nonsense before a Run is created. Raises pydantic.ValidationError."""
    if "tracker" in state:
        load_tracker(state)
    load_budget(state)
    load_ledger(state)


def fork_intent(state: Mapping[str, Any], node: str) -> Intent | None:
    """Return what is known of the question where a fork begins: a chat knows it once it was routed (R97)."""
    if state.get("intent"):
        return Intent(state["intent"])
    unrouted = node == "route_intent" or (node == "release" and "tracker" not in state)
    return None if unrouted else Intent.DIAGNOSIS


def forked_settings(settings: RunSettings, run_id: str, now: float) -> RunSettings:
    """Settings of the new Run: its own wall time; what the earlier part cost in calls and tokens stays counted."""
    return settings.model_copy(update={"run_id": run_id, "started_at": now, "forked_from": settings.run_id})


async def copy_run(
    resources: Resources, old_run: str, settings: RunSettings, state: Mapping[str, Any], node: str
) -> Fork:
    """Copy records from the archive of the old Run: those of the index, and that of a call about to be projected.

    What cannot be copied is missing in the new Run and becomes a limitation (R65).
    """
    index = state.get("tracker_index") or []
    wanted = {entry["tool_call_id"]: entry["scope_key"] is None for entry in index}
    if node == "project_observation" and state.get("call"):
        wanted[(state["call"] or {})["tool_call_id"]] = False
    if node == "release" and state.get("intent") == Intent.KNOWLEDGE_QUERY:
        wanted[LOOKUP_ID] = False
    archived = await resources.journal.archived(old_run, "agent_result")
    archive = [
        ArchiveEntry(kind, key, payload)
        for kind in COPIED_KINDS
        for key, payload in (await resources.journal.archived(old_run, kind)).items()
    ]
    for call_id, failed in wanted.items():
        if (payload := archived.get(call_id)) is not None:
            copy = {**payload, "run_id": settings.run_id, **(_withheld(payload) if failed else {})}
            archive.append(ArchiveEntry("agent_result", call_id, copy))
            await _copy_record(resources, copy)
    update: dict[str, Any] = {"run": settings.model_dump(mode="json")}
    if index:
        moved = [{**entry, "canonical_key": canonical_key(settings.run_id, entry["tool_call_id"])} for entry in index]
        update["tracker_index"] = Overwrite(moved)
    return Fork(update, archive)


def merged(fork: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Join a fork's update with the node's own: what the node appended to the index comes after the moved entries."""
    both = {**fork, **update}
    moved, added = fork.get("tracker_index"), update.get("tracker_index")
    if isinstance(moved, Overwrite) and added is not None:
        both["tracker_index"] = Overwrite([*moved.value, *added])
    return both


def _withheld(payload: Mapping[str, Any]) -> dict[str, Any]:
    # The archive keeps what the tool gave; what was withheld in the old Run is an ERROR in the new one too (R51).
    if payload["status"] != InvocationStatus.READY:
        return {}
    return {
        "status": InvocationStatus.ERROR.value,
        "evidence_status": EvidenceStatus.ERROR.value,
        "error_code": ToolErrorCode.OBSERVATION_CONTRACT_VIOLATION.value,
        "agent_result": None,
    }


async def _copy_record(resources: Resources, payload: Mapping[str, Any]) -> None:
    finished = CanonicalRecord.model_validate(payload)
    open_again = {"status": "PROJECTING", "evidence_status": None, "agent_result": None, "error_code": None}
    try:
        await resources.canonical.begin(CanonicalRecord.model_validate({**payload, **open_again}))
        await resources.canonical.finish(finished)
    except (CanonicalStoreUnavailable, CanonicalRecordTooLarge) as error:
        logger.warning("a record could not be copied into the new run: %s", type(error).__name__)
