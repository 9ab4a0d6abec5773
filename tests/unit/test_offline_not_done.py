"""A draft says which checks could not be run and which topics nobody looked at, and draws no conclusion from a gap."""

from __future__ import annotations

import pytest

from release.contract import DiagnosisDraft
from tests.unit.offline_doubles import NOTHING, SEARCH, Reply, Session, found_docs, found_logs, logs_schema
from tests.unit.test_offline_planner import POOL, QUESTION, RUNBOOK, run

FIRST = 'query: "not available"\n'
ERROR: Reply = {"evidence_status": "ERROR", "error_code": "TOOL_TIMEOUT", "message": "secret text"}
REFUSED: Reply = {"error_code": "INVALID_TOOL_REQUEST", "field": "input.sql", "rule": "NOT_A_SELECT", "allowed": "x"}


def said_twice(draft: DiagnosisDraft, *parts: str) -> bool:
    """True when one sentence in both lists of limitations holds all parts."""
    limits = draft.limitations
    return any(
        all(part in note for part in parts)
        for note in limits.missing_info
        if note in limits.unverified and len(note) < 200
    )


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (FIRST, FIRST + "lookbak: 60\n", "unknown key lookbak"),
        (FIRST, FIRST + "lookback: ten\n", "whole minutes from 1 to 10080"),
        ("topic: payment\n", "", "topic is missing"),
        ("datasource: shop\n", "", "datasource is missing"),
        ("SELECT status, COUNT(*) AS n FROM orders GROUP BY status HAVING COUNT(*) > 9\n", "", "SQL is missing"),
        ("The pool ran dry.", "The pool ran dry. " * 40, "concludes is too long"),
    ],
)
def test_a_malformed_check_leaves_its_group_without_a_conclusion(old: str, new: str, why: str) -> None:
    _, draft = run(docs=found_docs(("Checkout fails", RUNBOOK.replace(old, new, 1), "HIGH")))
    assert draft.conclusion is None
    assert said_twice(draft, "Checkout fails", "could not be run", why)


def test_a_malformed_check_is_named_in_chinese_too() -> None:
    book = RUNBOOK.replace(FIRST, FIRST + "lookbak: 60\n")
    _, draft = run("结算为什么失败？", docs=found_docs(("结算失败", book, "HIGH")))
    assert draft.conclusion is None
    assert said_twice(draft, "手册《结算失败》的检查未能执行", "lookbak")


@pytest.mark.parametrize(
    ("reply", "why"), [(REFUSED, "NOT_A_SELECT"), (ERROR, "TOOL_TIMEOUT"), ({}, "no usable result")]
)
def test_a_refused_or_failed_check_leaves_its_group_without_a_conclusion(reply: Reply, why: str) -> None:
    _, draft = run(shop=reply)
    assert draft.conclusion is None
    assert said_twice(draft, "Checkout fails", "shop", why)
    assert "secret text" not in draft.model_dump_json()


def test_a_check_without_its_tool_is_named() -> None:
    _, draft = run(tools=[SEARCH, logs_schema("payment: x", "checkout: y")])
    assert draft.conclusion is None
    assert said_twice(draft, "Checkout fails", "no tool")


@pytest.mark.parametrize("reply", [ERROR, REFUSED])
def test_a_failed_check_after_the_conclusion_stays_unverified(reply: Reply) -> None:
    _, draft = run(checkout=reply)
    assert draft.conclusion is not None
    assert any("could not be run: checkout" in note for note in draft.limitations.unverified)
    assert draft.limitations.missing_info == []


def test_a_malformed_check_after_the_conclusion_stays_unverified() -> None:
    book = RUNBOOK.replace("query: redis", "query: redis\nlookbak: 5")
    _, draft = run(docs=found_docs(("Checkout fails", book, "HIGH")))
    assert draft.conclusion is not None
    assert any("unknown key lookbak" in note for note in draft.limitations.unverified)


@pytest.mark.parametrize(("more", "reply"), [("lookbak: 5\n", NOTHING), ("", ERROR)])
def test_a_check_expected_to_find_nothing_counts_within_its_group(more: str, reply: Reply) -> None:
    inner = f"```logs\ntopic: checkout\nquery: redis\n{more}expect: none\n```\n```mysql"
    _, draft = run(docs=found_docs(("Checkout fails", RUNBOOK.replace("```mysql", inner), "HIGH")), checkout=reply)
    assert draft.conclusion is None
    assert said_twice(draft, "Checkout fails", "could not be run")


def test_a_next_group_may_still_conclude() -> None:
    book = f"```logs\ntopic: payment\nlookbak: 5\nconcludes: Never.\n```\n{RUNBOOK}"
    _, draft = run(docs=found_docs(("Checkout fails", book, "HIGH")))
    assert draft.conclusion is not None
    assert "The pool ran dry." in draft.conclusion.statement
    assert "Never." not in draft.model_dump_json()
    assert any("unknown key lookbak" in note for note in draft.limitations.unverified)


def test_sentences_stay_bounded_and_free_of_backticks() -> None:
    book = RUNBOOK.replace(FIRST, FIRST + f"{'k' * 300}: 1\n")
    _, draft = run(docs=found_docs(("`T` " * 100, book, "HIGH")))
    (note,) = [note for note in draft.limitations.missing_info if "could not be run" in note]
    assert len(note) < 200
    assert note.endswith(".")
    assert "`" not in note


def probe_of(*topics: str, reply: Reply, question: str = QUESTION) -> list[str]:
    session = Session(question, [logs_schema(*topics)], lambda name, request: reply)
    return DiagnosisDraft.model_validate_json(session.run()).limitations.missing_info


def test_r57_topics_that_the_stop_left_unseen_are_named() -> None:
    notes = probe_of("alpha: x", "beta: x", "gamma: x", "delta: x", "eps: x", reply=NOTHING)
    assert "Log topics not looked at: delta, eps." in notes


def test_the_stop_is_told_in_chinese_too() -> None:
    notes = probe_of("alpha: x", "beta: x", "gamma: x", "delta: x", reply=NOTHING, question="结算为什么失败？")
    assert "尚未查看的日志主题：delta。" in notes


def test_topics_left_when_the_probe_used_up_its_looks_are_named() -> None:
    notes = probe_of(*(f"t{n}: x" for n in range(6)), reply=found_logs(POOL))
    assert "Log topics not looked at: t4, t5." in notes


def test_many_unseen_topics_are_counted_not_listed() -> None:
    notes = probe_of(*(f"topic-{n:02d}-with-a-rather-long-name: x" for n in range(40)), reply=NOTHING)
    (note,) = [note for note in notes if "not looked at" in note]
    assert len(note) <= 200
    assert " more." in note


def test_when_every_topic_was_looked_at_none_is_named() -> None:
    assert not any("not looked at" in note for note in probe_of("alpha: x", "beta: x", reply=found_logs(POOL)))
