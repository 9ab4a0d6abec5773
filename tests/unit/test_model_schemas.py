from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, Field

from release.contract import DiagnosisDraft, SemanticJudgement
from service.models.profile import DEEPSEEK, KIMI, LOCAL, OPENAI, PROFILES, QWEN
from service.models.schemas import inlined, output_section, response_format, strict, tool_schema, without_absent
from tests.stand_in_tools import FIELDS, LOGS, SEARCH, SQL, TOOLS


def walk(node: Any):  # type: ignore[no-untyped-def]
    yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from walk(child)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda p: p.name)
@pytest.mark.parametrize("tool", TOOLS, ids=lambda t: t.name)
def test_r22_every_concrete_field_of_input_is_visible(profile, tool) -> None:  # type: ignore[no-untyped-def]
    schema = tool_schema(tool, profile)["function"]["parameters"]
    assert set(schema["properties"]["input"]["properties"]) == FIELDS[tool.name]
    assert "$ref" not in json.dumps(schema)
    assert "$defs" not in json.dumps(schema)
    assert "input" in schema["required"]


def test_r22_nested_models_and_enums_are_visible_too() -> None:
    fields = tool_schema(LOGS, LOCAL)["function"]["parameters"]["properties"]["input"]["properties"]
    assert set(fields["time_range"]["anyOf"][0]["properties"]) == {"start", "end"}
    assert fields["order"]["enum"] == ["NEWEST", "OLDEST"]
    gain = tool_schema(LOGS, LOCAL)["function"]["parameters"]["properties"]["previous_observation"]["anyOf"][0]
    assert gain["properties"]["information_gain"]["enum"] == ["GAINED", "NO_GAIN"]


def test_r25_previous_observation_may_be_left_out_without_strict_mode() -> None:
    assert tool_schema(SEARCH, LOCAL)["function"]["parameters"]["required"] == ["input"]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda t: t.name)
def test_r22_strict_mode_requires_every_field_and_makes_optional_ones_nullable(tool) -> None:  # type: ignore[no-untyped-def]
    function = tool_schema(tool, OPENAI)["function"]
    assert function["strict"] is True
    for node in walk(function["parameters"]):
        if isinstance(node, dict) and node.get("type") == "object":
            assert node["additionalProperties"] is False
            assert node["required"] == list(node["properties"])
        if isinstance(node, dict):
            assert not {"default", "minLength", "maxLength", "title", "oneOf", "$ref"} & {
                key for key in node if not isinstance(node.get("type"), dict)
            }
    for name in ("previous_observation",):
        assert {"type": "null"} in function["parameters"]["properties"][name]["anyOf"]


def test_strict_mode_tells_lengths_in_words() -> None:
    query = tool_schema(SEARCH, OPENAI)["function"]["parameters"]["properties"]["input"]["properties"]["query"]
    assert query["description"] == "What to look for. (at least 1 characters, at most 500 characters)"


def test_r22_nulls_of_strict_mode_mean_absent() -> None:
    sent = {
        "previous_observation": None,
        "input": {"topic": "app", "query": None, "time_range": None, "order": None, "limit": None},
    }
    kept = without_absent(sent, inlined(LOGS.envelope))
    # Fields that accept null keep it; the contract reads it as absent itself.
    assert kept == {"previous_observation": None, "input": {"topic": "app", "time_range": None}}
    parsed = LOGS.envelope.model_validate_json(json.dumps(kept))
    assert parsed.previous_observation is None
    assert parsed.input.limit == 20


def test_nulls_that_mean_something_or_break_something_stay() -> None:
    sql = {"input": {"datasource": None, "sql": "x", "parameters": [None, 1], "extra": None}}
    assert without_absent(sql, inlined(SQL.envelope)) == sql


def test_a_schema_without_strict_form_is_sent_plainly() -> None:
    class Free(BaseModel):
        anything: dict[str, Any] = Field(default_factory=dict)

    class Tree(BaseModel):
        children: list[Tree] = Field(default_factory=list)

    assert strict(inlined(Free), nullable=True) is None
    with pytest.raises(ValueError, match="refers to itself"):
        inlined(Tree)


def test_a_field_called_title_survives() -> None:
    class Book(BaseModel):
        title: str
        properties: int

    assert set(inlined(Book)["properties"]) == {"title", "properties"}


@pytest.mark.parametrize("output", [DiagnosisDraft, SemanticJudgement])
def test_r77_the_contract_is_the_structured_output_parameter(output: type[BaseModel]) -> None:
    form = response_format(OPENAI, output, with_tools=True)
    assert form is not None
    described = form["json_schema"]
    assert described["strict"] is True
    assert described["name"] == output.__name__
    assert set(described["schema"]["required"]) == set(output.model_fields)
    assert output_section(OPENAI, output, "zh") is None
    if output is DiagnosisDraft:
        limits = described["schema"]["properties"]["limitations"]["properties"]["missing_info"]
        assert limits["type"] == "array"  # required, not nullable: the contract refuses null there


@pytest.mark.parametrize("profile", [DEEPSEEK, KIMI, QWEN, LOCAL], ids=lambda p: p.name)
def test_r77_without_it_the_section_is_generated_from_the_contract(profile) -> None:  # type: ignore[no-untyped-def]
    assert response_format(profile, DiagnosisDraft, with_tools=True) is None
    for language in ("zh", "en", "fr"):
        section = output_section(profile, DiagnosisDraft, language)
        assert section is not None
        assert "JSON" in section
        assert json.loads(section[section.index("{") :]) == inlined(DiagnosisDraft)


def test_json_mode_is_asked_for_where_no_tool_could_suffer() -> None:
    assert response_format(DEEPSEEK, SemanticJudgement, with_tools=False) == {"type": "json_object"}
    assert response_format(LOCAL, SemanticJudgement, with_tools=False) is None


@pytest.mark.parametrize("model", [DiagnosisDraft, SemanticJudgement])
@pytest.mark.parametrize("language", ["zh", "en", "fr"])
def test_r102_the_section_speaks_to_the_model_only(model: type[BaseModel], language: str) -> None:
    section = output_section(LOCAL, model, language)
    assert section is not None
    assert ("输出格式" in section) is (language == "zh")
    assert "(R" not in section, "numbers of the contract are for developers"
    for word in ("query_logs", "mysql", "threshold", "budget", "next_action", "no_gain", "score", "confidence"):
        assert word not in section.lower()


@pytest.mark.parametrize("tool", TOOLS, ids=lambda t: t.name)
def test_docstrings_of_contracts_do_not_reach_the_model(tool) -> None:  # type: ignore[no-untyped-def]
    assert "(R" not in json.dumps(tool_schema(tool, LOCAL))
