"""Log levels: recognising them in text and JSON values, and how telling a line is. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import re2

_NAMES = {
    "FATAL": ("FATAL", "CRITICAL", "CRIT", "EMERG", "EMERGENCY", "ALERT", "PANIC", "DPANIC", "FTL", "致命"),
    "ERROR": ("ERROR", "ERR", "SEVERE", "EROR", "FAIL", "错误", "严重"),
    "WARN": ("WARN", "WARNING", "WRN", "警告", "告警"),
    "NOTICE": ("NOTICE", "NOTE"),
    "INFO": ("INFO", "INFORMATION", "INFORMATIONAL", "INF", "LOG", "信息"),
    "DEBUG": ("DEBUG", "FINE", "DBUG", "DBG", "调试"),
    "TRACE": ("TRACE", "VERBOSE", "FINER", "FINEST", "TRC", "VRB"),
}
NO_LEVEL = "NONE"
_CANONICAL = {name: level for level, names in _NAMES.items() for name in names}
_NOT_BARE = frozenset({"FINE", "FAIL", "NOTE", "LOG"})
"""Words that are levels in brackets or as a value only."""
_UPPER = "|".join(
    sorted((name for name in _CANONICAL if name.isascii() and name not in _NOT_BARE), key=len, reverse=True)
)
_CHINESE = "|".join(name for name in _CANONICAL if not name.isascii())
_ANY_CASE = "|".join(sorted(_CANONICAL, key=len, reverse=True))
_HEAD_CHARS = 240
_HEAD_FIELD = (
    r"(?:\[[^\]\n]{0,80}\]\s*+|\([^)\n]{0,80}\)\s*+|\{[^}\n\"]{0,80}\}\s*+|[\-|:*#,;>~]{1,3}+\s*+"  # [main] (pool-1) - |
    r"|[^\s\[\]\"]{1,40}\]\s++"  # the rest of a bracket whose beginning was the time: #4711]
    r"|(?=\S{0,80}?[\d._/$@:=\-])[^\s\[\](){}<>\"']{1,80}+\s++"  # 4711, auth-service, org.app.Main, kernel:
    r"|[A-Z]{2,20}\s++)"
)
_HEAD_LEVEL = (
    rf"(?:(?P<upper>{_UPPER})(?![\w\-]|\.\w)"
    rf"|[\[(<【]\s{{0,3}}(?P<bracket>(?i:{_ANY_CASE}))(?:\s{{0,10}}[\])>】]|[\s:|,][^\]\n]{{0,80}}\])"
    rf"|\[[^\]\n]{{0,60}}[\s:|](?P<last>{_UPPER})(?:/[\w\-]{{1,40}})?\s{{0,3}}\]"
    rf"|\[[a-z_\d]{{1,40}}:(?P<module>(?i:{_ANY_CASE}))[1-8]?\]"  # Apache: [core:error]
    rf"|[\w\-]{{1,40}}\.(?P<channel>{_UPPER}):"  # Monolog: app.ERROR:
    rf"|(?P<chinese>{_CHINESE})(?=[:：]|\s{{1,3}}\[)"
    r"|(?P<log>LOG)(?=:|\s{1,3}\[))"  # PostgreSQL, NestJS
)
_HEAD = re.compile(rf"\s*+{_HEAD_FIELD}{{0,8}}?(?:[A-Za-z]{{1,30}}\s++{_HEAD_FIELD}{{0,8}}?)?{_HEAD_LEVEL}")
"""A level stands at the head of a line: after process, thread and logger, after at most one plain word (`main ERROR`)."""
_PAIR = re.compile(
    rf"(?:^|[\s,\[(])(?:level|lvl|severity)[=:][\"']?(?P<bare>(?i:{_ANY_CASE}))(?![\w\-])"
    rf"|[{{,]\s?\"(?:level|lvl|severity)\"\s?:\s?\"(?P<quoted>(?i:{_ANY_CASE}))\""
)
_LINE_START = re.compile(
    r"\s{0,8}PHP (?P<php>fatal|warning|notice)(?: error)?:"
    r"|\s{0,8}(?:\[[^\]\n]{0,40}\]\s{1,2}){0,2}(?P<word>fatal|critical|crit|error|err|fail|warning|warn|notice|info|debug|dbug|trace)(?::|\s{2,}|\t)",
    re.IGNORECASE,
)
_KLOG = re.compile(r"(?P<letter>[IWEF])(?:\d{4}){1,2} \d\d:\d\d:\d\d")
_KLOG_LEVELS = {"I": "INFO", "W": "WARN", "E": "ERROR", "F": "FATAL"}
_REDIS = re.compile(r"\d{1,8}:[A-Z] \d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d(?:\.\d{1,6})? (?P<mark>[#*.\-]) ")
_REDIS_LEVELS = {"#": "WARN", "*": "NOTICE", "-": "TRACE", ".": "DEBUG"}
_PRIORITY = re.compile(r"<(?P<number>\d{1,3})>")
_CSV = re.compile(r",(?P<csv>DEBUG|INFO|NOTICE|WARNING|ERROR|LOG|FATAL|PANIC)[1-5]?,[0-9A-Z]{5},")
_CSV_CHARS = 600
_SECOND_LINE = re.compile(rf"(?P<name>SEVERE|WARNING|INFO|FINE|FINER|FINEST|{_CHINESE})[:：] ")
_LETTERS = {"F": "FATAL", "E": "ERROR", "W": "WARN", "I": "INFO", "D": "DEBUG"}
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


def level_counts(counted: Mapping[str | None, int]) -> dict[str, int]:
    """Return counts of canonical levels, gravest first; events that state none are counted as `NONE`."""
    return {level or NO_LEVEL: counted[level] for level in (*_NAMES, None) if counted.get(level)}


def raw_patterns(level: str) -> tuple[bytes, ...]:
    """Return RE2 patterns, case ignored, of which one hits in the raw bytes of every event of a canonical level."""
    marks = "".join(mark for mark, name in _REDIS_LEVELS.items() if name == level)
    letters = "".join(letter for letter, name in _LETTERS.items() if name == level)
    return (
        *(b"".join(rb"\x%02x" % byte for byte in name.encode()) for name in _NAMES[level]),
        rb"[IWEF](?:\d{4}){1,2} \d\d:",
        rb"(?:level|severity|lvl|@l|priority)\w{0,10}[\"']?\s{0,4}[:=]\s{0,4}[\"']?\d",
        rb"<\d{1,3}>",
        *((rf":\d\d(?:\.\d{{1,6}})? [{re.escape(marks)}] ".encode(),) if marks else ()),
        *((rf"\"s\"\s{{0,4}}:\s{{0,4}}\"[{letters}]".encode(),) if letters else ()),
    )


def level_of_mark(line: str) -> str | None:
    """Return the level that a sign at the head of a line stands for: klog's `E0301 03:05:00`, Redis' `#`; or None."""
    match = _KLOG.match(line)
    if match:
        return _KLOG_LEVELS[match["letter"]]
    match = _REDIS.match(line)
    return _REDIS_LEVELS[match["mark"]] if match else None


def level_of_priority(line: str) -> str | None:
    """Return the severity of a syslog line such as `<34>Mar  1 03:05:00 host`, or None."""
    match = _PRIORITY.match(line)
    return level_of_value(int(match["number"]) % 8) if match else None


def level_of_letter(value: Any) -> str | None:
    """Return the level of MongoDB's `s`: a letter, of debug with a number; or None."""
    return _LETTERS.get(value[0]) if isinstance(value, str) and 1 <= len(value) <= 2 else None


def level_of_second_line(line: str) -> str | None:
    """Return the level that java.util.logging writes on a record's second line, or None."""
    match = _SECOND_LINE.match(line)
    return canonical_level(match["name"]) if match else None


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
    """Return the level that a plain line (without its timestamp) states at its head or as `level=`, or None.

    The same words elsewhere in a line are what it talks about.
    """
    for pattern in (_LINE_START, _HEAD):
        match = pattern.match(line)
        if match is not None:
            return canonical_level(match[match.lastgroup or 0])
    found = _PAIR.search(line, 0, _HEAD_CHARS)
    if found is None and '","' in line[:_HEAD_CHARS]:
        found = _CSV.search(line, 0, _CSV_CHARS)
    return canonical_level(found[found.lastgroup or 0]) if found else None


def telling_rank(level: str | None, text: str) -> int:
    """Say how much an event promises: 5 fatal, 4 error, 3 words of trouble, 2 warning, 1 notice, 0 the rest."""
    rank = _RANK.get(level or "", 0)
    if rank >= _TROUBLE_RANK:
        return rank
    if _TROUBLE.search(text) is None:  # most texts end here
        return rank
    return _TROUBLE_RANK if _TROUBLE.search(_EMPTY_TROUBLE.sub("", text)) else rank
