"""What of a traced run may leave: only what is named, whatever else a tracer adds (R55, R104)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.settings import SettingsError, load_settings
from service.trace_privacy import FIELDS, withheld

NOTHING: frozenset[str] = frozenset()
MARK = "PLANTED"
NAMES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["inputs", "messages", "query", "position", "step", "output", "run", "run_id", "metadata", "usage"]
    ),
    st.sampled_from(["usage_metadata", "thread_id", "ls_model_name", "input_tokens", "time", "invocation_params"]),
)
VALUES = st.recursive(
    st.just(f"{MARK} and more"),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=6,
)


@settings(max_examples=60)
@given(
    content=st.dictionaries(NAMES, VALUES, max_size=6),
    extra=st.dictionaries(NAMES, VALUES, max_size=6),
    more=st.dictionaries(st.sampled_from(["serialized", "attachments", "new_key", "manifest"]), VALUES),
    run_type=st.sampled_from(["chain", "llm", "tool", "retriever", "new_type"]),
)
def test_r104_nothing_that_is_not_named_leaves(
    content: dict[str, Any], extra: dict[str, Any], more: dict[str, Any], run_type: str
) -> None:
    run = {
        **more,
        "name": f"{MARK} run",
        "run_type": run_type,
        "inputs": content,
        "outputs": content,
        "error": f"{MARK}('{MARK}')\nTraceback: {MARK}",
        "events": [{"name": "start", "time": "t", "kwargs": content}],
        "tags": [MARK, "graph:step:3"],
        "extra": extra,
    }
    assert MARK not in repr(withheld(run, NOTHING))


def test_names_places_times_and_counts_leave() -> None:
    run_id, thread = str(uuid4()), str(uuid4())
    run = {
        "id": "i",
        "parent_run_id": "p",
        "name": "dedup_scope",
        "run_type": "chain",
        "start_time": 1,
        "inputs": {"query": MARK, "position": {"turn": 2, "step": 7}, "run": {"run_id": run_id, "now": 3.0}},
        "outputs": {"output": "execute_tool"},
        "extra": {
            "metadata": {
                "thread_id": thread,
                "langgraph_node": "dedup_scope",
                "langgraph_step": 4,
                "usage_metadata": {"input_tokens": 5, "output_tokens": 6, "total_tokens": 11, "details": {"x": 1}},
                "LANGSMITH_ENDPOINT": "http://inner.example",
            }
        },
    }
    assert withheld(run, NOTHING) == {
        "id": "i",
        "parent_run_id": "p",
        "name": "dedup_scope",
        "run_type": "chain",
        "start_time": 1,
        "inputs": {"position": {"turn": 2, "step": 7}, "run": {"run_id": run_id}},
        "outputs": {"output": "execute_tool"},
        "tags": [],
        "extra": {
            "metadata": {
                "thread_id": thread,
                "langgraph_node": "dedup_scope",
                "langgraph_step": 4,
                "usage_metadata": {"input_tokens": 5, "output_tokens": 6, "total_tokens": 11},
            }
        },
    }


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        ("ValueError('the secret')Traceback ...", "ValueError"),
        ("InvalidQuestion('the secret')", "InvalidQuestion"),
        ("secret('x')", "Exception"),
        ("1 validation error for Secret", "Exception"),
        ("", "Exception"),
    ],
)
def test_r105_of_an_error_only_its_type_leaves(error: str, sent: str) -> None:
    from nodes.start_run import InvalidQuestion

    assert issubclass(InvalidQuestion, Exception)
    assert withheld({"error": error}, NOTHING)["error"] == sent


def test_each_field_opens_itself_alone() -> None:
    run = {
        "inputs": {name: f"{name}!" for name in FIELDS},
        "error": "errors!",
        "tags": ["tags!"],
        "extra": {"metadata": {"x": "metadata!"}, "invocation_params": {"x": "model_parameters!"}},
    }
    model = {"run_type": "llm", "inputs": {"x": "prompts!"}, "outputs": {"x": "model_answers!"}}
    for name in FIELDS:
        sent = repr([withheld(each, frozenset({name})) for each in (run, model)])
        assert [other for other in FIELDS if f"'{other}!" in sent] == [name]


def test_what_is_let_out_is_masked_all_the_same() -> None:
    run = {"error": "password=hunter2", "extra": {"invocation_params": {"api_key": "abc"}}}
    sent = repr(withheld(run, frozenset(FIELDS)))
    assert "hunter2" not in sent
    assert "abc" not in sent


def test_the_setting_names_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERBIZ_TRACE_FIELDS", "query, prompts,")
    assert load_settings().trace_fields == ("query", "prompts")
    monkeypatch.setenv("SUPERBIZ_TRACE_FIELDS", "everything")
    with pytest.raises(
        SettingsError, match="SUPERBIZ_TRACE_FIELDS: allowed, separated by commas: prompts, "
    ) as refused:
        load_settings()
    assert "everything" not in str(refused.value)
