"""Node `start_run`: validates the question and creates the Run with its tracker and budget (R1, R2)."""

from __future__ import annotations

from langchain_core.messages import HumanMessage

from graph.budget import RunBudget
from graph.contract import TraceEventType
from graph.state import DiagnosisState, fresh_run_update
from graph.tracker import DiagnosisProgressTracker
from nodes.archive import harness_entry
from nodes.events import event
from nodes.harness import DiagnosisHarnessCore
from nodes.node_run import NodeResult, NodeRun
from nodes.ports import ArchiveEntry

MAX_QUESTION_CHARS = 4000
"""Characters of a question; longer ones are refused before anything is stored."""


class InvalidQuestion(ValueError):
    """The question cannot be diagnosed as sent; the message names the field and what is allowed."""


def checked_question(query: object) -> str:
    """Return the trimmed question. Raises InvalidQuestion when it is no text, empty or too long."""
    if not isinstance(query, str) or not query.strip():
        raise InvalidQuestion("query: must be a non-empty text")
    text = query.strip()
    if len(text) > MAX_QUESTION_CHARS:
        raise InvalidQuestion(f"query: at most {MAX_QUESTION_CHARS} characters are allowed")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidQuestion("query: must be valid Unicode text") from None
    return text


async def start_run(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Create the Run; thresholds and budget are read here, once (R2)."""
    query = checked_question(state.get("query"))
    context = run.context
    # Before anything is stored: a model that does not exist refuses the question, and no Run is left behind.
    client = run.resources.models.client(context.model)
    model = client.name
    settings = await DiagnosisHarnessCore(run.resources).start_run(run, query, state.get("session_id"))
    tracker = DiagnosisProgressTracker(
        no_gain_threshold=context.no_gain_threshold,
        protocol_violation_threshold=context.protocol_violation_threshold,
    )
    budget = RunBudget(limits=settings.limits, started_at=settings.started_at)
    question = HumanMessage(content=query, id=f"question-{settings.run_id}")
    return NodeResult(
        update=fresh_run_update(state, settings.model_dump(mode="json"), tracker, budget, [question])
        | {"query": query},
        step=f"Started the run with model {model}; collection stops after {tracker.no_gain_threshold} results without gain.",
        events=[
            event(
                TraceEventType.RUN_STARTED,
                model=model,
                no_gain_threshold=tracker.no_gain_threshold,
                protocol_violation_threshold=tracker.protocol_violation_threshold,
            )
        ],
        archive=[
            ArchiveEntry("question", "question", {"query": query, "session_id": state.get("session_id")}),
            ArchiveEntry("settings", "context", {**context.model_dump(mode="json"), "model_name": model}),
            harness_entry(run.resources, client),
            *run.resources.start_archive,
        ],
    )
