"""The envelope protocol against the written rules (R23-R28, R33)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.contract import ViolationType
from tests.fakes import ProbeToolCall, envelope
from tools.contract import InformationGain, InvalidInput
from tools.envelope_protocol import ControlFields, ProtocolFault, check_control_fields, check_input

GOOD = {"tool_call_id": "c1", "information_gain": "GAINED"}


def fault(arguments: Any, pending: str | None = "c1", latest: str | None = None) -> tuple[str, str | None]:
    result = check_control_fields(arguments, pending, latest)
    assert isinstance(result, ProtocolFault), result
    return result.violation_type.value, result.missing_field


@pytest.mark.parametrize(
    "arguments",
    [
        None,
        [],
        "text",
        {"input": {"query": "x"}, "extra": 1},
        {"input": {"query": "x"}, "previous_observation": "c1"},
        {"input": {"query": "x"}, "previous_observation": {**GOOD, "score": 1}},
        {"input": {"query": "x"}, "previous_observation": {"tool_call_id": 7, "information_gain": "GAINED"}},
        {"input": "select 1"},
        {"input": {"query": float("nan")}},
        {"input": {"query": "\ud800"}},
    ],
)
def test_r28_what_is_no_envelope_is_malformed(arguments: Any) -> None:
    assert fault(arguments) == ("MALFORMED_ENVELOPE", None)


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"previous_observation": {}, "input": {}}, "previous_observation.tool_call_id"),
        ({"previous_observation": {"tool_call_id": "c1"}, "input": {}}, "previous_observation.information_gain"),
    ],
)
def test_r33_a_missing_field_is_named(arguments: Any, missing: str) -> None:
    assert fault(arguments) == ("MISSING_FIELD", missing)


def test_r24_a_bare_business_request_is_refused() -> None:
    assert fault({"query": "x"}, pending=None)[0] == "MALFORMED_ENVELOPE"


def test_r26_with_a_pending_result_the_evaluation_is_required() -> None:
    assert fault(envelope("x")) == ("MISSING_PREVIOUS_OBSERVATION", "previous_observation")
    assert fault({"input": {}, "previous_observation": None})[0] == "MISSING_PREVIOUS_OBSERVATION"
    assert fault(envelope("x", ("c0", "GAINED")))[0] == "PREVIOUS_TOOL_CALL_MISMATCH"


@pytest.mark.parametrize("value", ["UNKNOWN", "gained", "", True, 1, 0.5])
def test_r21_only_the_two_values_are_allowed(value: Any) -> None:
    arguments = {"input": {}, "previous_observation": {"tool_call_id": "c1", "information_gain": value}}
    assert fault(arguments)[0] == "INVALID_INFORMATION_GAIN"


def test_r28_several_faults_are_reported_in_the_fixed_order() -> None:
    wrong_id_bad_value = {"input": {}, "previous_observation": {"tool_call_id": "zz", "information_gain": "MAYBE"}}
    assert fault(wrong_id_bad_value)[0] == "INVALID_INFORMATION_GAIN"
    assert fault({"previous_observation": {"tool_call_id": "zz", "information_gain": "MAYBE"}})[0] == "MISSING_FIELD"
    assert fault({"bad": 1, "previous_observation": None})[0] == "MALFORMED_ENVELOPE"


@pytest.mark.parametrize("gain", list(InformationGain))
def test_r27_the_latest_answered_call_is_tolerated_when_nothing_is_pending(gain: InformationGain) -> None:
    result = check_control_fields(envelope("x", ("c9", gain.value)), None, "c9")
    assert result == ControlFields(None)


def test_r27_any_other_id_is_unexpected_when_nothing_is_pending() -> None:
    assert fault(envelope("x", ("c1", "GAINED")), pending=None, latest="c9")[0] == "UNEXPECTED_PREVIOUS_OBSERVATION"


def test_r22_a_null_previous_observation_means_absent() -> None:
    assert check_control_fields({"input": {}, "previous_observation": None}, None, None) == ControlFields(None)


def test_r33_a_foreign_id_is_never_echoed() -> None:
    result = check_control_fields(envelope("x", ("FOREIGN-1", "GAINED")), "c1", None)
    assert isinstance(result, ProtocolFault)
    assert result.expected_previous_tool_call_id == "c1"
    assert "FOREIGN" not in repr(result)


@pytest.mark.parametrize(
    ("business", "field", "rule"),
    [
        ({}, "input.query", "missing"),
        ({"query": 7}, "input.query", "string_type"),
        ({"query": "x" * 201}, "input.query", "string_too_long"),
        ({"query": "x", "SECRET-KEY": 1}, "input", "unknown_field"),
    ],
)
def test_r28_a_bad_input_names_field_and_rule_but_not_the_value(business: Any, field: str, rule: str) -> None:
    result = check_input(business, ProbeToolCall)
    assert isinstance(result, InvalidInput)
    assert (result.field, result.rule) == (field, rule)
    assert "SECRET" not in result.model_dump_json()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda s: st.lists(s) | st.dictionaries(st.text(), s),
)


@given(json_values, st.sampled_from([None, "c1"]), st.sampled_from([None, "c1", "c9"]))
def test_r23_no_arguments_ever_raise(arguments: Any, pending: str | None, latest: str | None) -> None:
    result = check_control_fields(arguments, pending, latest)
    if isinstance(result, ControlFields):
        assert isinstance(arguments["input"], dict)
        json.dumps(arguments, allow_nan=False)
        assert not isinstance(check_input(arguments["input"], ProbeToolCall), Exception)
    else:
        assert result.violation_type in ViolationType
