"""The one comparison that every rule is made of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

MAX_SHOWN = 160


def differ(rule: str, /, **said: Any) -> Iterator[str]:
    """Yield one line when not all sources say the same; it names the rule and what each source says."""
    texts = {
        source: json.dumps(value, ensure_ascii=False, sort_keys=True, default=str) for source, value in said.items()
    }
    if len(set(texts.values())) > 1:
        yield f"{rule}: " + ", ".join(f"{source} {text[:MAX_SHOWN]}" for source, text in texts.items())
