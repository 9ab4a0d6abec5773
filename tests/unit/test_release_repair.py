"""EvidenceRepair takes nothing that was not there before (R90, R117)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from release.contract import (
    MAX_GUARD_INPUT_BYTES,
    Analysis,
    AnalysisKind,
    Conclusion,
    DiagnosisDraft,
    DraftLimitations,
    GuardViolation,
    RepairRejected,
    ViolationCode,
)
from release.evidence_guard import check_evidence
from release.repair import accept_repair, repair_input, repairable
from tests.release_builders import RUN, analysis, documents, draft, empty_logs, logs, missing, observation, rows, views
from tools.contract import EvidenceStatus, InvocationStatus

NEG = AnalysisKind.NEGATIVE_OBSERVATION
REF = AnalysisKind.REFERENCE_KNOWLEDGE
EVIDENCE = views(logs(), rows(), documents(), empty_logs(), missing())
ORIGINAL = draft(
    observation(1, "`HTTP 503` seen", "forged"),
    observation(2, "orders `FAILED`", "db-1"),
    analysis(3, NEG, "nothing else", "log-0"),
    supports=["A1", "A9"],
    missing_info=["which region"],
    unverified=["disk"],
)
VIOLATION = GuardViolation(code=ViolationCode.UNKNOWN_TOOL_CALL, analysis_id="A1")


def edited(**changes: Any) -> str:
    return json.dumps({**ORIGINAL.model_dump(mode="json"), **changes}, ensure_ascii=False)


def analyses(**changes: Any) -> list[dict[str, Any]]:
    first, *rest = ORIGINAL.model_dump(mode="json")["analyses"]
    return [{**first, **changes}, *rest]


def conclusion(**changes: Any) -> dict[str, Any]:
    return {**ORIGINAL.model_dump(mode="json")["conclusion"], **changes}


def test_r90_relinking_saves_a_draft() -> None:
    text = edited(
        analyses=analyses(tool_call_ids=["log-1"]), conclusion=conclusion(supporting_analysis_ids=["A1", "A2"])
    )
    repaired = accept_repair(ORIGINAL, text)
    assert isinstance(repaired, DiagnosisDraft)
    assert check_evidence(ORIGINAL, RUN, EVIDENCE)
    assert check_evidence(repaired, RUN, EVIDENCE) == ()


def test_r90_dropping_and_renumbering_are_allowed() -> None:
    text = edited(
        analyses=[{**ORIGINAL.analyses[1].model_dump(mode="json"), "analysis_id": "A1"}],
        conclusion=conclusion(supporting_analysis_ids=["A1"]),
    )
    repaired = accept_repair(ORIGINAL, text)
    assert isinstance(repaired, DiagnosisDraft)
    assert [each.statement for each in repaired.analyses] == ["orders `FAILED`"]


def test_r90_a_null_conclusion_is_accepted() -> None:
    repaired = accept_repair(ORIGINAL, edited(conclusion=None, analyses=[]))
    assert isinstance(repaired, DiagnosisDraft)
    assert repaired.conclusion is None


def test_r90_limitations_stay_the_originals() -> None:
    for missing_info, unverified in (([], []), (["new"], ["also new"])):
        limits = {"missing_info": missing_info, "unverified": unverified}
        repaired = accept_repair(ORIGINAL, edited(limitations=limits))
        assert isinstance(repaired, DiagnosisDraft)
        assert repaired.limitations == ORIGINAL.limitations


@pytest.mark.parametrize(
    "text",
    [
        edited(analyses=analyses(statement="`HTTP 503` seen.")),
        edited(analyses=analyses(statement="`HTTP 503`  seen")),
        edited(analyses=analyses(statement=ORIGINAL.analyses[1].statement)),
        edited(analyses=analyses(kind="INFERENCE")),
        edited(analyses=[*analyses(), observation(4, "new", "log-1").model_dump(mode="json")]),
        edited(conclusion=conclusion(statement="The pool is exhausted")),
        edited(conclusion=conclusion(statement=ORIGINAL.analyses[0].statement)),
    ],
)
def test_r90_a_changed_statement_or_kind_is_refused(text: str) -> None:
    assert accept_repair(ORIGINAL, text) is RepairRejected.REPAIR_CHANGED_STATEMENT


@pytest.mark.parametrize("text", ["", "no", f"```json\n{edited()}\n```", edited(extra=1)])
def test_r90_an_unparsable_repair_is_refused(text: str) -> None:
    assert accept_repair(ORIGINAL, text) is RepairRejected.UNPARSABLE


def test_r90_no_conclusion_appears_where_none_was() -> None:
    nothing = ORIGINAL.model_copy(update={"conclusion": None})
    assert accept_repair(nothing, edited()) is RepairRejected.REPAIR_CHANGED_STATEMENT


statements = st.sampled_from(["one", "two", "three", "one "])
drafts = st.builds(
    DiagnosisDraft,
    conclusion=st.none()
    | st.builds(
        Conclusion, statement=statements, supporting_analysis_ids=st.lists(st.just("A1"), min_size=1, max_size=2)
    ),
    analyses=st.lists(
        st.builds(
            Analysis,
            analysis_id=st.sampled_from(["A1", "A2"]),
            kind=st.sampled_from(AnalysisKind),
            statement=statements,
            tool_call_ids=st.lists(st.sampled_from(["c1", "c2"]), min_size=1, max_size=2),
        ),
        max_size=4,
    ),
    limitations=st.builds(DraftLimitations, missing_info=st.lists(statements, max_size=2)),
)


@given(drafts, drafts)
@settings(max_examples=200)
def test_r90_a_repair_never_introduces_a_statement(original: DiagnosisDraft, answer: DiagnosisDraft) -> None:
    repaired = accept_repair(original, answer.model_dump_json())
    if isinstance(repaired, RepairRejected):
        return
    before = [(each.kind, each.statement) for each in original.analyses]
    for each in repaired.analyses:
        before.remove((each.kind, each.statement))
    if repaired.conclusion is not None:
        assert original.conclusion is not None
        assert repaired.conclusion.statement == original.conclusion.statement
    assert repaired.limitations == original.limitations


@given(drafts)
def test_r90_an_unchanged_draft_is_always_accepted(original: DiagnosisDraft) -> None:
    assert accept_repair(original, original.model_dump_json()) == original


def test_r90_repair_is_skipped_where_nothing_could_be_repaired() -> None:
    assert repairable(ORIGINAL, [VIOLATION], RUN, EVIDENCE)
    assert not repairable(ORIGINAL, [], RUN, EVIDENCE)
    assert not repairable(ORIGINAL.model_copy(update={"conclusion": None}), [VIOLATION], RUN, EVIDENCE)
    failed = logs(status=InvocationStatus.ERROR, evidence=EvidenceStatus.ERROR)
    for useless in ({}, views(documents(), empty_logs(), missing()), views(failed), views(logs(run_id="run-2"))):
        assert not repairable(ORIGINAL, [VIOLATION], RUN, useless)
    assert not repairable(draft(analysis(1, REF, "x", "rag-1")), [VIOLATION], RUN, EVIDENCE)
    assert not repairable(draft(observation(), conclusion="`OOMKilled`"), [VIOLATION], RUN, EVIDENCE)
    assert repairable(draft(observation(), conclusion="`支付失败`"), [VIOLATION], RUN, EVIDENCE)


def test_r90_the_repair_sees_draft_violations_and_legal_references_only() -> None:
    foreign = views(logs("foreign", run_id="run-2"), logs("failed", status=InvocationStatus.ERROR, evidence=None))
    shown = json.loads(repair_input(ORIGINAL, [VIOLATION], RUN, {**EVIDENCE, **foreign}))
    assert shown["draft"] == ORIGINAL.model_dump(mode="json")
    assert shown["violations"] == [{"code": "UNKNOWN_TOOL_CALL", "analysis_id": "A1"}]
    assert [each["tool_call_id"] for each in shown["observations"]] == ["log-1", "db-1", "rag-1", "log-0"]
    assert shown["observations"][0]["result"]["total"] == 128
    assert "observations_left_out" not in shown


def test_r91_a_guard_sees_the_window_a_lookback_came_to() -> None:
    window = {"from": "2026-03-12T13:35:00.000+08:00", "to": "2026-03-12T14:35:00.000+08:00"}
    scope = {"topic": "gateway", "query": "504", "lookback_minutes": 60}
    told = replace(logs(scope=scope), observation={"scope": {**scope, **window}, "total": 128})
    shown = json.loads(repair_input(ORIGINAL, [VIOLATION], RUN, views(told, empty_logs())))
    assert shown["observations"][0]["scope"] == {**scope, **window}
    assert shown["observations"][1]["scope"] == dict(empty_logs().record.scope.normalized)  # type: ignore[union-attr]


def big_result(size: int, needle: str) -> dict[str, Any]:
    lines = [{"message": f"line {at} " + "超时" * 60} for at in range(size)]
    lines[size // 2] = {"message": "z" * 700 + needle + "z" * 700}
    return {"events": lines, "total": size}


@pytest.mark.parametrize("calls", [1, 6, 16, 200])
def test_r117_guard_input_is_bounded_and_keeps_what_is_quoted(calls: int) -> None:
    evidence = views(*(logs(f"c{at}", result=big_result(100, f"needle{at}end")) for at in range(calls)))
    quoting = [observation(at + 1, f"`needle{at}end`", f"c{at}") for at in range(min(calls, 12))]
    text = repair_input(draft(*quoting), [VIOLATION], RUN, evidence)
    assert len(text.encode()) <= MAX_GUARD_INPUT_BYTES
    shown = json.loads(text)
    assert len(shown["observations"]) + shown.get("observations_left_out", 0) == calls
    for at in range(min(calls, 12) if calls <= 16 else 0):
        assert f"needle{at}end" in json.dumps(shown["observations"][at])
        assert shown["observations"][at]["shortened_for_review"] is (calls > 1)


def test_r117_the_largest_legal_draft_still_fits() -> None:
    calls = [f"c{at}" for at in range(6)]
    many = [analysis(at, AnalysisKind.OBSERVATION, "错" * 600, *calls) for at in range(1, 13)]
    made = draft(*many, conclusion="误" * 1000, missing_info=["缺" * 200] * 8, unverified=["未" * 100] * 8)
    evidence = views(*(logs(call, result=big_result(100, "n")) for call in calls))
    text = repair_input(made, check_evidence(made, "another-run", evidence), RUN, evidence)
    assert len(text.encode()) <= MAX_GUARD_INPUT_BYTES
    assert json.loads(text)["draft"] == made.model_dump(mode="json")
