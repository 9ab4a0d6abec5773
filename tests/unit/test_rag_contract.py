from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tools.contract import MAX_OBSERVATION_BYTES, EvidenceStatus, RelevanceLevel, Scope
from tools.evidence_tool import EvidenceTool, ObservationContractViolation
from tools.rag.observation import agent_result, observe, read_agent_result
from tools.rag.request import RagRequest, RagToolCall
from tools.rag.scope import project_scope
from tools.rag.score import (
    Hit,
    Thresholds,
    coverage,
    document_score,
    interleave,
    rank_documents,
    relevance_level,
    term_weights,
)
from tools.rag.tool import RagTool

SCOPE = project_scope(RagRequest(query="disk full"))
CALL_ID = "call-1"


def document(**changes: Any) -> dict[str, Any]:
    base = {"document_id": "k/a.md#start", "title": "A", "source": "a.md", "content": "text", "score": 0.5}
    return base | {"relevance_level": "HIGH"} | changes


def response(*documents: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"documents": list(documents), "total": len(documents)} | changes


def scope_of(query: str) -> Scope:
    return project_scope(RagRequest(query=query))


def size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


# --- request and scope


def test_r129_request_bounds() -> None:
    assert RagRequest(query="x").top_k == 3
    assert RagRequest(query="x" * 500, top_k=5).top_k == 5
    for bad in ({"query": ""}, {"query": "x" * 501}, {"query": "x", "top_k": 0}, {"query": "x", "top_k": 6},
                {"query": "x", "top_k": "3"}, {"query": 1}, {"query": "x", "filter": "y"}, {}):  # fmt: skip
        with pytest.raises(ValidationError):
            RagRequest.model_validate(bad)


def test_r22_schema_shows_the_concrete_fields_of_input() -> None:
    schema = RagToolCall.model_json_schema()
    fields = schema["$defs"]["RagRequest"]["properties"]
    assert set(schema["properties"]) == {"previous_observation", "input"}
    assert set(fields) == {"query", "top_k"}
    assert all(field["description"] for field in fields.values())


def test_r47_whitespace_and_unicode_form_do_not_make_another_scope() -> None:
    same = {scope_of(query).key for query in ("disk  full", " disk full\n", "disk\tfull", "disk　full")}
    assert same == {scope_of("disk full").key}
    assert scope_of("cafe\u0301 down").key == scope_of("caf\u00e9 down").key


def test_r47_case_and_words_make_another_scope() -> None:
    keys = {scope_of(query).key for query in ("disk full", "Disk full", "full disk", "disk is full", "磁盘满")}
    assert len(keys) == 5


def test_r47_top_k_is_not_scope() -> None:
    assert project_scope(RagRequest(query="a", top_k=1)) == project_scope(RagRequest(query="a", top_k=5))


def test_r108_summary_is_the_first_80_characters() -> None:
    assert scope_of("x" * 300).summary == "x" * 80


# --- score and levels


def test_r54_levels_come_from_the_bounded_score() -> None:
    thresholds = Thresholds(high=0.4, reference=0.26)
    assert [relevance_level(score, thresholds) for score in (0.4, 0.39, 0.26, 0.2599)] == [
        RelevanceLevel.HIGH,
        RelevanceLevel.REFERENCE,
        RelevanceLevel.REFERENCE,
        None,
    ]


@given(
    st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 5000), max_size=20),
    st.sets(st.text(min_size=1, max_size=3), max_size=20),
    st.sets(st.text(min_size=1, max_size=3), max_size=20),
)
def test_r54_score_is_bounded_and_grows_with_what_is_covered(
    counts: dict[str, int], chunk: set[str], rest: set[str]
) -> None:
    weights = term_weights(counts, 5000)
    names = [(term,) for term in counts]
    score = document_score(weights, chunk, chunk | rest, chunk, names)
    assert 0 <= score <= 1
    assert score <= document_score(weights, chunk | rest, chunk | rest, chunk, names) + 1e-9
    assert coverage(weights, set(counts)) == pytest.approx(1.0 if counts else 0.0)


def test_r54_a_heading_that_the_query_names_counts_and_a_lacking_name_costs() -> None:
    weights = term_weights({"lock": 3, "wait": 3}, 5000)

    def score(heading: set[str], *names: tuple[str, ...]) -> float:
        return document_score(weights, {"lock", "wait", "job", "failed"}, {"lock", "wait"}, heading, names)

    assert [score({"lock"}), score({"lock", "view"}), score(set())] == [1.0, 0.875, 0.75]
    assert score({"lock"}, ("terraform",)) == 0.5
    assert score({"lock"}, ("terraform",), ("jobfailed", "job", "failed")) == 0.75
    assert score({"lock"}, ("jobfailed", "job", "failed")) == 1.0


def test_r54_unknown_terms_weigh_most_and_common_ones_least() -> None:
    weights = term_weights({"unknown": 0, "rare": 3, "common": 4000}, 5000)
    assert weights["unknown"] > weights["rare"] > weights["common"] > 0


def hit(source: str, number: int, rank: float, score: float) -> Hit:
    return Hit(f"k/{source}#{number}", source, source, "text", rank, score)


def test_several_files_come_before_more_of_the_same_one() -> None:
    hits = [hit("a", 1, 9, 0.9), hit("a", 2, 8, 0.9), hit("a", 3, 7, 0.9), hit("b", 1, 6, 0.3), hit("c", 1, 5, 0.1)]
    ranked = rank_documents(hits, Thresholds(0.4, 0.26))
    assert [(entry.hit.document_id, entry.level.value) for entry in ranked] == [
        ("k/a#1", "HIGH"),
        ("k/b#1", "REFERENCE"),
        ("k/a#2", "HIGH"),
    ]


def test_folders_are_merged_place_by_place() -> None:
    thresholds = Thresholds(0.4, 0.26)
    first = rank_documents([hit("a", 1, 1, 0.3), hit("b", 1, 0.5, 0.9)], thresholds)
    second = rank_documents([hit("c", 1, 99, 0.5)], thresholds)
    assert [entry.hit.source for entry in interleave([first, second])] == ["c", "a", "b"]


# --- agent_result


def test_r53_both_names_of_the_level_are_read_and_one_is_written() -> None:
    old = document(relevanceLevel="REFERENCE")
    del old["relevance_level"]
    result = agent_result(response(old, relevanceLevel="REFERENCE"), SCOPE).model_dump(mode="json")
    assert "relevanceLevel" not in json.dumps(result)
    assert result["relevance_level"] == result["documents"][0]["relevance_level"] == "REFERENCE"


def test_r53_result_level_is_the_best_of_the_documents() -> None:
    reference = document(relevance_level="REFERENCE")
    assert agent_result(response(reference, document()), SCOPE).relevance_level is RelevanceLevel.HIGH
    assert agent_result(response(reference), SCOPE).relevance_level is RelevanceLevel.REFERENCE
    assert agent_result(response(), SCOPE).relevance_level is None


@pytest.mark.parametrize(
    "raw",
    [
        response(document(relevance_level="MEDIUM")),
        response(document(relevance_level="high")),
        response(document(relevance_level=["HIGH"])),
        response(document(relevance_level=None)),
        response(document(relevanceLevel="REFERENCE")),
        response(document(), relevance_level="REFERENCE"),
        response(document(), relevance_level="HIGH", relevanceLevel="REFERENCE"),
        response(relevance_level="HIGH"),
        response(document(content=None)),
        response(document(score="0.5")),
        response(document(score=True)),
        response(document(score=1.5)),
        response(document(score=float("nan"))),
        response(document(document_id="")),
        response(document(), total="1"),
        response(document(), total=-1),
        response("text"),  # type: ignore[arg-type]
        {"documents": None},
        {},
        None,
        [],
        "text",
    ],
)
def test_r53_what_does_not_fit_is_a_contract_violation(raw: Any) -> None:
    with pytest.raises(ObservationContractViolation) as error:
        agent_result(raw, SCOPE)
    assert len(str(error.value)) < 100


def test_r55_at_most_five_documents_of_1200_characters() -> None:
    many = [document(document_id=f"k/{n}", content="x" * 1300) for n in range(7)]
    result = agent_result(response(*many), SCOPE)
    assert len(result.documents) == 5
    assert all(len(entry.content) <= 1200 for entry in result.documents)
    assert result.truncated
    assert result.total == 7


def test_r55_five_full_english_documents_fit_uncut() -> None:
    result = agent_result(response(*[document(content="word " * 240)] * 5), SCOPE)
    assert not result.truncated


def test_r55_secrets_are_masked() -> None:
    raw = response(document(content="password: hunter2secret", title="api_key=abcdefgh12345"))
    text = agent_result(raw, SCOPE).model_dump_json()
    assert "hunter2secret" not in text
    assert "abcdefgh12345" not in text


def test_r55_the_best_document_keeps_most_when_space_is_short() -> None:
    contents = ["一二三四五六七八九十" * 120 for _ in range(5)]
    scope = scope_of("磁盘" * 250)
    result = agent_result(response(*(document(content=content) for content in contents)), scope)
    lengths = [len(entry.content) for entry in result.documents]
    assert result.truncated
    assert lengths == sorted(lengths, reverse=True)
    assert min(lengths) >= 200
    assert size(observe("x" * 128, scope, result)) <= MAX_OBSERVATION_BYTES


TEXTS = st.text(max_size=30) | st.sampled_from(["磁盘满" * 500, "\0\n" * 700, "😀" * 1300, '"\\' * 900])


@given(
    st.lists(st.tuples(TEXTS, TEXTS, TEXTS, st.sampled_from(["HIGH", "REFERENCE"])), max_size=7),
    st.text(min_size=1, max_size=500),
)
def test_r55_any_observation_fits_8_kib_also_with_the_stop_pair(rows: list[Any], query: str) -> None:
    scope = scope_of(query)
    raw = response(
        *(
            document(title=title, source=source, content=content, relevance_level=level)
            for title, source, content, level in rows
        )
    )
    result = agent_result(raw, scope)
    stored = json.loads(json.dumps(result.model_dump(mode="json")))
    observation = observe("x" * 128, scope, read_agent_result(stored))
    stop = {"stop_required": True, "reason": "INFORMATION_SATURATED"}
    assert size(observation | stop) <= MAX_OBSERVATION_BYTES
    shown = [entry["content"] for entry in observation["documents"]]
    assert shown == [entry["content"] for entry in stored["documents"]], "all the model sees is in agent_result"


# --- observation


def test_r51_observation_holds_the_whitelist_only() -> None:
    result = agent_result(response(document()), SCOPE)
    observation = observe(CALL_ID, SCOPE, result)
    assert observation == {
        "tool_call_id": CALL_ID,
        "scope": {"query": "disk full"},
        "evidence_status": "EVIDENCE_FOUND",
        "relevance_level": "HIGH",
        "documents": [
            {
                "document_id": "k/a.md#start",
                "title": "A",
                "source": "a.md",
                "content": "text",
                "relevance_level": "HIGH",
            }
        ],
        "truncated": False,
    }


def test_r51_nothing_found_has_no_level() -> None:
    observation = observe(CALL_ID, SCOPE, agent_result(response(), SCOPE))
    assert observation["evidence_status"] == "NO_EVIDENCE"
    assert observation["documents"] == []
    assert "relevance_level" not in observation


def test_r52_fields_outside_the_whitelist_reach_nobody() -> None:
    marker = "MARKER-7f3a"
    raw = response(document(vector=marker, metadata={"path": marker}), debug=marker, took=marker)
    result = agent_result(raw, SCOPE)
    assert marker not in result.model_dump_json()
    assert marker not in json.dumps(observe(CALL_ID, SCOPE, result))
    assert "score" not in json.dumps(observe(CALL_ID, SCOPE, result))


def test_r52_a_stored_result_with_foreign_fields_is_refused() -> None:
    stored = agent_result(response(document()), SCOPE).model_dump(mode="json") | {"marker": 1}
    with pytest.raises(ObservationContractViolation):
        read_agent_result(stored)


# --- the tool's pure parts


class NoBackend:
    async def search(self, request: RagRequest, deadline_seconds: float) -> Any:
        raise AssertionError("pure methods search nothing")


TOOL = RagTool(NoBackend(), "runbooks (what to do).")


def test_tool_is_an_evidence_tool_and_names_the_folders() -> None:
    assert isinstance(TOOL, EvidenceTool)
    assert TOOL.name == "search_runbooks"
    assert "runbooks (what to do)" in TOOL.description
    assert TOOL.timeout_seconds == 5.0
    assert TOOL.envelope is RagToolCall


def test_r28_a_blank_query_is_refused_by_name_and_rule() -> None:
    refused = TOOL.check(RagRequest(query=" \n\t　"))
    assert refused is not None
    assert (refused.field, refused.rule) == ("input.query", "NOT_BLANK")
    assert TOOL.check(RagRequest(query="x")) is None


def test_r50_control_view() -> None:
    stored = agent_result(response(document(), document(relevance_level="REFERENCE")), SCOPE).model_dump(mode="json")
    view = TOOL.control(stored, SCOPE)
    assert (view.returned_count, view.truncated, view.evidence_status) == (2, False, EvidenceStatus.EVIDENCE_FOUND)
    assert view.relevance_level is RelevanceLevel.HIGH
    assert view.scope == SCOPE


def test_r68_documents_are_never_facts() -> None:
    stored = agent_result(response(document()), SCOPE).model_dump(mode="json")
    assert TOOL.facts(SCOPE, stored) == ()
