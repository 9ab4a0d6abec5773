"""Node `guard_evidence`: the deterministic guard over the draft's references, bindings and quotations (R81, R89)."""

from __future__ import annotations

from graph.contract import TraceEventType
from graph.state import DiagnosisState, load_tracker
from nodes.events import event
from nodes.evidence import guarded_evidence
from nodes.guarding import GuardRecord, cancelled, guard_update, load_draft, load_guard
from nodes.node_run import NodeResult, NodeRun
from release.contract import GuardOutcome, ReleaseStage
from release.decision import next_stage
from release.evidence_guard import check_evidence
from release.repair import repairable
from tools.canonical.store import CanonicalStoreUnavailable


async def guard_evidence(state: DiagnosisState, run: NodeRun) -> NodeResult:
    """Check the draft against the canonical records of this very Run."""
    guard = load_guard(state)
    if cancelled(run):
        stopped = guard.model_copy(update={"next": ReleaseStage.RELEASE})
        return NodeResult(guard_update(stopped), "No guard runs: the run is over.")
    draft, run_id = load_draft(state), run.run.run_id
    try:
        evidence = await guarded_evidence(run, load_tracker(state))
    except CanonicalStoreUnavailable:
        return _unavailable(guard)
    violations = check_evidence(draft, run_id, evidence)
    stage = next_stage(
        draft,
        aborted=False,
        violations=violations,
        can_repair=repairable(draft, violations, run_id, evidence),
        repair_tried=guard.repair_tried,
    )
    outcome = GuardOutcome.FAILED if violations else GuardOutcome.PASSED
    after = guard.model_copy(update={"next": stage, "violations": list(violations), "evidence": outcome})
    codes = sorted({violation.code.value for violation in violations})
    step = f"The evidence does not carry the draft: {', '.join(codes)}." if codes else "The evidence carries the draft."
    audit = event(TraceEventType.EVIDENCE_GUARD, violations=codes, passed=not violations)
    return NodeResult(guard_update(after), step, [audit])


def _unavailable(guard: GuardRecord) -> NodeResult:
    changes = {"next": ReleaseStage.RELEASE, "evidence": GuardOutcome.TECHNICAL_FAILURE}
    audit = event(TraceEventType.EVIDENCE_GUARD, passed=False)
    return NodeResult(guard_update(guard.model_copy(update=changes)), "The evidence could not be read.", [audit])
