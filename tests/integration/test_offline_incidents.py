"""The offline model over the recorded incidents and the example, with the real tools and the real guards."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from release.contract import AnalysisKind, DiagnosisDraft
from release.contract import SemanticVerdict as Verdict
from release.evidence_guard import check_evidence
from release.semantic_guard import lexical_verdict
from service.evaluate import Case, Evaluation, load_cases, score_case
from tests.data import ROOT, data_dir
from tests.integration.offline_loop import RUN, Loop, build_tools
from tools.catalog import load_catalog

SHOP = ROOT / "examples" / "shop" / "superbiz.toml"


async def diagnose(catalog_file: Path, question: str, index_dir: Path) -> tuple[Loop, DiagnosisDraft]:
    catalog = load_catalog(catalog_file)
    now = catalog.now if isinstance(catalog.now, float) else time.time()
    loop = Loop(build_tools(catalog, index_dir), question, now)
    return loop, await loop.run()


def shown(draft: DiagnosisDraft) -> dict[str, object]:
    findings = [{"statement": a.statement, "tool_call_ids": a.tool_call_ids} for a in draft.analyses]
    return {"conclusion": draft.conclusion.statement if draft.conclusion else None, "findings": findings}


async def test_recorded_incidents_show_their_key_facts_with_citations(tmp_path: Path) -> None:
    cases = load_cases(data_dir() / "incidents")
    scores = []
    for case in cases:
        loop, draft = await diagnose(case.catalog, case.question, tmp_path)
        assert loop.violations == 0, case.name
        assert draft.conclusion is None, case.name
        assert check_evidence(draft, RUN, loop.evidence) == (), case.name
        assert lexical_verdict(draft, loop.evidence).verdict is Verdict.SUPPORTED, case.name
        assert len(draft.analyses) <= 8, case.name
        scores.append(score_case(case.name, case.key_fact, "FALLBACK", shown(draft)))
    evaluation = Evaluation(tuple(scores))
    assert len(scores) == 10
    assert evaluation.published == 10
    assert evaluation.matched >= 8, [score.name for score in scores if not score.matched]
    assert evaluation.other_share is not None
    assert evaluation.other_share <= 0.4


def words_of(case: Case) -> set[str]:
    names = re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)+", case.question.lower())
    literals = re.findall(r"[A-Za-z]{2,}(?:[_\-][A-Za-z]+)+|memcom|SELCT", case.key_fact.pattern)
    return {word.lower() for word in [*names, *literals]}


def test_no_word_of_a_case_is_in_the_code() -> None:
    words = {word for case in load_cases(data_dir() / "incidents") for word in words_of(case)}
    assert len(words) >= 12
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "service").rglob("*.py")).lower()
    assert [word for word in sorted(words) if word in code] == []


@pytest.mark.parametrize(
    ("question", "redis"),
    [("结算为什么失败？", "Redis"), ("why is checkout failing?", "Redis"), ("订单服务 5xx 突增, 为什么?", "Redis")],
)
async def test_the_shop_incident_is_solved_offline(tmp_path: Path, question: str, redis: str) -> None:
    loop, draft = await diagnose(SHOP, question, tmp_path)
    assert loop.violations == 0
    assert loop.stopped, "three checks that find nothing end the collection"
    assert draft.conclusion is not None
    assert (
        "`INFO  rollout: #4127 finished: payment-service config db.pool.max_size: 40 -> 5`"
        in draft.conclusion.statement
    )
    assert "Connection is not available, request timed out after 30000ms" in draft.conclusion.statement
    assert "`PAYMENT_PENDING`" in draft.conclusion.statement
    negative = [a for a in draft.analyses if a.kind is AnalysisKind.NEGATIVE_OBSERVATION]
    assert len(negative) == 3
    assert redis in negative[0].statement
    assert check_evidence(draft, RUN, loop.evidence) == ()
    assert lexical_verdict(draft, loop.evidence).verdict is Verdict.SUPPORTED


async def test_the_red_herring_is_loud_but_over(tmp_path: Path) -> None:
    loop, draft = await diagnose(SHOP, "为什么购物车加购失败？", tmp_path)
    assert draft.conclusion is None
    assert any("Redis" in a.statement or "redis" in a.statement for a in draft.analyses)
    assert any("redis" in note.lower() for note in draft.limitations.unverified)
    assert check_evidence(draft, RUN, loop.evidence) == ()


async def test_a_question_without_substance_asks_back(tmp_path: Path) -> None:
    loop, draft = await diagnose(SHOP, "为什么？", tmp_path)
    assert loop.log == []
    assert draft.limitations.missing_info
