"""Cutting values to a size without losing what matters in them. Pure."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from typing import Any

from tools.contract import Scope
from tools.masking import mask_text, mask_value

ELLIPSIS = "…"
MAX_SCOPE_BYTES = 2 * 1024
"""UTF-8 JSON bytes of one readable scope; a longer SQL text is cut in what people see, never in the record."""

_STEPS = ((20, 500), (20, 200), (10, 200), (10, 120), (5, 120), (5, 80), (3, 60), (1, 40))
"""Items per list and characters per text, tried in order until the value fits."""
_MAX_DEPTH = 8
OMITTED: dict[str, Any] = {"omitted": True}
"""Stands for what did not fit at all."""


def dump(value: Any) -> str:
    """Serialize JSON data compactly, as the bytes are counted here; anything else becomes its text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def size(value: Any) -> int:
    """Return the UTF-8 bytes of a value's compact JSON."""
    return len(dump(value).encode("utf-8", "surrogatepass"))


def clean_text(text: str) -> str:
    """Drop what a terminal or a database would not take as text: control characters but newline and tab, surrogates."""
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs"))


def cut_text(text: str, limit: int, keep: Sequence[str] = ()) -> str:
    """Cut to `limit` characters, an ellipsis included, around the first of `keep` that occurs, else from the start."""
    if len(text) <= limit:
        return text
    if limit < 3:
        return ELLIPSIS[:limit]
    found = min((at for at in (text.find(part) for part in keep if part) if at >= 0), default=0)
    start = max(0, min(found - limit // 4, len(text) - limit + 1)) if found >= limit // 2 else 0
    head = ELLIPSIS if start else ""
    room = limit - len(head)
    if start + room >= len(text):
        return head + text[-room:]
    return head + text[start : start + room - 1] + ELLIPSIS


def fit_json(value: Any, max_bytes: int, keep: Sequence[str] = ()) -> tuple[Any, bool]:
    """Cut JSON data to `max_bytes` (at least 16) of compact UTF-8 JSON; say whether anything was cut.

    Lists lose items and texts lose characters that hold none of `keep` first.
    """
    if size(value) <= max_bytes:
        return value, False
    for items, chars in _STEPS:
        smaller = _shrink(value, items, chars, keep, 0)
        if size(smaller) <= max_bytes:
            return smaller, True
    return OMITTED, True


def _shrink(value: Any, items: int, chars: int, keep: Sequence[str], depth: int) -> Any:
    if depth >= _MAX_DEPTH:
        return ELLIPSIS
    if isinstance(value, str):
        return cut_text(value, chars, keep)
    if isinstance(value, dict):
        pairs = list(value.items())[: 2 * items]
        return {cut_text(str(key), chars): _shrink(item, items, chars, keep, depth + 1) for key, item in pairs}
    if isinstance(value, list | tuple):
        return [_shrink(item, items, chars, keep, depth + 1) for item in _most_wanted(value, items, keep)]
    return value


def _most_wanted(values: Sequence[Any], limit: int, keep: Sequence[str]) -> list[Any]:
    if len(values) <= limit:
        return list(values)
    texts = [dump(value) for value in values]
    plain = [not any(part in text for part in keep if part) for text in texts]
    return [values[at] for at in sorted(sorted(range(len(values)), key=plain.__getitem__)[:limit])]


def readable_scope(scope: Scope) -> tuple[dict[str, Any], bool]:
    """Return a scope as people may see it, masked and at most 2 KiB of JSON; say whether it was cut (R66)."""
    masked = mask_value(scope.normalized)
    fitted, cut = fit_json(masked, MAX_SCOPE_BYTES)
    if isinstance(fitted, dict) and fitted != OMITTED:
        return fitted, cut
    return {"summary": mask_text(scope.summary)}, True
