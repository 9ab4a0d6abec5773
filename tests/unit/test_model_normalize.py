from __future__ import annotations

import json
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.messages.tool import invalid_tool_call, tool_call
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from nodes.ports import ModelCallFailed, ModelFailureKind, TokenUsage
from release.contract import MAX_DRAFT_BYTES
from service.models.arguments import MAX_ARGUMENT_BYTES, parse_arguments
from service.models.normalize import (
    MAX_CALLS,
    UNUSABLE_NAME,
    completion_message,
    cut,
    reply_of,
    text_of,
    usage_of,
)
from service.models.profile import DEEPSEEK, KIMI, LOCAL, OPENAI, QWEN, ProviderProfile, ToolCallIds
from tests.stub_model_server import call, completion


def reply(body: object, profile: ProviderProfile = QWEN, history: list | None = None):  # type: ignore[no-untyped-def]
    ids = (f"fresh-{n}" for n in count(1))
    message = completion_message(body, keep_reasoning=profile.reasoning == "return")
    return reply_of(message, profile, history or [], lambda: next(ids))


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "null",
        None,
        "[]",
        [],
        [1],
        "1",
        '"x"',
        "true",
        "{",
        '{"a":1} trailing',
        '{"a":1,"a":2}',
        '{"a":{"b":1,"b":2}}',
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":1e999}',
        '{"a":18446744073709551616}',
        '{"a":' + "9" * 5000 + "}",
        '{"a":"\\ud800"}',
        '{"\\udfff":1}',
        '{"a":' * 40 + "1" + "}" * 40,
        "[" * 60000,
        '{"a":"' + "x" * MAX_ARGUMENT_BYTES + '"}',
        '{"a":"' + "查" * (MAX_ARGUMENT_BYTES // 3) + '"}',
        "{'a':1}",
        "```json\n{}\n```",
        b"{}",
        7,
        {"a": float("nan")},
        {"a": object()},
    ],
)
def test_arguments_that_are_no_object_are_malformed(raw: object) -> None:
    assert parse_arguments(raw) is None


def test_arguments_that_are_an_object_are_read() -> None:
    assert parse_arguments('{"input":{"query":"支付"}}') == {"input": {"query": "支付"}}
    assert parse_arguments("{}") == {}
    assert parse_arguments({"input": {"n": 1}}) == {"input": {"n": 1}}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda c: st.lists(c) | st.dictionaries(st.text(), c),
)


@given(
    st.one_of(
        st.text(),
        st.binary(),
        json_values,
        json_values.map(json.dumps),
        st.dictionaries(st.text(), json_values).map(json.dumps),
    )
)
def test_arguments_never_raise_and_survive_a_checkpoint(raw: object) -> None:
    value = parse_arguments(raw)
    if value is not None:
        serde = JsonPlusSerializer()
        message = AIMessage("", tool_calls=[tool_call(name="t", args=value, id="1")])
        assert serde.loads_typed(serde.dumps_typed(message)).tool_calls[0]["args"] == value
        json.dumps(value, allow_nan=False)


@given(json_values, json_values)
def test_any_body_gives_a_bounded_message_or_a_typed_failure(content: object, calls: object) -> None:
    for body in (content, {"choices": content}, {"choices": [{"message": content}]}, completion(content, calls)):
        try:
            read = completion_message(body, keep_reasoning=True)
        except ModelCallFailed:
            continue
        assert len(read.text.encode()) <= MAX_DRAFT_BYTES + 4


@given(st.text(alphabet=st.characters(exclude_categories=())), st.integers(0, 40))
def test_cut_keeps_a_beginning_and_shows_that_more_was_there(text: str, limit: int) -> None:
    kept = cut(text, limit)
    size = len(kept.encode("utf-8"))
    whole = len(text.encode("utf-8", "replace"))
    assert size <= limit + 4
    if whole > 3 * limit + 3:
        assert size > limit
    if not any("\ud800" <= c <= "\udfff" for c in text):
        assert text.startswith(kept)
        assert (kept == text) or size > limit


def test_r79_a_text_too_large_still_looks_too_large() -> None:
    assert len(text_of("查" * 100_000).encode()) > MAX_DRAFT_BYTES
    assert text_of("x" * MAX_DRAFT_BYTES) == "x" * MAX_DRAFT_BYTES
    assert len(text_of("x" * 1_000_000)) == MAX_DRAFT_BYTES + 1


def test_text_parts_are_joined_and_other_parts_left_out() -> None:
    assert text_of([{"type": "text", "text": "a"}, {"type": "image_url"}, "b", 3, {"text": 4}]) == "ab"
    assert text_of(None) == ""


@pytest.mark.parametrize(
    "raw",
    [
        None,
        {},
        [],
        {"prompt_tokens": 3},
        {"completion_tokens": 3},
        {"prompt_tokens": -1, "completion_tokens": 3},
        {"prompt_tokens": 3, "completion_tokens": None},
        {"prompt_tokens": "3", "completion_tokens": 3},
        {"prompt_tokens": 3.5, "completion_tokens": 3},
        {"prompt_tokens": True, "completion_tokens": 3},
        {"prompt_tokens": 2**70, "completion_tokens": 3},
    ],
)
def test_r116_unknown_usage_is_a_gap_never_zero(raw: object) -> None:
    assert usage_of(raw) is None
    assert reply(completion("x", usage=raw)).usage is None


def test_r112_usage_is_the_provider_s_pair() -> None:
    assert reply(completion("x")).usage == TokenUsage(11, 7)


def test_r55_text_and_reasoning_beside_calls_are_dropped() -> None:
    body = completion("I think", [call("c1", "query_logs", "{}")], reasoning_content="secret thought")
    got = reply(body)
    assert got.message.content == ""
    assert got.text == ""
    assert got.message.additional_kwargs == {}
    assert "secret thought" not in repr(got)


def test_r55_reasoning_is_kept_where_the_profile_demands_it_back() -> None:
    body = completion("t", [call("c1", "query_logs", "{}")], reasoning_content="thought")
    assert reply(body, DEEPSEEK).message.additional_kwargs == {"reasoning_content": "thought"}
    silent = completion(None, [call("c1", "query_logs", "{}")])
    assert reply(silent, DEEPSEEK).message.additional_kwargs == {"reasoning_content": ""}
    assert reply(completion("final", reasoning_content="thought"), DEEPSEEK).message.additional_kwargs == {}


def test_order_is_kept_and_malformed_calls_stay_valid_in_the_message() -> None:
    calls = [
        call("a", "query_logs", '{"x":1}'),
        call("b", "query_logs", ""),
        call("c", "query_mysql", [1]),
        call("d", "query_logs", '{"x":2}'),
        call("e", "query_logs", None),
    ]
    got = reply(completion(None, calls))
    assert [(c.tool_call_id, c.tool_name, c.arguments) for c in got.calls] == [
        ("a", "query_logs", {"x": 1}),
        ("b", "query_logs", None),
        ("c", "query_mysql", None),
        ("d", "query_logs", {"x": 2}),
        ("e", "query_logs", None),
    ]
    assert [(c["id"], c["args"]) for c in got.message.tool_calls] == [
        ("a", {"x": 1}),
        ("b", {}),
        ("c", {}),
        ("d", {"x": 2}),
        ("e", {}),
    ]
    assert got.message.invalid_tool_calls == []


@pytest.mark.parametrize("bad", [None, 7, "", ["x"]])
def test_r72_a_missing_id_is_empty(bad: object) -> None:
    assert reply(completion(None, [call(bad, "query_logs", "{}")])).calls[0].tool_call_id == ""


def test_r72_an_id_is_kept_as_sent_and_one_too_long_stays_too_long() -> None:
    assert reply(completion(None, [call("search:0", "t", "{}")])).calls[0].tool_call_id == "search:0"
    assert len(reply(completion(None, [call("x" * 10**6, "t", "{}")])).calls[0].tool_call_id) == 129


def test_a_name_no_provider_takes_back_does_not_enter_the_history() -> None:
    got = reply(
        completion(
            None,
            [
                call("1", "查询 日志", "{}"),
                call("2", None, "{}"),
                call("3", "n" * 10**6, "{}"),
                call("4", "query_logs\n", "{}"),
            ],
        )
    )
    assert [c["name"] for c in got.message.tool_calls] == [UNUSABLE_NAME, UNUSABLE_NAME, "n" * 64, UNUSABLE_NAME]
    assert [c.tool_name for c in got.calls] == ["查询 日志", "", "n" * 64, "query_logs\n"]


def test_shapes_that_are_no_call_are_calls_with_nothing_in_them() -> None:
    got = reply(completion(None, [None, "x", {"id": "1"}, {"id": "2", "function": "f"}]))
    assert [(c.tool_call_id, c.tool_name, c.arguments) for c in got.calls] == [
        ("", "", None),
        ("", "", None),
        ("1", "", None),
        ("2", "", None),
    ]


def test_at_most_64_calls_and_128_kib_of_arguments_are_kept() -> None:
    assert len(reply(completion(None, [call(f"c{n}", "t", "{}") for n in range(500)])).calls) == MAX_CALLS
    big = json.dumps({"a": "x" * 60_000})
    kept = [c.arguments is not None for c in reply(completion(None, [call(f"c{n}", "t", big) for n in range(5)])).calls]
    assert kept == [True, True, False, False, False]


def test_r29_serialize_keeps_the_first_call_and_counts_the_dropped() -> None:
    calls = [call(f"c{n}", "query_logs", "{}") for n in range(3)]
    got = reply(completion(None, calls), LOCAL)
    assert [c.tool_call_id for c in got.calls] == ["c0"]
    assert [c["id"] for c in got.message.tool_calls] == ["c0"]
    assert got.dropped_calls == 2
    assert reply(completion(None, calls), OPENAI).dropped_calls == 0
    assert len(reply(completion(None, calls), OPENAI).calls) == 3


def test_r72_reissue_gives_fresh_ids_from_the_source() -> None:
    profile = ProviderProfile("x", tool_call_ids=ToolCallIds.REISSUE)
    got = reply(completion(None, [call("search:0", "a", "{}"), call("search:0", "b", "{")]), profile)
    assert [c.tool_call_id for c in got.calls] == ["fresh-1", "fresh-2"]
    assert [c["id"] for c in got.message.tool_calls] == ["fresh-1", "fresh-2"]


def test_r72_indexed_ids_count_through_the_conversation_and_avoid_taken_ones() -> None:
    history: list = [HumanMessage("q")]
    seen = []
    for _ in range(3):
        got = reply(completion(None, [call("search:0", "search", "{}")]), KIMI, history)
        history.append(got.message)
        seen.append(got.calls[0].tool_call_id)
    assert seen == ["functions.search:0", "functions.search:1", "functions.search:2"]
    taken = [AIMessage("", tool_calls=[tool_call(name="search", args={}, id="functions.search:1")])]
    assert (
        reply(completion(None, [call("x", "search", "{}")]), KIMI, taken).calls[0].tool_call_id == "functions.search:2"
    )


def test_messages_of_other_chat_models_are_read_too() -> None:
    message = AIMessage(
        [{"type": "text", "text": "beside"}],
        tool_calls=[tool_call(name="a", args={"x": 1}, id="1")],
        invalid_tool_calls=[invalid_tool_call(name="b", args="{", id=None, error="secret")],
    )
    got = reply_of(message, QWEN, [], lambda: "n")
    assert [(c.tool_call_id, c.tool_name, c.arguments) for c in got.calls] == [("1", "a", {"x": 1}), ("", "b", None)]
    assert got.message.content == ""
    assert "secret" not in repr(got)


@pytest.mark.parametrize(
    ("finish", "kind"),
    [
        ("length", ModelFailureKind.OUTPUT_TRUNCATED),
        ("content_filter", ModelFailureKind.CONTENT_FILTERED),
        ("insufficient_system_resource", ModelFailureKind.UNAVAILABLE),
        ("error", ModelFailureKind.SERVER_ERROR),
        ("function_call", ModelFailureKind.MALFORMED_RESPONSE),
    ],
)
def test_finish_reasons_that_are_no_answer_are_typed(finish: str, kind: ModelFailureKind) -> None:
    for body in (completion("half", finish=finish), completion(None, [call("1", "t", "{}")], finish=finish)):
        with pytest.raises(ModelCallFailed) as failed:
            completion_message(body, keep_reasoning=False)
        assert failed.value.kind is kind
        assert failed.value.answered


def test_a_refusal_is_content_filtered() -> None:
    with pytest.raises(ModelCallFailed) as failed:
        completion_message(completion(None, refusal="I can't"), keep_reasoning=False)
    assert failed.value.kind is ModelFailureKind.CONTENT_FILTERED


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "eos", "", None, 3])
def test_other_finish_reasons_are_taken_as_they_come(finish: object) -> None:
    body = completion("text")
    body["choices"][0]["finish_reason"] = finish
    assert reply(body).text == "text"


@pytest.mark.parametrize(
    "body",
    [
        None,
        "text",
        [],
        {},
        {"choices": None},
        {"choices": []},
        {"choices": {}},
        {"choices": [None]},
        {"choices": [{}]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": "x"}]},
        {"choices": [{"message": {"tool_calls": "x"}}]},
        {"error": {"message": "m"}},
    ],
)
def test_bodies_that_are_no_completion_are_malformed(body: object) -> None:
    with pytest.raises(ModelCallFailed) as failed:
        completion_message(body, keep_reasoning=False)
    assert failed.value.kind is ModelFailureKind.MALFORMED_RESPONSE
