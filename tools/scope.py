"""Shared parts of scope normalization (R43-R47): canonical JSON, its key, whitespace. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from tools.contract import Scope

_SPACE = re.compile(r"\s+")
MAX_SUMMARY_CHARS = 256


def canonical_json(value: Any) -> str:
    """Serialize JSON data with sorted keys and no spaces; equal data give equal text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def collapse_whitespace(text: str) -> str:
    """Trim and collapse runs of whitespace to one space."""
    return _SPACE.sub(" ", text).strip()


def make_scope(tool_name: str, normalized: dict[str, Any], summary: str) -> Scope:
    """Build the Scope of one request; the key covers the tool's name and the normalized form (R45, R47)."""
    key = hashlib.sha256(canonical_json([tool_name, normalized]).encode()).hexdigest()
    return Scope(tool_name=tool_name, normalized=normalized, key=key, summary=summary[:MAX_SUMMARY_CHARS])
