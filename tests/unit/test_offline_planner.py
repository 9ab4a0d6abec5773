from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from release.contract import AnalysisKind, DiagnosisDraft
from service.offline.planner import FinalText, ToolCall, plan
from tests.unit.offline_doubles import (
    NOTHING,
    SEARCH,
    Reply,
    Session,
    found_docs,
    found_logs,
    found_rows,
    logs_schema,
    sql_schema,
    tool_schema,
)

TOOLS = [SEARCH, logs_schema("payment: payment service", "checkout: cart and checkout"), sql_schema("shop: orders")]
RUNBOOK = """# Checkout fails
```logs
topic: payment
query: "not available"
```
```mysql
datasource: shop
concludes: The pool ran dry.
SELECT status, COUNT(*) AS n FROM orders GROUP BY status HAVING COUNT(*) > 9
```
```logs
topic: checkout
query: redis
expect: none
rules out: No Redis errors lately.
```
"""
POOL = "Pool - Connection is not available, request timed out after 30000ms"
QUESTION = "why is checkout failing?"
KEYS = (
    *("events", "patterns", "documents", "rows", "columns", "total", "message", "level", "timestamp", "template"),
    *("count", "first", "last", "content", "title", "source", "scope", "topic", "relevance_level", "attributes"),
)


def answers(**changes: Reply) -> Any:
    replies = {
        "docs": found_docs(("Checkout fails", RUNBOOK, "HIGH")),
        "payment": found_logs(POOL, POOL),
        "checkout": NOTHING,
        "shop": found_rows(["status", "n"], ["PENDING", 41]),
    } | changes

    def answer(name: str, request: dict[str, Any]) -> Reply:
        return replies[request.get("topic") or request.get("datasource") or "docs"]

    return answer


def run(
    question: str = QUESTION, tools: list[dict[str, Any]] | None = None, **changes: Reply
) -> tuple[Session, DiagnosisDraft]:
    session = Session(question, TOOLS if tools is None else tools, answers(**changes))
    return session, DiagnosisDraft.model_validate_json(session.run())


def first_action(question: str, *more: Any) -> Any:
    return plan([SystemMessage("s"), HumanMessage(question), *more], TOOLS)


def called(call_id: str, name: str, args: dict[str, Any], reply: Reply) -> list[Any]:
    call = {"name": name, "args": args, "id": call_id, "type": "tool_call"}
    return [AIMessage(content="", tool_calls=[call]), ToolMessage(json.dumps(reply), tool_call_id=call_id)]


def test_follows_the_runbook_and_concludes_with_quotes() -> None:
    session, draft = run()
    assert [call["input"].get("topic") or call["input"].get("datasource") for call in session.calls] == [
        None, "payment", "shop", "checkout",
    ]  # fmt: skip
    assert draft.conclusion is not None
    assert "The pool ran dry." in draft.conclusion.statement
    assert f"`{POOL}`" in draft.conclusion.statement
    assert "`41`" in draft.conclusion.statement
    kinds = [analysis.kind for analysis in draft.analyses]
    assert kinds == [
        AnalysisKind.REFERENCE_KNOWLEDGE,
        AnalysisKind.OBSERVATION,
        AnalysisKind.OBSERVATION,
        AnalysisKind.NEGATIVE_OBSERVATION,
    ]
    assert "No Redis errors lately." in draft.analyses[-1].statement


def test_r71_each_analysis_cites_the_call_that_fits_its_kind() -> None:
    session, draft = run()
    ids = {call["input"].get("topic") or call["input"].get("datasource"): call["id"] for call in session.calls}
    assert [analysis.tool_call_ids for analysis in draft.analyses] == [
        [ids[None]], [ids["payment"]], [ids["shop"]], [ids["checkout"]],
    ]  # fmt: skip
    assert draft.conclusion is not None
    assert draft.conclusion.supporting_analysis_ids == ["A1", "A2", "A3"]


def test_says_that_no_language_model_was_used() -> None:
    for changes in ({}, {"docs": NOTHING}):
        _, draft = run(**changes)
        assert any("No language model was used" in note for note in draft.limitations.unverified)


def test_a_check_that_misses_leaves_no_conclusion() -> None:
    _, draft = run(shop=NOTHING)
    assert draft.conclusion is None
    assert any("did not match" in note for note in draft.limitations.unverified)


def test_contains_decides_whether_a_check_matched() -> None:
    book = RUNBOOK.replace('query: "not available"', 'query: "not available"\ncontains: other words')
    _, draft = run(docs=found_docs(("Checkout fails", book, "HIGH")))
    assert draft.conclusion is None


def test_what_was_expected_to_be_empty_and_is_not_stays_unverified() -> None:
    _, draft = run(checkout=found_logs("redis refused"))
    assert draft.conclusion is not None
    assert any("Not ruled out" in note for note in draft.limitations.unverified)
    assert AnalysisKind.NEGATIVE_OBSERVATION not in [analysis.kind for analysis in draft.analyses]


def test_r26_the_previous_result_is_evaluated_exactly_when_it_found_something() -> None:
    session, _ = run()
    assert session.violations == 0
    verdicts = [call.get("previous_observation", {}).get("information_gain") for call in session.calls]
    assert verdicts == [None, "GAINED", "GAINED", "GAINED"]


def test_r25_after_no_evidence_no_evaluation_is_sent() -> None:
    session, _ = run(docs=NOTHING)
    assert "previous_observation" not in session.calls[1]


def test_r21_a_document_without_checks_is_no_gain() -> None:
    session, _ = run(docs=found_docs(("Generic", "Restart things.", "HIGH")))
    assert session.calls[1]["previous_observation"]["information_gain"] == "NO_GAIN"


def test_r32_a_protocol_error_is_repaired_with_the_expected_id() -> None:
    found = found_docs(("Checkout fails", RUNBOOK, "HIGH")) | {"tool_call_id": "c1"}
    history = called("c1", "find_docs", {"input": {"query": QUESTION, "top_k": 3}}, found)
    error = {"error_code": "INVALID_PROGRESS_PROTOCOL", "expected_previous_tool_call_id": "c1", "repair_required": True}
    wanted = first_action(QUESTION, *history)
    assert isinstance(wanted, ToolCall)
    again = first_action(QUESTION, *history, *called("c2", wanted.name, {"input": wanted.args["input"]}, error))
    assert isinstance(again, ToolCall)
    assert again.args == wanted.args
    assert again.args["previous_observation"] == {"tool_call_id": "c1", "information_gain": "GAINED"}
    assert again.id not in {"c1", "c2"}


def test_r33_without_an_expected_id_the_evaluation_is_left_out() -> None:
    error = {"error_code": "INVALID_PROGRESS_PROTOCOL", "violation_type": "UNEXPECTED_PREVIOUS_OBSERVATION"}
    request = {"input": {"query": QUESTION, "top_k": 3}}
    action = first_action(QUESTION, *called("c1", "find_docs", request, error))
    assert isinstance(action, ToolCall)
    assert action.args == request


def test_r28_an_invalid_request_keeps_the_evaluation_for_the_next_call() -> None:
    found = found_docs(("Checkout fails", RUNBOOK, "HIGH")) | {"tool_call_id": "c1"}
    history = called("c1", "find_docs", {"input": {"query": QUESTION, "top_k": 3}}, found)
    refused = {"error_code": "INVALID_TOOL_REQUEST", "field": "input.topic", "rule": "x", "allowed": "y"}
    action = first_action(QUESTION, *history, *called("c2", "read_logs", {"input": {"topic": "payment"}}, refused))
    assert isinstance(action, ToolCall)
    assert action.args["previous_observation"]["tool_call_id"] == "c1"


@pytest.mark.parametrize(
    "stop", [{"stop_required": True, "reason": "INFORMATION_SATURATED"}, {"error_code": "COLLECTION_STOPPED"}]
)
def test_r57_after_the_stop_directive_it_drafts_at_once(stop: Reply) -> None:
    history = called("c1", "find_docs", {"input": {"query": QUESTION, "top_k": 3}}, {**NOTHING, **stop})
    action = first_action(QUESTION, *history)
    assert isinstance(action, FinalText)
    draft = DiagnosisDraft.model_validate_json(action.text)
    assert draft.conclusion is None
    assert any("had to stop" in note for note in draft.limitations.unverified)


def test_r101_a_question_that_names_nothing_asks_back_without_a_tool() -> None:
    session, draft = run("what is wrong?")
    assert session.calls == []
    assert draft.limitations.missing_info


def test_without_any_tool_it_ends_with_a_valid_draft() -> None:
    session, draft = run(tools=[])
    assert session.calls == []
    assert draft.conclusion is None
    assert draft.limitations.missing_info


def test_r77_the_final_text_is_bare_json() -> None:
    action = first_action("what is wrong?")
    assert isinstance(action, FinalText)
    assert action.text.startswith("{")
    assert action.text.endswith("}")


def test_the_same_conversation_gives_the_same_bytes() -> None:
    one, _ = run()
    other, _ = run()
    assert [message.content for message in one.messages] == [message.content for message in other.messages]


def test_answers_chinese_questions_in_chinese() -> None:
    _, draft = run("结算为什么失败？")
    assert draft.limitations.unverified[0].startswith("未使用语言模型")


def test_earlier_turns_of_a_conversation_are_not_this_run() -> None:
    old = called("offline-1", "find_docs", {"input": {"query": "old", "top_k": 3}}, NOTHING)
    action = plan([HumanMessage("old"), *old, AIMessage("{}"), HumanMessage(QUESTION)], TOOLS)
    assert isinstance(action, ToolCall)
    assert action.id == "offline-2"
    assert "previous_observation" not in action.args


def test_the_probe_shows_telling_lines_of_related_topics_only() -> None:
    noise = [f"INFO request {n} ok" for n in range(9)]
    session, draft = run(
        "why is payment slow?",
        docs=NOTHING,
        payment=found_logs("ERROR upstream call timed out after 9 s", *noise, level=""),
    )
    assert {call["input"].get("topic") for call in session.calls} == {None, "payment"}
    assert [analysis.kind for analysis in draft.analyses] == [AnalysisKind.OBSERVATION]
    assert "`ERROR upstream call timed out after 9 s`" in draft.analyses[0].statement


def looks(session: Session) -> list[tuple[str, str]]:
    """Topic of each log call, and whether it asked for words or for everything."""
    requests = [call["input"] for call in session.calls if "topic" in call["input"]]
    return [(request["topic"], "words" if request["query"] else "all") for request in requests]


def test_the_probe_starts_with_the_topic_the_question_names() -> None:
    session, _ = run("what is wrong with the cart?", docs=NOTHING, checkout=found_logs("cart failed: disk full"))
    assert looks(session) == [("checkout", "words")]


def test_without_a_named_topic_the_tour_goes_on_in_the_catalogues_order() -> None:
    session, draft = run("why do exports hang?", docs=found_docs(("Generic", "Restart things.", "HIGH")))
    assert [topic for topic, _ in looks(session)] == ["payment", "checkout"]
    assert "timed out after 30000ms" in draft.analyses[0].statement


def test_a_silent_topic_waits_for_the_others_before_it_is_read_in_full() -> None:
    tools = [SEARCH, logs_schema("payment: payment pods", "cluster: descriptions of pods")]
    generic = found_docs(("Generic", "Restart things.", "HIGH"))
    replies = {"payment": NOTHING, "cluster": found_logs("Warning FailedScheduling: 1 Insufficient cpu", level="WARN")}
    session = Session(
        "why is the payment pod pending?", tools, lambda name, r: replies.get(r.get("topic", ""), generic)
    )
    draft = DiagnosisDraft.model_validate_json(session.run())
    assert looks(session) == [("payment", "words"), ("cluster", "words")]
    assert "Insufficient cpu" in draft.analyses[0].statement


def test_a_log_tool_without_a_limit_is_not_sent_one() -> None:
    plain = tool_schema("read_logs", "- payment: x", {"topic": {}, "query": {}, "lookback_minutes": {"maximum": 60}})
    session = Session("why is payment down?", [plain], lambda name, request: NOTHING)
    session.run()
    assert {tuple(sorted(call["input"])) for call in session.calls} == {("lookback_minutes", "query", "topic")}
    assert all(call["input"]["lookback_minutes"] == 60 for call in session.calls)


def test_tool_errors_and_garbage_answers_never_break_it() -> None:
    error = {"evidence_status": "ERROR", "error_code": "TOOL_TIMEOUT", "message": "x"}
    for reply in (
        error,
        {"unexpected": []},
        {"evidence_status": "EVIDENCE_FOUND", "events": "no list", "documents": 3},
    ):
        session = Session(QUESTION, TOOLS, lambda name, request, reply=reply: dict(reply))
        draft = DiagnosisDraft.model_validate_json(session.run())
        assert draft.conclusion is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**6) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8), min_size=1, max_size=4))
def test_any_observation_leads_to_a_legal_action(replies: list[Reply]) -> None:
    history: list[Any] = []
    for number, reply in enumerate(replies):
        action = first_action(QUESTION, *history)
        if isinstance(action, FinalText):
            DiagnosisDraft.model_validate_json(action.text)
            return
        status = {"evidence_status": "EVIDENCE_FOUND", "tool_call_id": f"c{number}"}
        history += called(f"c{number}", action.name, action.args, {**reply, **status})
    action = first_action(QUESTION, *history)
    if isinstance(action, FinalText):
        DiagnosisDraft.model_validate_json(action.text)
