"""Schemas that reach the provider: tools with every concrete field in sight (R22), output contracts (R77)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from service.models.profile import ProviderProfile, StructuredOutput
from tools.evidence_tool import EvidenceTool

Schema = dict[str, Any]

_LENGTH_NOTES = {"minLength": "at least {} characters", "maxLength": "at most {} characters"}
_STRICT_DROPS = frozenset({*_LENGTH_NOTES, "default", "examples", "uniqueItems", "discriminator", "format"})
"""Keywords strict mode refuses; lengths move into the description, since the harness enforces them still."""

_STRICT_REFUSES = frozenset(
    {"allOf", "not", "if", "then", "else", "patternProperties", "prefixItems", "dependentSchemas"}
)

_SECTION = {
    "zh": (
        "## 输出格式\n最终回答只能是一个 JSON 对象：前后没有任何其他文字，不用 Markdown 代码块，不加注释，"
        "没有重复的键，没有下面未列出的键。不符合的回答会被整体丢弃。"
        "它必须符合这个 JSON Schema：\n"
    ),
    "en": (
        "## Output format\nThe final answer is exactly one JSON object: no text before or after it, no code fence, no "
        "comments, no duplicate keys, no keys beyond those listed. An answer that does not fit is discarded as a whole. "
        "The JSON Schema:\n"
    ),
}


def inlined(model: type[BaseModel]) -> Schema:
    """Return the JSON schema of `model` with `$ref`s replaced by what they name and generated titles removed.

    Raises:
        ValueError: the model refers to itself.
    """
    schema = model.model_json_schema()
    definitions = {name: _undocumented(body) for name, body in schema.pop("$defs", {}).items()}
    schema = _undocumented(schema)
    resolved = _inline(schema, definitions, ())
    assert isinstance(resolved, dict)
    return resolved


def _undocumented(definition: Schema) -> Schema:
    # A class's docstring speaks to developers; only the fields' descriptions speak to the model.
    return {key: value for key, value in definition.items() if key != "description"}


def _inline(node: Any, definitions: Mapping[str, Any], seen: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions, seen) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = str(node["$ref"]).rsplit("/", 1)[-1]
        if name in seen:
            raise ValueError(f"schema of {name} refers to itself")
        merged = {**definitions[name], **{key: value for key, value in node.items() if key != "$ref"}}
        return _inline(merged, definitions, (*seen, name))
    result: Schema = {}
    for key, value in node.items():
        if key == "properties":
            result[key] = {name: _inline(child, definitions, seen) for name, child in value.items()}
        elif key in {"enum", "const", "default", "examples", "required"}:
            result[key] = value
        elif key != "title":
            result[key] = _inline(value, definitions, seen)
    return result


def strict(schema: Schema, *, nullable: bool) -> Schema | None:
    """Return the strict-mode form: every field required, no further keys; None when the schema has no such form.

    With `nullable`, fields that were optional accept null, which then means absent (R22); without it they are simply
    required, for contracts whose optional fields do not accept null.
    """
    try:
        return _strict(schema, nullable)
    except _NotStrictError:
        return None


class _NotStrictError(Exception):
    pass


def _strict(node: Schema, nullable: bool) -> Schema:
    if _STRICT_REFUSES & node.keys() or not ({"type", "anyOf", "oneOf", "enum", "const"} & node.keys()):
        raise _NotStrictError
    result = {key: value for key, value in node.items() if key not in _STRICT_DROPS and key != "oneOf"}
    notes = [note.format(node[key]) for key, note in _LENGTH_NOTES.items() if key in node]
    if notes:
        result["description"] = " ".join([*filter(None, [node.get("description")]), f"({', '.join(notes)})"])
    if branches := node.get("anyOf") or node.get("oneOf"):
        result["anyOf"] = [_strict(branch, nullable) for branch in branches]
    if node.get("type") == "array":
        result["items"] = _strict(node.get("items", {}), nullable)
    if node.get("type") == "object":
        if node.get("additionalProperties") is not False or "properties" not in node:
            raise _NotStrictError
        required = node.get("required", ())
        result["properties"] = {
            name: _strict_field(child, nullable, name in required) for name, child in node["properties"].items()
        }
        result["required"] = list(node["properties"])
    return result


def _strict_field(node: Schema, nullable: bool, required: bool) -> Schema:
    field = _strict(node, nullable)
    if required or not nullable or _admits_null(node):
        return field
    description = field.pop("description", None)
    return {**({"description": description} if description else {}), "anyOf": [field, {"type": "null"}]}


def _admits_null(node: Schema) -> bool:
    return node.get("type") == "null" or any(_admits_null(branch) for branch in node.get("anyOf", ()))


def without_absent(value: Any, schema: Schema) -> Any:
    """Remove the nulls that strict mode made the model send for optional fields that do not accept null (R22)."""
    if isinstance(value, list):
        return [without_absent(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    branches = [schema, *schema.get("anyOf", ())]
    owner: Schema = next((branch for branch in branches if "properties" in branch), {})
    fields, required = owner.get("properties", {}), owner.get("required", ())
    return {
        name: without_absent(child, fields.get(name, {}))
        for name, child in value.items()
        if child is not None or name not in fields or name in required or _admits_null(fields[name])
    }


def tool_schema(tool: EvidenceTool, profile: ProviderProfile) -> Schema:
    """Return one entry of the request's `tools` array."""
    parameters = inlined(tool.envelope)
    function: Schema = {"name": tool.name, "description": tool.description, "parameters": parameters}
    if profile.strict_tools and (form := strict(parameters, nullable=True)) is not None:
        function |= {"parameters": form, "strict": True}
    return {"type": "function", "function": function}


def response_format(profile: ProviderProfile, output: type[BaseModel], *, with_tools: bool) -> Schema | None:
    """Return the provider's structured-output parameter, or None where the profile has none for this request."""
    if profile.structured_output is StructuredOutput.JSON_OBJECT:
        return None if with_tools else {"type": "json_object"}
    if profile.structured_output is not StructuredOutput.JSON_SCHEMA:
        return None
    schema = inlined(output)
    form = strict(schema, nullable=False)
    described = {"name": output.__name__, "schema": form or schema, "strict": form is not None}
    return {"type": "json_schema", "json_schema": described}


def output_section(profile: ProviderProfile, output: type[BaseModel], language: str) -> str | None:
    """Return the prompt section that states the contract, or None where `response_format` carries the schema."""
    if profile.structured_output is StructuredOutput.JSON_SCHEMA:
        return None
    head = _SECTION.get(language, _SECTION["en"])
    return head + json.dumps(inlined(output), ensure_ascii=False, separators=(",", ":"))
