"""Node `repair_evidence`: the one repair call, which may only drop or relink (R90)."""

from __future__ import annotations

from langchain_core.messages import HumanMessage, SystemMessage

from graph.contract import Component, TraceEventType
from graph.state import DiagnosisState, load_budget, load_ledger, load_tracker
from nodes.events import event
from nodes.evidence import guarded_evidence
from nodes.guarding import GuardRecord, cancelled, guard_update, late_verdict, load_draft, load_guard
from nodes.model_calls import ModelCallOutcome, ModelTask, call_model
from nodes.node_run import NodeResult, NodeRun
from nodes.prompts import prompt
from release.contract import DiagnosisDraft, GuardOutcome, ReleaseStage, RepairRejected
from release.repair import accept_repair, repair_input
from tools.canonical.store import CanonicalStoreUnavailable


async def repair_evidence(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Ask once for a repaired draft; a rejected or failed repair leaves the draft refused."""
    guard = load_guard(state)
    if cancelled(run):
        return NodeResult(guard_update(_to_release(guard)), "No repair: the run is over.")
    draft, run_id = load_draft(state), run.run.run_id
    try:
        evidence = await guarded_evidence(run, load_tracker(state))
    except CanonicalStoreUnavailable:
        return _failed(guard, ModelCallOutcome(load_budget(state), load_ledger(state)), "CANONICAL_STORE")
    data = repair_input(draft, guard.violations, run_id, evidence)
    messages = [SystemMessage(content=prompt("evidence_repair", run.run.language)), HumanMessage(content=data)]
    task = ModelTask(Component.EVIDENCE_REPAIR, messages, output=DiagnosisDraft)
    outcome = await call_model(run, task, load_budget(state), load_ledger(state))
    if not await run.still_active():
        return late_verdict(guard, outcome)
    if outcome.reply is None or outcome.reply.calls:
        return _failed(guard, outcome, _reason(outcome))
    repaired = accept_repair(draft, outcome.reply.text)
    if isinstance(repaired, RepairRejected):
        return _result(guard, outcome, False, repaired.value, {})
    return _result(guard, outcome, True, None, {"draft": repaired.model_dump(mode="json")}, repaired)


def _failed(guard: GuardRecord, outcome: ModelCallOutcome, reason: str) -> NodeResult:
    # The guard has spoken; a repair that could not run leaves its verdict standing (R88f).
    return _result(guard, outcome, False, reason, {})


def _reason(outcome: ModelCallOutcome) -> str:
    return (outcome.crossed and outcome.crossed.value) or (outcome.failure and outcome.failure.value) or "TOOL_CALLS"


def _result(
    guard: GuardRecord,
    outcome: ModelCallOutcome,
    accepted: bool,
    reason: str | None,
    update: dict[str, object],
    repaired: DiagnosisDraft | None = None,
) -> NodeResult:
    goes_on = repaired is not None and repaired.conclusion is not None
    stage = ReleaseStage.GUARD_EVIDENCE if goes_on else ReleaseStage.RELEASE
    changes = {"next": stage, "repair_tried": True}
    if repaired is not None:
        changes |= {"violations": [], "evidence": GuardOutcome.NOT_RUN}
    after = guard.model_copy(update=changes)
    audit = event(TraceEventType.EVIDENCE_REPAIR, accepted=accepted, reason=reason)
    step = "The draft was repaired." if accepted else f"The repair was not taken: {reason}."
    return NodeResult(
        guard_update(after, **update, **outcome.accounts()), step, [*outcome.events, audit], archive=outcome.archive
    )


def _to_release(guard: GuardRecord) -> GuardRecord:
    return guard.model_copy(update={"next": ReleaseStage.RELEASE})
