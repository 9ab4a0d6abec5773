"""Draft and release on the real graph: every branch of R77-R94."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graph.contract import Component
from nodes.ports import ModelFailureKind, ModelReply
from tests.fakes import SUPPORTED, UNSUPPORTED, Answer, ProbeTool, by_round, call, calls, draft, text
from tests.loop import Loop, make_loop
from tools.contract import EvidenceKind

FOUND = call("c1", "found a")
SEEN = ("A1", "OBSERVATION", "line about found a", ["c1"])
CONCLUDED = draft("cause of it", [SEEN])
FALSE = ("A1", "OBSERVATION", "line about found a", ["c9"])


async def ran(
    agent: list[Answer], repair: list[Answer] | tuple[()] = (), semantics: list[Answer] | None = None, **options: Any
) -> Loop:
    context = options.pop("context", {})
    loop = make_loop(by_round(agent, repair, semantics or [SUPPORTED]), **options)
    await loop.run(**context)
    return loop


def asked(loop: Loop) -> list[str]:
    return [request.component.value for request in loop.model.requests]


async def visited(loop: Loop) -> list[str]:
    return [batch.key.partition(":")[2] for batch in loop.journal.batches]


def assert_insufficient(loop: Loop, *, facts: bool) -> dict[str, Any]:
    assert loop.outcome["release_outcome"] == "FALLBACK"
    assert loop.outcome["published_result"] is None
    fallback: dict[str, Any] = loop.outcome["fallback"]
    assert fallback["reason"] == "INSUFFICIENT_EVIDENCE"
    assert bool(fallback["observed_facts"]) is facts
    return fallback


def assert_failed(loop: Loop) -> None:
    assert (loop.outcome["release_outcome"], loop.outcome["internal_state"]) == ("NONE", "FAILED")
    assert loop.outcome["fallback"] is None
    assert loop.outcome["published_result"] is None
    assert loop.outcome["error_code"]


async def test_r81_a_supported_conclusion_passes_both_guards_and_is_published() -> None:
    loop = await ran([FOUND, CONCLUDED])
    assert (loop.outcome["release_outcome"], loop.outcome["internal_state"]) == ("CONCLUSION", "SUCCESS")
    assert asked(loop) == ["DIAGNOSIS_AGENT"] * 2 + ["SEMANTIC_GUARD"]
    published = loop.outcome["published_result"]
    assert set(published) == {"query", "outcome", "conclusion", "findings", "scope", "limitations", "documents"}
    assert published["conclusion"] == "cause of it"
    assert published["findings"] == [
        {"statement": "line about found a", "kind": "OBSERVATION", "tool_call_ids": ["c1"]}
    ]
    record = await loop.record()
    assert (record.published_result, record.release_outcome) == (published, "CONCLUSION")


async def test_r82_a_null_conclusion_skips_repair_and_semantic_guard() -> None:
    loop = await ran([FOUND, draft(None, [SEEN])])
    assert asked(loop) == ["DIAGNOSIS_AGENT"] * 2
    assert "guard_evidence" not in await visited(loop)
    assert_insufficient(loop, facts=True)
    assert loop.outcome["internal_state"] == "SUCCESS"


async def test_r85_zero_tools_with_missing_info_asks_for_context() -> None:
    loop = await ran([draft(None, missing_info=["which service?"])])
    fallback = loop.outcome["fallback"]
    assert fallback["reason"] == "MISSING_REQUIRED_CONTEXT"
    assert fallback["limitations"]["missing_info"] == ["which service?"]
    assert (fallback["process"], fallback["observed_facts"]) == ([], [])
    assert loop.outcome["internal_state"] == "SUCCESS"


async def test_r88a_zero_tools_without_missing_info_is_insufficient_with_empty_process() -> None:
    loop = await ran([draft()])
    assert assert_insufficient(loop, facts=False)["process"] == []


async def test_r88b_after_tools_missing_info_is_shown_in_insufficient_evidence() -> None:
    loop = await ran([FOUND, draft(None, [], ["which service?"])])
    fallback = assert_insufficient(loop, facts=True)
    assert fallback["limitations"]["missing_info"] == ["which service?"]
    assert len(fallback["process"]) == 1


async def test_r85_a_call_that_never_entered_the_boundary_is_zero_tools() -> None:
    loop = await ran([call("c1", "invalid"), draft(None, missing_info=["which service?"])])
    assert loop.outcome["fallback"]["reason"] == "MISSING_REQUIRED_CONTEXT"


async def test_r85_a_failed_tool_call_is_in_the_index_and_so_no_zero_tools() -> None:
    loop = await ran([call("c1", "error"), draft(None, missing_info=["which service?"])])
    fallback = assert_insufficient(loop, facts=False)
    assert "TOOL_ERROR" in fallback["limitations"]["notes"]


async def test_r88c_budget_with_an_empty_snapshot_is_a_fallback_with_empty_process() -> None:
    loop = await ran([FOUND], context={"budget": {"tool_calls": 0}})
    fallback = assert_insufficient(loop, facts=False)
    assert fallback["process"] == []
    assert fallback["limitations"]["notes"] == ["STOPPED_BUDGET"]
    assert loop.outcome["internal_state"] == "BUDGET_EXHAUSTED"


async def test_r88d_a_conclusion_after_the_stop_is_a_normal_draft() -> None:
    agent = [FOUND, call("c2", "none b", ("c1", "GAINED")), CONCLUDED]
    loop = await ran(agent, context={"no_gain_threshold": 1})
    assert (loop.outcome["release_outcome"], loop.outcome["internal_state"]) == ("CONCLUSION", "SUCCESS")
    assert loop.outcome["published_result"]["limitations"]["notes"] == []
    (saturated,) = await loop.events("COLLECTION_SATURATED")
    assert saturated["stop_reason"] == "INFORMATION_SATURATED"


@pytest.mark.parametrize(
    "analysis",
    [
        ("A1", "OBSERVATION", "SECRET-STATEMENT", ["c9"]),
        ("A1", "NEGATIVE_OBSERVATION", "SECRET-STATEMENT", ["c1"]),
        ("A1", "OBSERVATION", "SECRET-STATEMENT", ["c2"]),
    ],
    ids=["no such call", "negative semantics", "failed call"],
)
async def test_r88e_a_false_reference_in_a_no_conclusion_draft_is_dropped_and_traced(analysis: Any) -> None:
    loop = await ran([FOUND, call("c2", "error", ("c1", "GAINED")), draft(None, [analysis])])
    fallback = assert_insufficient(loop, facts=True)
    assert "SECRET-STATEMENT" not in json.dumps(fallback)
    (guard,) = await loop.events("EVIDENCE_GUARD")
    assert guard["violations"] == ["REFERENCE_INVALID"]


async def test_r88f_r90_a_draft_that_repair_does_not_save_falls_back_to_the_snapshot() -> None:
    loop = await ran([FOUND, draft("cause of it", [FALSE])], [draft("cause of it", [FALSE])])
    fallback = assert_insufficient(loop, facts=True)
    assert "cause of it" not in json.dumps(fallback)
    assert asked(loop) == ["DIAGNOSIS_AGENT"] * 2 + ["EVIDENCE_REPAIR"]
    assert [event["passed"] for event in await loop.events("EVIDENCE_GUARD")] == [False, False]


async def test_r88f_r91_unsupported_is_final_and_the_conclusion_stays_unpublished() -> None:
    loop = await ran([FOUND, CONCLUDED], semantics=[UNSUPPORTED, SUPPORTED])
    assert "cause of it" not in json.dumps(assert_insufficient(loop, facts=True))
    assert asked(loop).count("SEMANTIC_GUARD") == 1
    (event,) = await loop.events("SEMANTIC_GUARD")
    assert (event["verdict"], event["attempt"]) == ("UNSUPPORTED", 1)


@pytest.mark.parametrize(
    "bad",
    [
        text("not json"),
        text('```json\n{"verdict":"SUPPORTED","unsupported_analysis_ids":[]}\n```'),
        text('{"verdict":"MAYBE","unsupported_analysis_ids":[]}'),
        text('{"verdict":"SUPPORTED","unsupported_analysis_ids":["A1"]}'),
        call("g1", "found a"),
        ModelFailureKind.TIMEOUT,
        ModelFailureKind.MALFORMED_RESPONSE,
    ],
)
async def test_r91_a_format_failure_gets_a_second_attempt(bad: Answer) -> None:
    loop = await ran([FOUND, CONCLUDED], semantics=[bad, SUPPORTED])
    assert loop.outcome["release_outcome"] == "CONCLUSION"
    assert asked(loop).count("SEMANTIC_GUARD") == 2
    (event,) = await loop.events("SEMANTIC_GUARD")
    assert (event["verdict"], event["attempt"]) == ("SUPPORTED", 2)


async def test_r88g_a_semantic_guard_that_cannot_run_is_a_fallback_with_facts() -> None:
    loop = await ran([FOUND, CONCLUDED], semantics=[text("x"), text("y"), SUPPORTED])
    fallback = assert_insufficient(loop, facts=True)
    assert "FAULT" in fallback["limitations"]["notes"]
    assert asked(loop).count("SEMANTIC_GUARD") == 2


async def test_r88g_a_semantic_guard_that_cannot_run_without_facts_is_failed() -> None:
    class Silent(ProbeTool):
        def facts(self, scope: Any, agent_result: Any) -> tuple[Any, ...]:
            return ()

    loop = await ran([FOUND, CONCLUDED], semantics=[ModelFailureKind.AUTHENTICATION], tool=Silent())
    assert_failed(loop)


@pytest.mark.parametrize(
    ("output", "failure"),
    [
        ("", "EMPTY_OUTPUT"),
        ("  \n ", "EMPTY_OUTPUT"),
        (f"```json\n{CONCLUDED.text}\n```", "NOT_JSON"),
        (f"Here it is: {CONCLUDED.text}", "NOT_JSON"),
        (f"{CONCLUDED.text} done", "NOT_JSON"),
        (CONCLUDED.text[:-1], "NOT_JSON"),
        ("[]", "SCHEMA_VIOLATION"),
        ('{"conclusion":null}', "SCHEMA_VIOLATION"),
        (CONCLUDED.text.replace('"analyses"', '"confidence":1,"analyses"'), "SCHEMA_VIOLATION"),
        (CONCLUDED.text.replace("cause of it", "x" * 33_000), "OUTPUT_TOO_LARGE"),
    ],
)
@pytest.mark.parametrize("facts", [True, False])
async def test_r77_r78_r79_an_illegal_draft_is_discarded_whole(output: str, failure: str, facts: bool) -> None:
    loop = await ran([*([FOUND] if facts else []), text(output), CONCLUDED])
    if facts:
        assert_insufficient(loop, facts=True)
    else:
        assert_failed(loop)
    assert asked(loop) == ["DIAGNOSIS_AGENT"] * (1 + facts), "no model repair of an illegal draft (R77)"
    assert loop.state.get("draft") is None
    (rejected,) = await loop.events("AGENT_OUTPUT_REJECTED")
    assert rejected == {
        "type": "AGENT_OUTPUT_REJECTED",
        "failure": failure,
        "output_bytes": len(output.encode()),
        "has_publishable_progress": facts,
    }
    if output.strip():
        assert output not in [message.content for message in loop.state["messages"]]


async def test_r78_an_illegal_draft_after_the_stop_follows_the_same_rule() -> None:
    for agent, facts in (([call("c1", "none a")], True), ([call("c1", "error"), call("c2", "invalid")], False)):
        loop = await ran([*agent, text("so it is the pool")], context={"no_gain_threshold": 1})
        if facts:
            assert_insufficient(loop, facts=True)
            assert loop.outcome["reason"] == "OUTPUT_REJECTED"
        else:
            assert_failed(loop)


async def test_r78_a_message_with_tool_calls_is_never_a_draft() -> None:
    both = ModelReply(FOUND.message, FOUND.calls, CONCLUDED.text, None)
    loop = await ran([both, draft()])
    assert loop.outcome["release_outcome"] == "FALLBACK"
    assert loop.tool.ran == ["found a"]


async def test_r83_saturation_without_a_draft_is_built_without_another_model_call() -> None:
    agent = [FOUND, call("c2", "none b", ("c1", "GAINED")), call("c3", "found c"), CONCLUDED]
    loop = await ran(agent, context={"no_gain_threshold": 1})
    fallback = assert_insufficient(loop, facts=True)
    assert asked(loop) == ["DIAGNOSIS_AGENT"] * 3
    assert fallback["limitations"]["notes"] == ["STOPPED_INFORMATION_SATURATED"]
    assert (loop.outcome["internal_state"], loop.outcome["stop_reason"]) == ("SUCCESS", "INFORMATION_SATURATED")


@pytest.mark.parametrize("facts", [True, False])
async def test_r84_a_protocol_stop_needs_verified_facts(facts: bool) -> None:
    first = [FOUND] if facts else [call("c1", "error")]
    wrong = [calls((f"c{i}", "query_probe", {"input": {"query": "found b"}, "extra": 1})) for i in (2, 3, 4)]
    loop = await ran([*first, *wrong])
    assert loop.outcome["stop_reason"] == "PROGRESS_PROTOCOL_VIOLATED"
    if facts:
        assert "STOPPED_PROTOCOL" in assert_insufficient(loop, facts=True)["limitations"]["notes"]
    else:
        assert_failed(loop)


@pytest.mark.parametrize("facts", [True, False])
async def test_r87_a_model_fault_without_a_safe_process_is_failed(facts: bool) -> None:
    loop = await ran([*([FOUND] if facts else []), ModelFailureKind.AUTHENTICATION])
    if facts:
        assert "FAULT" in assert_insufficient(loop, facts=True)["limitations"]["notes"]
        assert loop.outcome["reason"] == "FAULT"
    else:
        assert_failed(loop)
    assert loop.outcome["stop_reason"] is None


async def test_r90_a_repair_that_relinks_is_accepted_and_judged_again() -> None:
    loop = await ran([FOUND, draft("cause of it", [FALSE])], [CONCLUDED])
    assert loop.outcome["release_outcome"] == "CONCLUSION"
    assert asked(loop) == ["DIAGNOSIS_AGENT"] * 2 + ["EVIDENCE_REPAIR", "SEMANTIC_GUARD"]
    assert [event["passed"] for event in await loop.events("EVIDENCE_GUARD")] == [False, True]
    (request,) = loop.model.asked(Component.EVIDENCE_REPAIR)
    assert request.tools == ()
    assert loop.outcome["published_result"]["findings"][0]["tool_call_ids"] == ["c1"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (draft("another cause", [SEEN]), "REPAIR_CHANGED_STATEMENT"),
        (draft("cause of it", [("A1", "OBSERVATION", "line about found b", ["c1"])]), "REPAIR_CHANGED_STATEMENT"),
        (text("I cannot"), "UNPARSABLE"),
        (text(""), "UNPARSABLE"),
        (ModelFailureKind.CONNECTION, "CONNECTION"),
        (ModelFailureKind.CONTENT_FILTERED, "CONTENT_FILTERED"),
        (call("r1", "found a"), "TOOL_CALLS"),
    ],
)
async def test_r90_a_repair_that_is_not_taken_leaves_the_guard_s_verdict(answer: Answer, reason: str) -> None:
    loop = await ran([FOUND, draft("cause of it", [FALSE])], [answer, CONCLUDED])
    assert_insufficient(loop, facts=True)
    assert asked(loop).count("EVIDENCE_REPAIR") == 1, "one attempt (R118)"
    (event,) = await loop.events("EVIDENCE_REPAIR")
    assert (event["accepted"], event["reason"]) == (False, reason)
    assert loop.tool.ran == ["found a"]


async def test_r90_a_repair_to_null_is_judged_as_a_draft_without_conclusion() -> None:
    loop = await ran([FOUND, draft("cause of it", [FALSE], ["which service?"])], [draft(None, [SEEN])])
    fallback = assert_insufficient(loop, facts=True)
    assert loop.outcome["reason"] == "NO_CONCLUSION"
    assert fallback["limitations"]["missing_info"] == ["which service?"], "limitations are the original's"
    assert "SEMANTIC_GUARD" not in asked(loop)


async def test_r90_no_repair_is_asked_for_where_nothing_could_be_repaired() -> None:
    loop = await ran([draft("cause of it", [FALSE])], [CONCLUDED])
    assert asked(loop) == ["DIAGNOSIS_AGENT"]
    assert "cause of it" not in json.dumps(assert_insufficient(loop, facts=False))


async def test_r89_documents_alone_carry_no_conclusion_and_are_no_facts() -> None:
    tool = ProbeTool(kind=EvidenceKind.DOCUMENTS)
    loop = await ran([FOUND, CONCLUDED], [CONCLUDED], tool=tool)
    assert_insufficient(loop, facts=False)


async def test_r92_the_fallback_has_exactly_the_public_shape() -> None:
    loop = await ran([FOUND, draft()], context={"language": "en"})
    fallback = loop.outcome["fallback"]
    assert list(fallback) == ["type", "reason", "summary", "process", "observed_facts", "limitations"]
    assert list(fallback["limitations"]) == ["missing_info", "notes"]
    (step,), (fact,) = fallback["process"], fallback["observed_facts"]
    assert step == {
        "tool_name": "query_probe",
        "scope": {"query": "found a"},
        "evidence_status": "EVIDENCE_FOUND",
        "returned_count": 1,
        "truncated": False,
    }
    assert fact == {"statement": fact["statement"], "tool_call_id": "c1"}
    chinese = await ran([FOUND, draft()], context={"language": "zh"})
    assert chinese.outcome["fallback"]["summary"] != fallback["summary"]


async def test_r9_r94_a_budget_fallback_is_budget_exhausted_inside_and_a_success_outside() -> None:
    from graph.contract import PublicStatus
    from service.store.status import public_status

    loop = await ran([FOUND, call("c2", "found b", ("c1", "GAINED"))], context={"budget": {"tool_calls": 1}})
    assert_insufficient(loop, facts=True)
    record = await loop.record()
    assert (record.internal_state, record.release_outcome) == ("BUDGET_EXHAUSTED", "FALLBACK")
    assert public_status(record.internal_state, record.release_outcome) is PublicStatus.SUCCESS
    assert loop.outcome["stop_reason"] == "BUDGET_LIMIT_REACHED"


async def test_r94_a_budget_crossed_after_saturation_keeps_the_first_reason_and_both_limitations() -> None:
    context = {"no_gain_threshold": 1, "budget": {"model_calls": 4, "reserve_model_calls": 3}}
    loop = await ran([call("c1", "none a"), draft()], context=context)
    fallback = assert_insufficient(loop, facts=True)
    assert (loop.outcome["stop_reason"], loop.outcome["internal_state"]) == (
        "INFORMATION_SATURATED",
        "BUDGET_EXHAUSTED",
    )
    assert set(fallback["limitations"]["notes"]) == {"STOPPED_INFORMATION_SATURATED", "STOPPED_BUDGET"}


async def test_r91_the_offline_verdict_is_lexical_and_the_trace_says_so() -> None:
    from tests.fakes import ScriptedModel

    model = ScriptedModel(by_round([FOUND, draft("line about found a", [SEEN])]), semantic_guard_is_lexical=True)
    loop = make_loop([], model=model)
    await loop.run()
    (event,) = await loop.events("SEMANTIC_GUARD")
    assert (event["lexical"], event["verdict"]) == (True, "SUPPORTED")
    assert asked(loop) == ["DIAGNOSIS_AGENT"] * 2
    assert loop.outcome["release_outcome"] == "CONCLUSION"


async def test_r108_every_release_is_traced_with_outcome_and_reason() -> None:
    loop = await ran([FOUND, draft()])
    (decided,) = await loop.events("RELEASE_DECIDED")
    assert (decided["release_outcome"], decided["reason"]) == ("FALLBACK", "NO_CONCLUSION")
    assert (await loop.events())[-1]["type"] == "RUN_ENDED"
