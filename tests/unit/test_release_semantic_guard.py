"""SemanticGuard: bounded input, strict judgement, lexical verdict (R91)."""

from __future__ import annotations

import csv
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from release.contract import AnalysisKind, SemanticJudgement, SemanticVerdict
from release.lexical import checkable_tokens, lexically_contained
from release.semantic_guard import lexical_verdict, parse_judgement, semantic_input
from tests.data import data_dir
from tests.release_builders import analysis, documents, draft, empty_logs, logs, observation, rows, views

NEG, REF = AnalysisKind.NEGATIVE_OBSERVATION, AnalysisKind.REFERENCE_KNOWLEDGE
EVIDENCE = views(logs(), rows(), documents(), empty_logs())
DRAFT = draft(observation(1, "128 errors", "log-1"), observation(2, "`支付失败`", "db-1"))


def test_r91_input_shows_statements_and_cited_observations_only() -> None:
    shown = json.loads(semantic_input("why?", DRAFT, EVIDENCE))
    assert set(shown) == {"question", "conclusion", "analyses", "observations"}
    assert [each["tool_call_id"] for each in shown["observations"]] == ["log-1", "db-1"]
    assert shown["observations"][1]["result"]["rows"][1] == ["支付失败", 0.25]
    assert shown["observations"][1]["scope"]["datasource"] == "orders"


@pytest.mark.parametrize("room", [3000, 8000])
def test_r91_input_fits_what_it_is_given(room: int) -> None:
    big = {"events": [{"message": "超时" * 200} for _ in range(50)]}
    evidence = views(logs(result=big), rows(result=big))
    assert len(semantic_input("why?", DRAFT, evidence, room).encode()) <= room


def test_r117_no_call_takes_more_than_its_share() -> None:
    calls = [f"call-{at}-".ljust(128, "x") for at in range(6)]
    evidence = views(*(logs(call, result={"n": 10**900, "events": ["超时" * 300]}) for call in calls))
    made = draft(observation(1, "x", *calls), conclusion="y")
    smallest = len(semantic_input("why?", made, {}).encode()) + 40
    for room in range(smallest, smallest + 3000, 37):
        text = semantic_input("why?", made, evidence, room)
        assert len(text.encode()) <= room
        shown = json.loads(text)
        assert len(shown["observations"]) + shown.get("observations_left_out", 0) == 6


def test_r91_a_usable_judgement() -> None:
    supported = parse_judgement('{"verdict":"SUPPORTED","unsupported_analysis_ids":[]}', DRAFT)
    assert supported == SemanticJudgement(verdict=SemanticVerdict.SUPPORTED, unsupported_analysis_ids=[])
    for ids in (["A2"], []):
        judged = parse_judgement(json.dumps({"verdict": "UNSUPPORTED", "unsupported_analysis_ids": ids}), DRAFT)
        assert judged is not None
        assert judged.unsupported_analysis_ids == ids


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SUPPORTED",
        '```json\n{"verdict":"SUPPORTED","unsupported_analysis_ids":[]}\n```',
        '{"verdict":"SUPPORTED"}',
        '{"verdict":"supported","unsupported_analysis_ids":[]}',
        '{"verdict":"UNKNOWN","unsupported_analysis_ids":[]}',
        '{"verdict":"SUPPORTED","unsupported_analysis_ids":[],"reason":"x"}',
        '{"verdict":"UNSUPPORTED","verdict":"SUPPORTED","unsupported_analysis_ids":[]}',
        '{"verdict":"SUPPORTED","unsupported_analysis_ids":["A1"]}',
        '{"verdict":"UNSUPPORTED","unsupported_analysis_ids":["A3"]}',
        '{"verdict":"UNSUPPORTED","unsupported_analysis_ids":"A1"}',
        '{"verdict":"UNSUPPORTED","unsupported_analysis_ids":[]}' + " " * 5000,
    ],
)
def test_r91_an_unusable_judgement_is_none_never_a_verdict(text: str) -> None:
    assert parse_judgement(text, DRAFT) is None


@given(st.text(max_size=80))
def test_r91_parse_judgement_never_raises(text: str) -> None:
    assert parse_judgement(text, DRAFT) is None


@pytest.mark.parametrize(
    ("statement", "supported"),
    [
        (
            "日志 application-logs（最近 30 分钟，查询 error OR timeout）：命中 128 条；`HTTP 503 from payment-svc`",
            True,
        ),
        ("2 events between 2026-01-05T10:00:01 and 10:00:02Z", True),
        ("128 errors, `HTTP 503`", True),
        ("129 errors, `HTTP 503`", False),
        ("payment_v2 failed: `HTTP 503`", False),
        ("OOM: `HTTP 503`", False),
        ("`HTTP 504`", False),
        ("a broken quote `HTTP 503", False),
        ("the pool orders exhausted waiting", True),
        ("磁盘空间已满", False),
    ],
)
def test_r91_lexical_verdict_on_one_observation(statement: str, supported: bool) -> None:
    made = draft(observation(1, statement, "log-1"), conclusion="`HTTP 503`")
    judgement = lexical_verdict(made, EVIDENCE)
    assert (judgement.verdict is SemanticVerdict.SUPPORTED) is supported
    assert judgement.unsupported_analysis_ids == ([] if supported else ["A1"])


def test_r91_lexical_verdict_on_the_conclusion_uses_its_supporting_analyses() -> None:
    analyses = [observation(1, "128 errors", "log-1"), analysis(2, REF, "连接池耗尽时提高 `max_connections`", "rag-1")]
    for supports, verdict in ((["A1", "A2"], SemanticVerdict.SUPPORTED), (["A1"], SemanticVerdict.UNSUPPORTED)):
        made = draft(*analyses, conclusion="连接池耗尽：max_connections（A1）", supports=supports)
        judgement = lexical_verdict(made, EVIDENCE)
        assert judgement.verdict is verdict
        assert judgement.unsupported_analysis_ids == []


def test_r91_lexical_verdict_on_a_negative_observation() -> None:
    def verdict(statement: str, call: str = "log-0") -> SemanticVerdict:
        return lexical_verdict(
            draft(observation(), analysis(2, NEG, statement, call), conclusion="`HTTP 503`"), EVIDENCE
        ).verdict

    assert (
        verdict("日志 application-logs（最近 30 分钟，查询 error OR timeout）：命中 0 条。")
        is SemanticVerdict.SUPPORTED
    )
    assert verdict("没有磁盘问题") is SemanticVerdict.SUPPORTED
    assert verdict("7 matches of kafka_lag") is SemanticVerdict.UNSUPPORTED
    assert verdict("nothing", "log-1") is SemanticVerdict.UNSUPPORTED


def test_r91_checkable_tokens() -> None:
    assert checkable_tokens(
        "At 10:00:01 payment_svc and OrderService hit HTTP 503 (A1), see `quoted_1`.", frozenset({"A1"})
    ) == [
        "10:00:01",
        "payment_svc",
        "OrderService",
        "HTTP",
        "503",
    ]
    assert checkable_tokens("well-known and/or plain words, e.g. these") == []


def test_r91_lexical_containment_measured_on_begin(capsys: pytest.CaptureFixture[str]) -> None:
    """A sanity check, not a quality gate: human labels of 430 statements of a domain without identifiers."""
    path = data_dir() / "claims" / "begin_dev_wow.tsv"
    with path.open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    counts = {True: [0, 0], False: [0, 0]}
    for row in table:
        view = views(logs(result={"text": row["knowledge"]}, scope={}))["log-1"]
        label = row["begin_label"] == "Fully attributable"
        counts[label][lexically_contained(row["response"].replace("`", "'"), [view])] += 1
    kept = counts[True][1] / sum(counts[True])
    refused = counts[False][0] / sum(counts[False])
    with capsys.disabled():
        print(
            f"\nlexical containment on {len(table)} BEGIN rows: attributable kept {kept:.3f}, others refused "
            f"{refused:.3f}, balanced accuracy {(kept + refused) / 2:.3f} (chance 0.5)"
        )
    assert (kept + refused) / 2 > 0.5
