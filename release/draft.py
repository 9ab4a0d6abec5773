"""The diagnosis draft as the model writes it: strict parsing, and its schema for providers (R73, R77, R79). Pure."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from release.contract import MAX_DRAFT_BYTES, AgentOutputFailure, DiagnosisDraft
from release.strict_json import parse_strict

_KEPT = ("type", "enum", "description")
_OUTPUT_FORMAT = {
    "zh": (
        "## 输出格式\n最终回答只能是一个 JSON 对象：前后没有任何其他文字，不用 Markdown 代码块，不加注释，"
        "没有重复的键，没有下面未列出的键。它必须符合这个 JSON Schema：\n{schema}\n"
        "不符合的回答会被整体丢弃。调用工具的消息不是最终回答。"
    ),
    "en": (
        "## Output format\nThe final answer is exactly one JSON object: no text before or after it, no Markdown "
        "fence, no comments, no duplicate keys, no keys beyond those listed. It must satisfy this JSON Schema:\n"
        "{schema}\n"
        "An answer that does not is discarded as a whole. A message that calls tools is not a final answer."
    ),
}


def parse_draft(text: str) -> DiagnosisDraft | AgentOutputFailure:
    """Parse a final model text strictly, at most 32 KiB; any failure discards it whole (R77, R79). Never raises."""
    return parse_strict(text, DiagnosisDraft, MAX_DRAFT_BYTES)


def draft_schema() -> dict[str, Any]:
    """Return the draft's JSON schema for a provider's structured output."""
    return provider_schema(DiagnosisDraft)


def output_format_section(language: str, model: type[BaseModel] = DiagnosisDraft) -> str:
    """Return the prompt section for providers without structured output, generated from the contract.

    `language` is `zh` or `en`; anything else reads English.
    """
    schema = json.dumps(provider_schema(model), ensure_ascii=False, separators=(",", ":"))
    return _OUTPUT_FORMAT.get(language, _OUTPUT_FORMAT["en"]).replace("{schema}", schema)


def provider_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's JSON schema in the subset that every provider's strict mode takes.

    References are inlined, every property is required, no other is allowed. Bounds and patterns, which several strict
    modes refuse as keywords, move into the descriptions; the raw text is validated against them either way.
    """
    schema = model.model_json_schema()
    return _portable(_undocumented(schema), schema.get("$defs", {}))


def _undocumented(definition: dict[str, Any]) -> dict[str, Any]:
    """A class's docstring speaks to developers; only the fields' descriptions speak to the model."""
    return {key: value for key, value in definition.items() if key != "description"}


def _portable(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        target = definitions[str(node["$ref"]).rsplit("/", 1)[-1]]
        node = {**_undocumented(target), **{key: value for key, value in node.items() if key != "$ref"}}
    result: dict[str, Any] = {key: node[key] for key in _KEPT if key in node}
    text = " ".join([*([result["description"]] if "description" in result else []), *_bounds(node)])
    if text:
        result["description"] = text
    if "anyOf" in node:
        result["anyOf"] = [_portable(option, definitions) for option in node["anyOf"]]
    if "items" in node:
        result["items"] = _portable(node["items"], definitions)
    if node.get("type") == "object":
        properties = node.get("properties", {})
        result["properties"] = {name: _portable(value, definitions) for name, value in properties.items()}
        result["required"] = list(properties)
        result["additionalProperties"] = False
    return result


def _bounds(node: dict[str, Any]) -> list[str]:
    texts = []
    if "maxLength" in node:
        texts.append(f"At most {node['maxLength']} characters.")
    if "maxItems" in node:
        texts.append(f"{node.get('minItems', 0)} to {node['maxItems']} items.")
    if "pattern" in node:
        texts.append(f"Matches {node['pattern']}.")
    return texts
