"""Masking of secrets in text before it becomes part of an `agent_result` (R55). Pure."""

from __future__ import annotations

import re
from typing import Any

MASK = "[masked]"

_KEY = (
    r"(?:password|passphrase|passwd|(?<![^\W_])pwd?|(?<=[_.\-])pass|secret|token|api[_-]?key|apikey|access[_-]?key"
    r"|private[_-]?key|client[_-]?secret|authorization|credential)s?"
)
# What stands after such a key in messages *about* a secret ("token: expired") is evidence, and a mask is not masked again.
_NO_SECRET = (
    r"(?!\[masked\]|(?:missing|expired|expires|invalid|null|none|undefined|true|false|denied|required|empty|not|is|was"
    r"|has|failed|error|for|from|mismatch|rejected|revoked|unset)\b)"
)
_KEY_PARTS = ("pass", "pw", "secret", "token", "key", "author", "credent")
_GIVEN = r"\\{0,8}[\"']?\s{0,3}[:=]\s{0,3}"
# What a key is given: JSON in JSON, text in quotes, an object or a list to the end of the line if need be, or one word.
_VALUE = (
    r"(\\{1,8}[\"'][^\"'\n]{1,1024}[\"']?|\"(?:[^\"\\\n]|\\.){1,1024}\"?|'(?:[^'\\\n]|\\.){1,1024}'?"
    r"|\{(?:[^{}\n]|\{[^{}\n]{0,512}\}){0,512}\}|\[(?!masked\])(?:[^\[\]\n]){0,512}\]|[{\[]\s{0,3}[\"{\[][^\n]{0,1024}"
    r"|[^\s,;&\"'}\])]{1,256})"
)
_COOKIE = r"[^\s=;,\"'\[]{1,128}=[^\s;,\"']{1,1024}"
_PREFIXES = ("sk", "pk", "rk", "ghp", "gho", "ghs", "glpat", "xoxa", "xoxb", "xoxp", "xoxs")
_PATTERNS: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (
        ("-----begin",),
        re.compile(
            r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----))*"
            r"(?:-----END [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----)?"
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
        # A password may hold `@`, and badly written even `/`; what follows a host's name is a port.
        re.compile(
            r"\b([a-zA-Z][a-zA-Z0-9+.\-]{1,20}://[^\s:/@]{0,64}):"
            r"(?:[^\s/\"'<>,]{1,128}|(?!\d{1,5}[/?#,;])[^\s@\"'<>,]{1,128})@"
        ),
        r"\1:" + MASK + "@",
    ),
    (("cookie",), re.compile(rf"(?i)(cookie{_GIVEN}(?:\\{{0,8}}[\"'])?){_COOKIE}(?:; ?{_COOKIE})*"), r"\1" + MASK),
    (
        _KEY_PARTS,
        re.compile(rf"(?i)({_KEY}\b{_GIVEN}){_NO_SECRET}{_VALUE}"),
        r"\1" + MASK,
    ),
)
"""Each pattern after words of which every match has one, in its case-folded text (`bas`: `(?i)i` is also a dotless one).
Looking for them first spares most texts the search."""
_HINTS = tuple(hint for hints, _, _ in _PATTERNS for hint in hints)
_SECRET_NAME = re.compile(rf"(?i)(?:{_KEY}|cookie)(?:$|[.\[])")
_SAYS_SECRET = re.compile(rf"(?i)(?:{_KEY}|cookies?)\b")
_COUNT_NAME = re.compile(r"(?i)tokens$")


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
    """Say whether the name of a column, an attribute or one of the objects around it promises a secret value."""
    return _SECRET_NAME.search(name) is not None


def says_secret(text: str) -> bool:
    """Say whether a text, such as a path into JSON, has a secret-sounding name anywhere in it."""
    return _SAYS_SECRET.search(text) is not None


def mask_value(value: Any, name: str = "") -> Any:
    """Mask JSON data in depth; the value under a secret-sounding name is masked whole, unless it is a count of tokens."""
    if isinstance(value, list | tuple):
        return [mask_value(item, name) for item in value]
    counts = not isinstance(value, str) and _COUNT_NAME.search(name)
    if value is not None and not isinstance(value, bool) and is_secret_name(name) and not counts:
        return MASK
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, dict):
        return {key: mask_value(item, str(key)) for key, item in value.items()}
    return value
