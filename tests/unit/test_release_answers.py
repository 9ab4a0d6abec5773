"""Contracts and decisions of knowledge answers and chat (R75, R76, R94, R95, R97)."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.contract import Intent, RunState
from release.answers.contract import LOOKUP_ID, IntentDecision, KnowledgeAnswer, KnowledgeItem, PublishedChat
from release.answers.decision import decide_answer
from release.answers.parsing import parse_intent, parse_knowledge_answer
from release.answers.publishing import is_member, not_found, publish_chat, publish_knowledge
from release.contract import AgentOutputFailure, DocumentRef, ReleaseErrorCode, ReleaseOutcome, ReleaseReason
from service.models.profile import ProviderProfile, StructuredOutput
from service.models.schemas import response_format
from tools.contract import RelevanceLevel

DOCUMENTS = [
    DocumentRef(document_id=f"d{n}", title=f"T{n}", source="s.md", relevance_level=RelevanceLevel.HIGH)
    for n in (1, 2, 3)
]
CHAT = PublishedChat(query="q", text="t")


@pytest.mark.parametrize("intent", Intent)
def test_r97_the_routers_form_is_exact(intent: Intent) -> None:
    exact = json.dumps({"intent": intent.value})
    assert parse_intent(exact) is parse_intent(f"\n {exact} ") is intent
    for other in (f"```{exact}```", f"ok {exact}", exact + exact, exact.lower(), f"[{exact}]", '{"intent":null}', ""):
        assert parse_intent(other) is None


@given(st.text())
def test_r77_no_text_raises(text: str) -> None:
    parse_intent(text)
    parse_knowledge_answer(text)


def test_r95_not_found_says_what_items_say() -> None:
    item = {"text": "x", "tool_call_id": LOOKUP_ID, "document_ids": ["d1"]}
    for items, said, legal in (([item], False, True), ([], True, True), ([item], True, False), ([], False, False)):
        parsed = parse_knowledge_answer(json.dumps({"items": items, "not_found": said}))
        assert (parsed is AgentOutputFailure.SCHEMA_VIOLATION) is not legal


@given(
    st.lists(
        st.tuples(
            st.sampled_from([LOOKUP_ID, "lookup-2"]),
            st.lists(st.sampled_from(["d1", "d2", "d9"]), min_size=1, max_size=5),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_r95_membership_is_exact_and_citations_are_expanded_in_the_lookups_order(
    items: list[tuple[str, list[str]]],
) -> None:
    answer = KnowledgeAnswer(
        items=[KnowledgeItem(text="x", tool_call_id=call, document_ids=ids) for call, ids in items], not_found=False
    )
    legal = all(call == LOOKUP_ID and "d9" not in ids for call, ids in items)
    assert is_member(answer, DOCUMENTS) is legal
    if legal:
        published = publish_knowledge("q", answer, DOCUMENTS)
        for (_, ids), item in zip(items, published.items, strict=True):
            assert [each.document_id for each in item.documents] == sorted(set(ids))
            assert all(each in DOCUMENTS for each in item.documents)


@given(st.text(max_size=6000))
def test_r97_chat_text_is_bounded_and_plain(text: str) -> None:
    chat = publish_chat("q", text)
    if chat is not None:
        assert 0 < len(chat.text) <= 4000
        assert all(char in "\n\t" or char.isprintable() or char.isspace() for char in chat.text)


def test_r94_every_answer_has_exactly_one_end() -> None:
    seen = set()
    for published, error, cancelled, timed_out in itertools.product(
        (None, CHAT, not_found("q")), (None, *ReleaseErrorCode), (False, True), (False, True)
    ):
        decision = decide_answer(published, error, cancelled=cancelled, timed_out=timed_out)
        seen.add(decision.reason)
        assert (decision.published is None) is (decision.error_code is not None)
        assert (decision.outcome is ReleaseOutcome.NONE) is (decision.published is None)
        if decision.published is not None:
            assert decision.internal_end is RunState.SUCCESS
            assert (error, cancelled, timed_out) == (None, False, False)
        if cancelled:
            assert decision.internal_end is RunState.CANCELLED
    assert seen >= {
        ReleaseReason.CHAT_ANSWERED,
        ReleaseReason.KNOWLEDGE_NOT_FOUND,
        ReleaseReason.INTENT_ROUTING_FAILED,
        ReleaseReason.STOPPED_BUDGET,
        ReleaseReason.CANCELLED,
        ReleaseReason.TIMED_OUT,
    }


@pytest.mark.parametrize("output", [IntentDecision, KnowledgeAnswer])
def test_r97_r95_outputs_reach_the_provider_as_strict_schemas(output: type[IntentDecision | KnowledgeAnswer]) -> None:
    profile = ProviderProfile("test", structured_output=StructuredOutput.JSON_SCHEMA)
    form = response_format(profile, output, with_tools=False)
    assert form is not None
    described = form["json_schema"]
    assert (described["name"], described["strict"]) == (output.__name__, True)
    assert described["schema"]["required"] == list(output.model_fields)
    assert described["schema"]["additionalProperties"] is False
