"""What a trace event may hold (R103-R108, R113, R116)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.contract import TraceEvent, TraceEventType
from service.store.whitelist import (
    INVALID,
    MAX_COUNT,
    MAX_LIST_ITEMS,
    MAX_VALUE_CHARS,
    WHITELIST,
    TraceFieldRefused,
    admit,
    safe_code,
    safe_ids,
)

SECRET = "SELECT secret FROM t WHERE password = 'hunter2'"

FULL: dict[TraceEventType, dict[str, Any]] = {
    TraceEventType.RUN_STARTED: {
        "forked_from": "0b8e9d5e-0000-4000-8000-000000000000",
        "model": "openai:deepseek/chat-v3.1",
        "no_gain_threshold": 3,
        "protocol_violation_threshold": 2,
    },
    TraceEventType.INTENT_ROUTED: {"intent": "DIAGNOSIS", "attempt": 1, "error_code": "INTENT_ROUTING_FAILED"},
    TraceEventType.MODEL_CALL: {
        "component": "DIAGNOSIS_AGENT",
        "component_round": 1,
        "usage_available": True,
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
    },
    TraceEventType.TOOL_CALL_COMPLETED: {
        "tool_call_id": "call_1",
        "tool_name": "query_mysql",
        "scope_summary": "orders: orders, payments",
        "scope_hash": "0" * 64,
        "evidence_status": "EVIDENCE_FOUND",
        "returned_count": 3,
        "truncated": False,
        "relevance_level": "HIGH",
        "error_code": "TOOL_TIMEOUT",
    },
    TraceEventType.INFORMATION_GAIN_APPLIED: {
        "tool_call_id": "call_1",
        "producer": "HARNESS",
        "information_gain": "NO_GAIN",
        "before": 1,
        "after": 2,
        "collection_state": "COLLECTING",
    },
    TraceEventType.COLLECTION_SATURATED: {"stop_reason": "INFORMATION_SATURATED", "collection_state": "SATURATED"},
    TraceEventType.COLLECTION_STOPPED: {
        "stop_reason": "BUDGET_LIMIT_REACHED",
        "dimension": "TOKENS",
        "cause": "BUDGET",
        "fault": "MODEL_TIMEOUT",
    },
    TraceEventType.TOOL_REQUEST_REJECTED: {
        "tool_call_id": "call_1",
        "tool_name": "query_logs",
        "error_code": "INVALID_PROGRESS_PROTOCOL",
        "violation_type": "MISSING_FIELD",
        "repair_prompt_delivered": True,
        "consecutive_protocol_violations": 1,
        "stop_reason": "PROGRESS_PROTOCOL_VIOLATED",
        "rule": "string_too_long",
    },
    TraceEventType.AGENT_OUTPUT_REJECTED: {
        "failure": "NOT_JSON",
        "output_bytes": 12,
        "has_publishable_progress": False,
    },
    TraceEventType.PARALLEL_CALLS_DROPPED: {"count": 2},
    TraceEventType.PROGRESS_PROJECTED: {"checked": 2, "observed_facts": 1, "limitations": ["TOOL_ERROR", "FAULT"]},
    TraceEventType.EVIDENCE_GUARD: {"violations": ["QUOTE_NOT_FOUND"], "passed": False},
    TraceEventType.EVIDENCE_REPAIR: {"accepted": False, "reason": "REPAIR_CHANGED_STATEMENT"},
    TraceEventType.SEMANTIC_GUARD: {"verdict": "SUPPORTED", "attempt": 1, "lexical": True},
    TraceEventType.RELEASE_DECIDED: {"release_outcome": "FALLBACK", "reason": "INSUFFICIENT_EVIDENCE"},
    TraceEventType.RUN_CANCEL_REQUESTED: {},
    TraceEventType.LATE_RESULT_DROPPED: {"stage": "execute_tool"},
    TraceEventType.RUN_ENDED: {
        "internal_state": "BUDGET_EXHAUSTED",
        "budget_total_tokens": 15,
        "ledger_total_tokens": 15,
        "model_calls": 1,
        "tool_calls": 1,
        "usage_unavailable": 0,
        "tokens_reconciled": True,
        "stop_reason": "BUDGET_LIMIT_REACHED",
    },
}


def event(kind: TraceEventType, **fields: Any) -> TraceEvent:
    return TraceEvent(type=kind, fields=fields)


@pytest.mark.parametrize("kind", list(TraceEventType))
def test_r108_each_event_keeps_exactly_its_fields(kind: TraceEventType) -> None:
    admitted = admit(event(kind, **FULL[kind]), strict=True)
    assert admitted.fields == FULL[kind]
    assert admitted.fields_refused == 0
    assert set(FULL[kind]) == set(WHITELIST[kind])


@pytest.mark.parametrize("kind", list(TraceEventType))
@pytest.mark.parametrize(
    "name",
    [
        "prompt",
        "thought",
        "raw_response",
        "params",
        "remaining_tokens",
        "remaining_budget",
        "reason_text",
        "observation",
    ],
)
def test_r104_what_must_never_be_in_a_trace_is_refused_and_counted(kind: TraceEventType, name: str) -> None:
    sent = event(kind, **FULL[kind], **{name: SECRET})
    admitted = admit(sent)
    assert admitted.fields == FULL[kind]
    assert admitted.fields_refused == 1
    with pytest.raises(TraceFieldRefused) as caught:
        admit(sent, strict=True)
    assert name in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind, forms in WHITELIST.items() for name in forms if name not in ("tool_call_id", "tool_name")],
)
@pytest.mark.parametrize("value", ["x" * (MAX_VALUE_CHARS + 1), {"a": 1}, [{"a": 1}], [SECRET], -1, 1.5, b"x", [[]]])
def test_r108_no_field_takes_long_text_or_nested_data(kind: TraceEventType, name: str, value: Any) -> None:
    fields = {**FULL[kind], name: value}
    if name == "usage_available":
        fields = {name: value}
    admitted = admit(event(kind, **fields))
    assert name not in admitted.fields
    assert admitted.fields_refused == 1
    with pytest.raises(TraceFieldRefused, match=name):
        admit(event(kind, **fields), strict=True)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind, forms in WHITELIST.items()
        for name in forms
        if isinstance(FULL[kind][name], str) and name not in ("tool_call_id", "tool_name", "scope_summary")
    ],
)
def test_r104_sentences_fit_into_no_code(kind: TraceEventType, name: str) -> None:
    assert name not in admit(event(kind, **{name: SECRET})).fields
    assert name not in admit(event(kind, **{name: FULL[kind][name] + "\n"})).fields


def test_r106_unsafe_tool_ids_and_names_are_replaced_not_shown() -> None:
    sent = event(TraceEventType.TOOL_REQUEST_REJECTED, tool_call_id="a b", tool_name=SECRET)
    assert admit(sent, strict=True).fields == {"tool_call_id": INVALID, "tool_name": INVALID}
    for bad in ("", "x" * 129, "call_1\n", "调用"):
        sent = event(TraceEventType.TOOL_REQUEST_REJECTED, tool_call_id=bad)
        assert admit(sent, strict=True).fields == {"tool_call_id": INVALID}
    assert admit(event(TraceEventType.TOOL_REQUEST_REJECTED, tool_call_id=7)).fields_refused == 1


@pytest.mark.parametrize("available", [False, None, "yes", 1])
def test_r113_r116_tokens_only_where_usage_is_available(available: Any) -> None:
    sent = event(
        TraceEventType.MODEL_CALL, component="SEMANTIC_GUARD", usage_available=available, input_tokens=0, total_tokens=0
    )
    admitted = admit(sent)
    assert not {"input_tokens", "output_tokens", "total_tokens"} & set(admitted.fields)
    assert admitted.fields_refused >= 2


def test_r113_absent_values_are_absent_not_refused() -> None:
    sent = event(
        TraceEventType.MODEL_CALL,
        component="INTENT_ROUTER",
        component_round=1,
        usage_available=False,
        input_tokens=None,
        failure=None,
    )
    admitted = admit(sent, strict=True)
    assert admitted.fields == {"component": "INTENT_ROUTER", "component_round": 1, "usage_available": False}


def test_lists_are_bounded_and_hold_codes_only() -> None:
    many = ["TOOL_ERROR"] * (MAX_LIST_ITEMS + 1)
    for limitations in (many, "TOOL_ERROR", ["TOOL_ERROR", "made up"], {"TOOL_ERROR"}):
        admitted = admit(event(TraceEventType.PROGRESS_PROJECTED, limitations=limitations))
        assert (admitted.fields, admitted.fields_refused) == ({}, 1)
    kept = admit(event(TraceEventType.PROGRESS_PROJECTED, limitations=("TOOL_ERROR",)), strict=True)
    assert kept.fields == {"limitations": ["TOOL_ERROR"]}


def test_numbers_are_whole_and_flags_are_flags() -> None:
    for bad in (True, MAX_COUNT + 1, "3", 3.0):
        assert admit(event(TraceEventType.PARALLEL_CALLS_DROPPED, count=bad)).fields == {}
    for bad in (1, 0, "true"):
        assert admit(event(TraceEventType.SEMANTIC_GUARD, lexical=bad)).fields == {}


def test_steps_hold_safe_ids_and_codes() -> None:
    assert safe_ids(("call_1", "", SECRET)) == ("call_1", INVALID, INVALID)
    assert len(safe_ids("x" for _ in range(100))) == MAX_LIST_ITEMS
    assert (safe_code("TOOL_CALLS"), safe_code(SECRET)) == ("TOOL_CALLS", INVALID)


@given(
    kind=st.sampled_from(list(TraceEventType)),
    fields=st.dictionaries(
        st.sampled_from(sorted({name for forms in WHITELIST.values() for name in forms})) | st.text(max_size=80),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=400)
        | st.lists(st.text(max_size=300), max_size=40),
        max_size=8,
    ),
)
def test_r108_no_event_is_lost_and_nothing_outside_the_whitelist_passes(
    kind: TraceEventType, fields: dict[str, Any]
) -> None:
    admitted = admit(TraceEvent(type=kind, fields=fields))
    assert admitted.type is kind
    assert set(admitted.fields) <= set(WHITELIST[kind])
    given_values = sum(1 for value in fields.values() if value is not None)
    assert len(admitted.fields) + admitted.fields_refused == given_values
    for value in admitted.fields.values():
        for part in value if isinstance(value, list) else [value]:
            assert isinstance(part, str | int)
            assert len(str(part)) <= MAX_VALUE_CHARS
