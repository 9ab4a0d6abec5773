"""JSON Schema of a bundle's file, made from the payload models."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from service.replay.format import FORMAT, MAX_KEY_CHARS, PAYLOADS, RUN_ID
from service.replay.text import MAX_ENTRIES

_DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def bundle_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12). A file that fits it may still be refused: digests and order are not in it."""
    references, definitions = models_json_schema(
        [(model, "validation") for model in PAYLOADS.values()], ref_template="#/$defs/{model}"
    )
    entries = [_entry(kind, key, references[(model, "validation")]) for (kind, key), model in PAYLOADS.items()]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Run bundle {FORMAT}",
        "type": "object",
        "properties": {
            "format": {"const": FORMAT},
            "run_id": {"type": "string", "pattern": RUN_ID},
            "entries": {"type": "array", "maxItems": MAX_ENTRIES, "items": {"anyOf": entries}},
            "digest": _DIGEST,
        },
        "required": ["format", "run_id", "entries", "digest"],
        "additionalProperties": False,
        "$defs": definitions["$defs"],
    }


def _entry(kind: str, key: str | None, payload: dict[str, Any]) -> dict[str, Any]:
    named = {"type": "string", "maxLength": MAX_KEY_CHARS} if key is None else {"const": key}
    return {
        "type": "object",
        "properties": {"kind": {"const": kind}, "key": named, "digest": _DIGEST, "payload": payload},
        "required": ["kind", "key", "digest", "payload"],
        "additionalProperties": False,
    }
