"""Node `start_run`: validates the question and creates the Run with its tracker and budget (R1, R2), or joins the chat's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_core.messages import HumanMessage
from pydantic import ValidationError

from graph.budget import RunBudget
from graph.contract import Intent, TraceEventType
from graph.state import ChatState, DiagnosisState, fresh_collection_update, fresh_run_update
from graph.tracker import DiagnosisProgressTracker
from nodes.archive import harness_entry, previous_turn_entry
from nodes.events import event
from nodes.harness import DiagnosisHarnessCore
from nodes.node_run import NodeResult, NodeRun
from nodes.ports import ArchiveEntry, RunRecord
from nodes.storable import storable_text
from release.contract import PublishedResult, SafeFallback
from release.published import previous_turn_text

MAX_QUESTION_CHARS = 4000
"""Characters of a question; longer ones are refused before anything is stored."""
MAX_SESSION_CHARS = 128
"""Characters of a session's id."""


class InvalidQuestion(ValueError):
    """The question cannot be diagnosed as sent; the message names the field and what is allowed."""


def checked_question(query: object) -> str:
    """Return the trimmed question, NUL replaced. Raises InvalidQuestion when it is no text, empty or too long."""
    if not isinstance(query, str) or not query.strip():
        raise InvalidQuestion("query: must be a non-empty text")
    text = query.strip()
    if len(text) > MAX_QUESTION_CHARS:
        raise InvalidQuestion(f"query: at most {MAX_QUESTION_CHARS} characters are allowed")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidQuestion("query: must be valid Unicode text") from None
    return storable_text(text)


def checked_session(session_id: object, field: str = "session_id") -> str | None:
    """Return the session's id. Raises InvalidQuestion, naming `field`: 1 to 128 printable characters, not all blank."""
    if session_id is None:
        return None
    text = session_id if isinstance(session_id, str) and session_id.isprintable() else ""
    if not text.strip() or len(text) > MAX_SESSION_CHARS:
        raise InvalidQuestion(f"{field}: must be 1 to {MAX_SESSION_CHARS} printable characters")
    return text


async def start_run(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Create the Run of a diagnosis; thresholds and budget are read here, once (R2)."""
    started = await _started(state, run, Intent.DIAGNOSIS)
    run_id = started.update["run"]["run_id"]
    return replace(started, update=started.update | _collection(state, run, run_id, started.update["query"]))


async def start_chat(state: ChatState, run: NodeRun) -> NodeResult:
    """Create the Run of a chat turn; a diagnosis starts its collection itself when it is one."""
    started = await _started(state, run, None)
    return replace(started, update=started.update | {"run_id": started.update["run"]["run_id"]})


async def join_run(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Start the collection of evidence in the Run that the chat has created: there is no second one (R1)."""
    return NodeResult(_collection(state, run, run.run.run_id, state["query"]), "Joined the run as its diagnosis.")


async def _started(state: Mapping[str, Any], run: NodeRun, intent: Intent | None) -> NodeResult:
    query, session_id = checked_question(state.get("query")), checked_session(state.get("session_id"))
    context = run.context
    # Before anything is stored: a model that does not exist refuses the question, and no Run is left behind.
    client = run.resources.models.client(context.model)
    model = client.name
    core = DiagnosisHarnessCore(run.resources)
    run = await core.adopt(run, query)
    before = await _run_before(run, session_id)
    previous = _previous_turn(before) if before is not None else None
    settings = await core.start_run(run, query, session_id, intent=intent)
    budget = RunBudget(limits=settings.limits, started_at=settings.started_at)
    return NodeResult(
        update=fresh_run_update(state, settings.model_dump(mode="json"), budget, previous) | {"query": query},
        step=f"Started the run with model {model}; collection stops after {context.no_gain_threshold} results without gain.",
        events=[
            event(
                TraceEventType.RUN_STARTED,
                model=model,
                no_gain_threshold=context.no_gain_threshold,
                protocol_violation_threshold=context.protocol_violation_threshold,
            )
        ],
        archive=[
            ArchiveEntry("question", "question", _question(query, session_id, previous)),
            ArchiveEntry("settings", "context", {**context.model_dump(mode="json"), "model_name": model}),
            *([previous_turn_entry(before)] if before is not None and previous is not None else ()),
            harness_entry(run.resources, client),
            *run.resources.start_archive,
        ],
    )


def _question(query: str, session_id: str | None, previous_turn: str | None) -> dict[str, Any]:
    asked = {"query": query, "session_id": session_id}
    return {**asked, "previous_turn": previous_turn} if previous_turn else asked


async def _run_before(run: NodeRun, session_id: str | None) -> RunRecord | None:
    """Find the session's latest diagnosis that published something (R99)."""
    if session_id is None:
        return None
    return await run.resources.runs.previous_turn(session_id, run.owner)


def _previous_turn(record: RunRecord) -> str | None:
    """Read what it published, as data for prompts (R99)."""
    try:
        if record.published_result:
            return previous_turn_text(record.query, PublishedResult.model_validate(record.published_result))
        return previous_turn_text(record.query, SafeFallback.model_validate(record.fallback))
    except ValidationError:
        # Written by another version: background that cannot be read is left out.
        return None


def _collection(state: Mapping[str, Any], run: NodeRun, run_id: str, query: str) -> dict[str, Any]:
    context = run.context
    tracker = DiagnosisProgressTracker(
        no_gain_threshold=context.no_gain_threshold,
        protocol_violation_threshold=context.protocol_violation_threshold,
    )
    return fresh_collection_update(state, tracker, [HumanMessage(content=query, id=f"question-{run_id}")])
