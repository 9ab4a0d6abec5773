"""Where a recorded Run would have stopped under other thresholds, and what that would have saved and cost. Pure.

Drives the harness's own rules over the recorded answers and results, without a graph. After the stop the model is taken to
write the Draft it wrote, from what it had seen by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graph.contract import DiagnosisStopReason
from graph.tracker import CompletedCall, DiagnosisProgressTracker
from nodes.contract import CallInHand, RequestedCall
from nodes.progress_rules import Judged, judge_request, judge_result, judge_scope
from release.contract import ReleaseOutcome
from service.replay.bundle import Bundle
from service.replay.catalog import tools_of
from tools.contract import EvidenceStatus, InformationGain, Scope, ToolErrorCode
from tools.evidence_tool import EvidenceTool, ObservationContractViolation


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The two thresholds that end collection; None keeps the recorded one."""

    no_gain: int | None = None
    protocol: int | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What other thresholds would have meant for one Run.

    `turn` is the model turn whose answer would have carried the stop; None where collection would not have been stopped
    within the record. `beyond_record` says that the Run was stopped then and would have gone on now: what would have
    followed is not known. Savings are those of the turns between the stop and the Draft: calls, tokens, seconds.
    """

    run_id: str
    no_gain_threshold: int
    protocol_threshold: int
    turn: int | None
    stop_reason: DiagnosisStopReason | None
    beyond_record: bool
    tool_calls: int
    tool_calls_saved: int
    tokens_saved: int
    seconds_saved: float
    gained_missed: tuple[str, ...]
    cited_missed: tuple[str, ...]
    published: bool
    conclusion_lost: bool


def what_if(bundle: Bundle, thresholds: Thresholds, *, tools: Mapping[str, EvidenceTool] | None = None) -> WhatIf:
    """Say where the Run would have stopped. Raises BundleError: the bundle does not tell of which tools.

    A fork is followed from its own first turn on, with the tracker it began with.
    """
    context = bundle.settings["context"]
    no_gain = thresholds.no_gain if thresholds.no_gain is not None else int(context["no_gain_threshold"])
    protocol = thresholds.protocol if thresholds.protocol is not None else int(context["protocol_violation_threshold"])
    collection = _Collection(bundle, tools if tools is not None else tools_of(bundle), no_gain, protocol)
    stopped = collection.follow()
    executed = list(_executed(bundle))
    missed = executed[collection.executed :] if stopped else []
    cited = [each for each in _cited(bundle) if each in missed]
    published = bundle.run.release_outcome is ReleaseOutcome.CONCLUSION
    tokens, seconds = _saved(bundle, collection.turn) if stopped else (0, 0.0)
    return WhatIf(
        run_id=bundle.run_id,
        no_gain_threshold=no_gain,
        protocol_threshold=protocol,
        turn=collection.turn if stopped else None,
        stop_reason=collection.tracker.stop_reason if stopped else None,
        beyond_record=not stopped and _stopped_by_progress(bundle),
        tool_calls=len(executed),
        tool_calls_saved=len(missed),
        tokens_saved=tokens,
        seconds_saved=seconds,
        gained_missed=tuple(each for each in missed if each in _gained(bundle)),
        cited_missed=tuple(cited),
        published=published,
        conclusion_lost=published and bool(cited),
    )


class _Collection:
    """The tool loop over recorded answers: `executed` counts the calls that ran, `turn` the model's turns."""

    def __init__(self, bundle: Bundle, tools: Mapping[str, EvidenceTool], no_gain: int, protocol: int) -> None:
        began = (bundle.by_kind["fork"].get("state") or {"state": {}})["state"]
        tracker = {**(began.get("tracker") or {}), "index": tuple(began.get("tracker_index") or ())}
        limits = {"no_gain_threshold": no_gain, "protocol_violation_threshold": protocol}
        self.tracker = DiagnosisProgressTracker.model_validate({**tracker, **limits})
        self.turn = int((began.get("position") or {}).get("turn", 0))
        self.executed = 0
        self._answers = [answer for answer in agent_answers(bundle) if answer["failure"] is None]
        self._results = bundle.by_kind["agent_result"]
        self._tools = tools

    def follow(self) -> bool:
        """Go on until collection would be stopped (True), or the record ends (False)."""
        for answer in self._answers:
            self.turn += 1
            if not answer["calls"]:
                return False
            if not self._handle([RequestedCall(**call) for call in answer["calls"]]):
                return False
            if self.tracker.saturated:
                return True
        return False

    def _handle(self, requested: list[RequestedCall]) -> bool:
        judged = judge_request(self.tracker, requested, self._tools)
        if judged.rejection is None:
            judged, _ = judge_scope(Judged(judged.tracker, judged.call))
        self.tracker = judged.tracker
        if judged.rejection is None and not self._execute(judged.call):
            return False
        self.tracker = self.tracker.with_answered(requested[-1].tool_call_id)
        return True

    def _execute(self, call: CallInHand) -> bool:
        record = self._results.get(call.tool_call_id)
        if record is None:
            # A budget, a cancel or a fault ended the Run here.
            return False
        assert call.scope is not None
        self.executed += 1
        completed = CompletedCall(
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            canonical_key=call.tool_call_id,
            scope_key=call.scope.key,
        )
        status = _status(self._tools[call.tool_name], call.tool_call_id, call.scope, record)
        self.tracker, _ = judge_result(self.tracker, completed, status)
        return True


def agent_answers(bundle: Bundle) -> Iterator[Mapping[str, Any]]:
    """Give the Diagnosis Agent's recorded answers in the order of their rounds."""
    rounds = (name.split("/") for name in bundle.by_kind["model_answer"])
    for number in sorted(int(number) for component, number in rounds if component == "DIAGNOSIS_AGENT"):
        yield bundle.by_kind["model_answer"][f"DIAGNOSIS_AGENT/{number}"]


def _status(tool: EvidenceTool, call_id: str, scope: Scope, record: Mapping[str, Any]) -> EvidenceStatus:
    if record["agent_result"] is None or record["error_code"] == ToolErrorCode.OBSERVATION_CONTRACT_VIOLATION:
        return EvidenceStatus.ERROR
    try:
        status = tool.control(dict(record["agent_result"]), scope).evidence_status
        tool.observe(call_id, scope, dict(record["agent_result"]))
    except ObservationContractViolation:
        return EvidenceStatus.ERROR
    return status or EvidenceStatus.ERROR


def _executed(bundle: Bundle) -> Iterator[str]:
    """Give the calls that this Run executed, in order; what a fork took over was another Run's."""
    results = bundle.by_kind["agent_result"]
    for answer in agent_answers(bundle):
        yield from (call["tool_call_id"] for call in answer.get("calls", ()) if call["tool_call_id"] in results)


def _cited(bundle: Bundle) -> list[str]:
    published, fallback = bundle.run.published_result or {}, bundle.run.fallback or {}
    cited = [each for finding in published.get("findings", ()) for each in finding["tool_call_ids"]]
    cited += [fact["tool_call_id"] for fact in fallback.get("observed_facts", ())]
    return list(dict.fromkeys(cited))


def _gained(bundle: Bundle) -> frozenset[str]:
    return frozenset(
        row["fields"]["tool_call_id"]
        for row in bundle.trace
        if row["fields"].get("information_gain") == InformationGain.GAINED
    )


def _stopped_by_progress(bundle: Bundle) -> bool:
    reasons = (DiagnosisStopReason.INFORMATION_SATURATED, DiagnosisStopReason.PROGRESS_PROTOCOL_VIOLATED)
    return bundle.run.stop_reason in reasons


def _saved(bundle: Bundle, turn: int) -> tuple[int, float]:
    """Return tokens and seconds of the turns after `turn` that were not the Draft's."""
    answers = [answer for answer in agent_answers(bundle) if answer["failure"] is None]
    first = int((bundle.by_kind["fork"].get("state") or {"state": {}})["state"].get("position", {}).get("turn", 0))
    later = answers[turn - first :]
    drafted = bool(later) and not later[-1]["calls"]
    tokens = sum(sum(answer["usage"] or (0, 0)) for answer in (later[:-1] if drafted else later))
    asked = [key for key in bundle.path if key.endswith(":model_step")]
    stop, last = turn - first, len(answers) - (1 if drafted else 0)
    if stop >= len(asked):
        return tokens, 0.0
    end = _began(bundle, asked[last]) if last < len(asked) else bundle.run.ended_at
    return tokens, max(0.0, end - _began(bundle, asked[stop]))


def _began(bundle: Bundle, key: str) -> float:
    readings = bundle.by_kind["clock"][key]["readings"]
    return float(readings[0]) if readings else bundle.run.created_at
