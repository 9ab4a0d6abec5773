from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from service.evaluate import (
    Evaluation,
    EvaluationError,
    EvidenceBytes,
    evaluation_json,
    evidence_bytes,
    load_cases,
    score_case,
    shown_facts,
)
from tools.contract import CanonicalRecord, InvocationStatus, Scope

FACT = re.compile("(?i)disk full")


def fallback(*facts: tuple[str, str]) -> dict[str, object]:
    return {"type": "FALLBACK", "observed_facts": [{"statement": s, "tool_call_id": c} for s, c in facts]}


def test_a_cited_fact_or_the_conclusion_matches() -> None:
    assert score_case("a", FACT, "FALLBACK", fallback(("Disk full", "c1"), ("other", "c2"))).matched_in == "fact"
    published = {"conclusion": "The disk full error.", "findings": [{"statement": "x", "tool_call_ids": ["c1"]}]}
    assert score_case("a", FACT, "CONCLUSION", published).matched_in == "conclusion"


def test_a_fact_without_citation_does_not_count_as_matching() -> None:
    score = score_case("a", FACT, "FALLBACK", fallback(("disk full", "")))
    assert (score.matched, score.facts_shown, score.facts_matching) == (False, 1, 0)


def test_an_unpublished_run_never_matches() -> None:
    score = score_case("a", FACT, "NONE", None)
    assert (score.published, score.matched) == (False, False)


def test_findings_and_observed_facts_are_both_read() -> None:
    facts = shown_facts({"findings": [{"statement": "f", "tool_call_ids": ["c1", "c2"]}], "observed_facts": "odd"})
    assert [(fact.statement, fact.tool_call_ids) for fact in facts] == [("f", ("c1", "c2"))]


def test_totals_and_the_share_of_other_facts() -> None:
    scores = (
        score_case("a", FACT, "FALLBACK", fallback(("disk full", "c1"), ("other", "c2"), ("more", "c3"))),
        score_case("b", FACT, "FALLBACK", fallback(("disk full", "c1"))),
    )
    evaluation = Evaluation(scores)
    assert (evaluation.published, evaluation.matched, evaluation.other_share) == (2, 2, 0.5)
    assert evaluation_json(evaluation)["other_facts_share"] == 0.5
    assert Evaluation(()).other_share is None


def canonical(raw_response: object) -> CanonicalRecord:
    scope = Scope(tool_name="query_logs", normalized={}, key="0" * 64, summary="")
    return CanonicalRecord(
        run_id="r",
        tool_call_id="c",
        tool_name="query_logs",
        status=InvocationStatus.READY,
        scope=scope,
        request={},
        raw_response=raw_response,
        created_at=0.0,
    )


def test_r48_r55_bytes_shown_to_the_model_stand_beside_the_raw_answers() -> None:
    # A record that has expired or failed has no raw answer; Chinese counts in UTF-8.
    records = [canonical({"a": "超时"}), canonical([1, 2]), canonical(None), None]
    evidence = evidence_bytes(40, records)
    assert evidence == EvidenceBytes(shown=40, raw=len('{"a":"超时"}'.encode()) + len("[1,2]"))
    scores = (score_case("a", FACT, "NONE", None, evidence), score_case("b", FACT, "NONE", None, evidence))
    body = evaluation_json(Evaluation(scores))
    assert (body["shown_bytes"], body["raw_bytes"]) == (80, 2 * evidence.raw)
    assert [(case["shown_bytes"], case["raw_bytes"]) for case in body["cases"]] == [(40, evidence.raw)] * 2


def write_case(folder: Path, name: str, **value: object) -> None:
    (folder / "expected.json").write_text(json.dumps({name: value}), encoding="utf-8")
    (folder / "case").mkdir(exist_ok=True)
    (folder / "case" / "superbiz.toml").write_text("", encoding="utf-8")


def test_cases_are_loaded_with_their_catalogues(tmp_path: Path) -> None:
    write_case(tmp_path, "case", question="q?", key_fact="a+")
    (case,) = load_cases(tmp_path)
    assert (case.name, case.question, case.key_fact.pattern) == ("case", "q?", "a+")
    assert case.catalog == tmp_path / "case" / "superbiz.toml"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("case", {"question": "q?", "key_fact": "("}, "regular expression"),
        ("case", {"question": " ", "key_fact": "a"}, "non-empty"),
        ("absent", {"question": "q?", "key_fact": "a"}, "folder of that name"),
        ("../case", {"question": "q?", "key_fact": "a"}, "folder of that name"),
    ],
)
def test_bad_cases_are_named(tmp_path: Path, name: str, value: dict[str, object], said: str) -> None:
    write_case(tmp_path, name, **value)
    with pytest.raises(EvaluationError, match=said):
        load_cases(tmp_path)


def test_a_folder_without_expectations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match=r"expected\.json"):
        load_cases(tmp_path)
