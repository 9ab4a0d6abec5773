"""Node `guard_semantics`: judges whether the statements are supported by the results they cite (R91)."""

from __future__ import annotations

from langchain_core.messages import HumanMessage, SystemMessage

from graph.contract import Component, TraceEventType
from graph.state import DiagnosisState, load_budget, load_ledger, load_tracker
from nodes.events import event
from nodes.evidence import guarded_evidence
from nodes.guarding import GuardRecord, cancelled, guard_update, late_verdict, load_draft, load_guard
from nodes.model_calls import ModelTask, call_model
from nodes.node_run import NodeResult, NodeRun
from nodes.prompts import prompt
from release.contract import DiagnosisDraft, GuardOutcome, ReleaseStage, SemanticJudgement, SemanticVerdict
from release.evidence import EvidenceView
from release.semantic_guard import lexical_verdict, parse_judgement, semantic_input
from tools.canonical.store import CanonicalStoreUnavailable


async def guard_semantics(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Judge the draft once; UNSUPPORTED is final, a guard that could not run is no verdict."""
    guard = load_guard(state).model_copy(update={"next": ReleaseStage.RELEASE})
    if cancelled(run):
        return NodeResult(guard_update(guard), "No guard runs: the run is over.")
    draft, lexical = load_draft(state), run.model().semantic_guard_is_lexical
    try:
        evidence = await guarded_evidence(run, load_tracker(state))
    except CanonicalStoreUnavailable:
        return _unavailable(guard, lexical)
    if lexical:
        return _lexical(guard, lexical_verdict(draft, evidence))
    return await _judged(state, run, guard, draft, evidence)


async def _judged(
    state: DiagnosisState, run: NodeRun, guard: GuardRecord, draft: DiagnosisDraft, evidence: dict[str, EvidenceView]
) -> NodeResult:
    data = semantic_input(state["query"], draft, evidence)
    task = ModelTask(
        Component.SEMANTIC_GUARD,
        [SystemMessage(content=prompt("semantic_guard", run.run.language)), HumanMessage(content=data)],
        output=SemanticJudgement,
        usable=lambda text: parse_judgement(text, draft) is not None,
    )
    outcome = await call_model(run, task, load_budget(state), load_ledger(state))
    if not await run.still_active():
        return late_verdict(guard, outcome)
    judgement = parse_judgement(outcome.reply.text, draft) if outcome.reply is not None else None
    verdict = _outcome(judgement)
    attempts = sum(each.type is TraceEventType.MODEL_CALL for each in outcome.events)
    audit = event(TraceEventType.SEMANTIC_GUARD, verdict=_name(judgement), attempt=max(1, attempts), lexical=False)
    after = guard.model_copy(update={"semantics": verdict})
    update = guard_update(after, **outcome.accounts())
    return NodeResult(update, f"Semantic guard: {_name(judgement)}.", [*outcome.events, audit], archive=outcome.archive)


def _lexical(guard: GuardRecord, judgement: SemanticJudgement) -> NodeResult:
    audit = event(TraceEventType.SEMANTIC_GUARD, verdict=_name(judgement), attempt=1, lexical=True)
    after = guard.model_copy(update={"semantics": _outcome(judgement)})
    return NodeResult(guard_update(after), f"Semantic guard by lexical containment: {_name(judgement)}.", [audit])


def _unavailable(guard: GuardRecord, lexical: bool) -> NodeResult:
    audit = event(TraceEventType.SEMANTIC_GUARD, verdict=_name(None), lexical=lexical)
    after = guard.model_copy(update={"semantics": _outcome(None)})
    return NodeResult(guard_update(after), "The evidence could not be read.", [audit])


def _outcome(judgement: SemanticJudgement | None) -> GuardOutcome:
    if judgement is None:
        return GuardOutcome.TECHNICAL_FAILURE
    return GuardOutcome.PASSED if judgement.verdict is SemanticVerdict.SUPPORTED else GuardOutcome.FAILED


def _name(judgement: SemanticJudgement | None) -> str:
    return judgement.verdict.value if judgement is not None else GuardOutcome.TECHNICAL_FAILURE.value
