"""Log levels: recognising them in text and JSON values, and how telling a line is. Pure."""

from __future__ import annotations

import re
from typing import Any

import re2

_NAMES = {
    "FATAL": ("FATAL", "CRITICAL", "CRIT", "EMERG", "EMERGENCY", "ALERT", "PANIC", "DPANIC"),
    "ERROR": ("ERROR", "ERR", "SEVERE", "EROR", "FAIL"),
    "WARN": ("WARN", "WARNING"),
    "NOTICE": ("NOTICE",),
    "INFO": ("INFO", "INFORMATION", "INFORMATIONAL"),
    "DEBUG": ("DEBUG", "FINE", "DBUG"),
    "TRACE": ("TRACE", "VERBOSE", "FINER", "FINEST"),
}
_CANONICAL = {name: level for level, names in _NAMES.items() for name in names}
_UPPER = "|".join(sorted((name for name in _CANONICAL if name not in ("FINE", "FAIL")), key=len, reverse=True))
_HEAD_CHARS = 240
_TEXT_LEVEL = re.compile(
    rf"(?<![\w\-])(?P<upper>{_UPPER})(?![\w\-])"  # upper case stands for itself
    r"|\[(?P<bracket>[A-Za-z]{3,13})\]"
    r"|\b(?:level|lvl|severity)[\"']?\s?[=:]\s?[\"']?(?P<pair>[A-Za-z]{3,13})"
)
_LINE_START = re.compile(
    r"\s{0,8}(?P<word>fatal|critical|crit|error|err|fail|warning|warn|notice|info|debug|dbug|trace)(?::|\s{2,})",
    re.IGNORECASE,
)
_KLOG = re.compile(r"(?P<letter>[IWEF])\d{4} \d\d:\d\d:\d\d")
_KLOG_LEVELS = {"I": "INFO", "W": "WARN", "E": "ERROR", "F": "FATAL"}
_RANK = {"FATAL": 5, "ERROR": 4, "WARN": 2, "NOTICE": 1}
_TROUBLE_RANK = 3
_TROUBLE = re2.compile(
    r"(?i)exception|error|fail|panic|fatal|timed?[ -]?out|refused|denied|undefined|unable|could not|cannot|can't"
    r"|out ?of ?memory|oom|killed|crash|back-?off|unavailable|exhaust|too many|expired|unreachable|no space"
    r"|异常|错误|失败|超时|拒绝|不可用|崩溃"
)
_EMPTY_TROUBLE = re2.compile(
    r"(?i)[\"']?\b(?:error|err|exception|errors|failed|failures)[\"']?\s?[=:]\s?(?:null|none|\"\"|0\b|false|nil|<nil>)"
)


def canonical_level(name: str) -> str | None:
    """Return the canonical level of a name in any case, e.g. `warning` is WARN; None when it is no level."""
    return _CANONICAL.get(name.strip().upper())


def names_of(level: str) -> tuple[str, ...]:
    """Return the names that mean a canonical level, upper-case."""
    return _NAMES[level]


def klog_level(line: str) -> str | None:
    """Return the level of a klog line such as `E0301 03:05:00.000000`, or None."""
    match = _KLOG.match(line)
    return _KLOG_LEVELS[match.group("letter")] if match else None


def level_of_value(value: Any) -> str | None:
    """Return the level of a JSON value: a name, a number of the 10..60 family, or a syslog severity 0..7."""
    if isinstance(value, str):
        if value.strip().isdigit() and len(value.strip()) <= 2:
            return level_of_value(int(value))
        return canonical_level(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    if 0 <= value <= 7:
        return ("FATAL", "FATAL", "FATAL", "ERROR", "WARN", "NOTICE", "INFO", "DEBUG")[value]
    return {10: "TRACE", 20: "DEBUG", 30: "INFO", 40: "WARN", 50: "ERROR", 60: "FATAL"}.get(value)


def level_of_text(line: str) -> str | None:
    """Return the level that the head of a plain line (without its timestamp) states, or None."""
    start = _LINE_START.match(line)
    if start:
        return canonical_level(start.group("word"))
    for match in _TEXT_LEVEL.finditer(line, 0, _HEAD_CHARS):
        level = canonical_level(match.group("upper") or match.group("bracket") or match.group("pair"))
        if level:
            return level
    return None


def telling_rank(level: str | None, text: str) -> int:
    """Say how much an event promises: 5 fatal, 4 error, 3 words of trouble, 2 warning, 1 notice, 0 the rest."""
    rank = _RANK.get(level or "", 0)
    if rank >= _TROUBLE_RANK:
        return rank
    if _TROUBLE.search(text) is None:  # most texts end here
        return rank
    return _TROUBLE_RANK if _TROUBLE.search(_EMPTY_TROUBLE.sub("", text)) else rank
