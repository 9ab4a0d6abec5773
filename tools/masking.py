"""Masking of secrets in text before it becomes part of an `agent_result` (R55). Pure."""

from __future__ import annotations

import re
from typing import Any

MASK = "[masked]"

_KEY = (
    r"(?:password|passwd|pwd|secret|token|api[_-]?key|apikey|access[_-]?key|private[_-]?key|client[_-]?secret"
    r"|authorization|credential)s?"
)
# What stands after such a key in messages *about* a secret ("token: expired") is evidence, and a mask is not masked again.
_NO_SECRET = (
    r"(?!\[masked\]|(?:missing|expired|expires|invalid|null|none|undefined|true|false|denied|required|empty|not|is|was"
    r"|has|failed|error|for|from|mismatch|rejected|revoked|unset)\b)"
)
_KEY_PARTS = ("pass", "pwd", "secret", "token", "key", "author", "credent")
_PREFIXES = ("sk", "pk", "rk", "ghp", "gho", "ghs", "glpat", "xoxa", "xoxb", "xoxp", "xoxs")
_PATTERNS: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (
        ("-----begin",),
        re.compile(
            r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.{0,8000}?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|$)", re.DOTALL
        ),
        MASK,
    ),
    (("bearer", "bas"), re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=\-]{8,}"), r"\1 " + MASK),
    (("eyj",), re.compile(r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*"), MASK),
    (("akia", "asia"), re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), MASK),
    (
        tuple(prefix + end for prefix in _PREFIXES for end in "-_"),
        re.compile(rf"\b(?:{'|'.join(_PREFIXES)})[-_][A-Za-z0-9_\-]{{16,}}"),
        MASK,
    ),
    (
        ("://",),
        re.compile(r"\b([a-zA-Z][a-zA-Z0-9+.\-]{1,20}://[^\s:/@]{0,64}):[^\s@/]{1,128}@"),
        r"\1:" + MASK + "@",
    ),
    (
        _KEY_PARTS,
        re.compile(
            r"(?i)(\b[\w.\-]{0,32}"
            + _KEY
            + r"\b[\"']?\s{0,3}[:=]\s{0,3})"
            + _NO_SECRET
            + r"(\"[^\"\n]{1,256}\"|'[^'\n]{1,256}'|[^\s,;&\"'}\])]{1,256})"
        ),
        r"\1" + MASK,
    ),
)
"""Each pattern after words of which every match has one, in its case-folded text (`bas`: `(?i)i` is also a dotless one).
Looking for them first spares most texts the search."""
_HINTS = tuple(hint for hints, _, _ in _PATTERNS for hint in hints)
_SECRET_NAME = re.compile(r"(?i)^[\w.\-]{0,32}" + _KEY + r"$")


def mask_text(text: str) -> str:
    """Return `text` with tokens, keys, passwords and credentials in URLs replaced by `[masked]`."""
    has = text.casefold().__contains__
    if not any(map(has, _HINTS)):
        return text
    for hints, pattern, replacement in _PATTERNS:
        if any(map(has, hints)):
            text = pattern.sub(replacement, text)
    return text


def is_secret_name(name: str) -> bool:
    """Say whether a column or attribute name promises a secret value."""
    return _SECRET_NAME.match(name) is not None


def mask_value(value: Any, name: str = "") -> Any:
    """Mask JSON data in depth; the value under a secret-sounding name is masked whole when it is text."""
    if isinstance(value, str):
        return MASK if name and is_secret_name(name) else mask_text(value)
    if isinstance(value, dict):
        return {key: mask_value(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask_value(item, name) for item in value]
    return value
