"""What a Run archives so that a replay needs nothing else (R67). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from langchain_core.messages import BaseMessage, messages_to_dict
from langgraph.types import Overwrite

from nodes.node_run import NodeResult, NodeRun
from nodes.ports import ArchiveEntry, ModelClient, Resources, RunRecord
from nodes.recall import digest_of

HARNESS, PREVIOUS_TURN, FORK, STEP, OUTSIDE, END = "harness", "previous_turn", "fork", "step", "outside", "end"
SYSTEM = "system"


def harness_entry(resources: Resources, model: ModelClient) -> ArchiveEntry:
    """Archive what the assembly decides for all Runs and a node may read."""
    payload = {
        "language": resources.language,
        "lease_seconds": resources.lease_seconds,
        "run_timeout_seconds": resources.run_timeout_seconds,
        "host_serialises_threads": resources.host_serialises_threads,
        "semantic_guard_is_lexical": model.semantic_guard_is_lexical,
    }
    return ArchiveEntry("settings", HARNESS, payload)


def previous_turn_entry(record: RunRecord) -> ArchiveEntry:
    """Archive what the session's previous turn had published: the store will hold a later one by then (R99)."""
    published = {"published_result": record.published_result, "fallback": record.fallback}
    return ArchiveEntry("question", PREVIOUS_TURN, {"query": record.query, **published})


def fork_entry(state: Mapping[str, Any], node: str) -> ArchiveEntry:
    """Archive the state in which a fork begins, and the node that it enters: its own past is another Run's."""
    plain = {name: value for name, value in state.items() if name != "messages"}
    plain["messages"] = messages_to_dict(state.get("messages") or [])
    return ArchiveEntry(FORK, "state", {"node": node, "state": plain})


def fork_settings(state: Mapping[str, Any], run: NodeRun) -> list[ArchiveEntry]:
    """Archive question and settings as the state tells them: the archive of the Run that was left may be gone."""
    settings, tracker = run.run, {**run.context.model_dump(), **(state.get("tracker") or {})}
    context = {
        "model": settings.model,
        "language": settings.language,
        "at": datetime.fromtimestamp(settings.now, UTC).isoformat() if settings.at_given else None,
        "no_gain_threshold": tracker["no_gain_threshold"],
        "protocol_violation_threshold": tracker["protocol_violation_threshold"],
        "budget": settings.limits.model_dump(mode="json"),
        "model_name": run.model().name,
    }
    return [
        ArchiveEntry("question", "question", {"query": state["query"], "session_id": state.get("session_id")}),
        ArchiveEntry("settings", "context", context),
    ]


def node_entries(key: str, run: NodeRun, result: NodeResult, events: int) -> list[ArchiveEntry]:
    """Archive how one node went: times, ids and views it was told, what it met, decided and added to the conversation."""
    step: dict[str, Any] = {"step": result.step, "events": events, "agent_steps": len(result.steps)}
    if "tracker" in result.update:
        step["tracker"] = result.update["tracker"]
    if added := _messages(result.update):
        step["messages"] = digest_of(added)
    entries = [ArchiveEntry("clock", key, {"readings": run.clock.readings}), ArchiveEntry(STEP, key, step)]
    if run.new_ids:
        entries.append(ArchiveEntry("id", key, {"ids": run.new_ids}))
    if any(run.described):
        # As text: the model is shown it in this order, which no store has to keep.
        entries.append(ArchiveEntry(SYSTEM, key, {"view": json.dumps(run.described[-1], ensure_ascii=False)}))
    if unusual := run.outside.unusual():
        entries.append(ArchiveEntry(OUTSIDE, key, unusual))
    return entries


def _messages(update: Mapping[str, Any]) -> Sequence[BaseMessage]:
    added = update.get("messages") or ()
    found: Sequence[BaseMessage] = added.value if isinstance(added, Overwrite) else added
    return found


def interrupted_entry(key: str, *, finished: bool) -> ArchiveEntry:
    """Archive where a host's cancel met the Run; `finished` says that the node had its result already."""
    return ArchiveEntry(OUTSIDE, END, {"node": key, "finished": finished})
