"""Arguments of a tool call as the provider sent them: one bounded JSON object or nothing (R23, R28)."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_ARGUMENT_BYTES = 64 * 1024
"""UTF-8 bytes of one call's arguments; more counts as malformed."""

MAX_ARGUMENT_DEPTH = 32


def parse_arguments(raw: object) -> dict[str, Any] | None:
    """Parse one call's arguments strictly; None when they are not one bounded JSON object.

    Refused besides broken JSON: duplicate keys, NaN and infinities, integers beyond 64 bits, lone surrogates and deep
    nesting, none of which survives a checkpoint or the way back to the provider.
    """
    try:
        text = raw if isinstance(raw, str) else json.dumps(raw) if isinstance(raw, dict) else ""
        if not text or len(text) > MAX_ARGUMENT_BYTES or len(text.encode("utf-8")) > MAX_ARGUMENT_BYTES:
            return None
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
        return value if isinstance(value, dict) and _storable(value, 0) else None
    except (ValueError, TypeError, RecursionError):
        return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _refuse(constant: str) -> None:
    raise ValueError("not a JSON number")


def _storable(value: Any, depth: int) -> bool:
    if depth > MAX_ARGUMENT_DEPTH:
        return False
    if isinstance(value, dict):
        return all(_storable(key, depth) and _storable(child, depth + 1) for key, child in value.items())
    if isinstance(value, list):
        return all(_storable(child, depth + 1) for child in value)
    if isinstance(value, str):
        return not any("\ud800" <= char <= "\udfff" for char in value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return not isinstance(value, float) or math.isfinite(value)
