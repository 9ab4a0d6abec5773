"""Where two JSON values differ. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

MAX_VALUE_CHARS = 200
NOTHING = "nothing"


def differing(left: Any, right: Any, place: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield each place that differs, with both sides as bounded text."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in sorted({*left, *right}):
            where = f"{place}.{key}".lstrip(".")
            if key not in left or key not in right:
                yield (
                    where,
                    shown(left[key]) if key in left else NOTHING,
                    shown(right[key]) if key in right else NOTHING,
                )
            else:
                yield from differing(left[key], right[key], where)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from differing(one, other, f"{place}[{index}]")
    elif type(left) is not type(right) or left != right:
        yield place, shown(left), shown(right)


def shown(value: Any) -> str:
    """Return a value as JSON of at most 200 characters."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"
