"""Checks that a runbook lists: fenced `logs` and `mysql` blocks (docs/runbook-checks.md). Pure, never raises."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_FENCE = re.compile(r"^[ \t]*```[ \t]*(logs|mysql)[ \t]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"^\s*([A-Za-z][\w-]*(?: \w+)?)\s*[:：]\s*(.*?)\s*$")
_BOTH = frozenset({"expect", "contains", "concludes", "rules out"})
_KEYS = {"logs": _BOTH | {"topic", "query", "lookback"}, "mysql": _BOTH | {"datasource"}}
_EXPECTED = {"match": True, "none": False, "no match": False, "nothing": False}
MAX_CHECKS = 8
"""Checks taken from one runbook; more would not fit a Run's tool budget."""
MAX_LOOKBACK = 10080
"""Minutes: a week."""
MAX_QUERY = 500
MAX_CONCLUDES = 400
"""Characters of `concludes`: it is quoted whole in an analysis and in the conclusion, beside what was seen."""
MAX_DETAIL = 40


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a runbook.

    `kind` is "logs" or "mysql"; `target` its topic or datasource; `query` the log query or the SQL. `expect_match` is
    False for a check that is expected to find nothing. `contains` must occur in what came back for the check to match.
    `fault` names what is wrong with a malformed check, "" for a sound one; `detail` the key or value it is about. A
    malformed check is never run, and it is never taken for one that matched.
    """

    kind: str
    target: str
    query: str
    lookback: int | None
    expect_match: bool
    contains: str
    concludes: str
    rules_out: str
    fault: str = ""
    detail: str = ""

    def request(self, max_lookback: int) -> dict[str, Any]:
        """The business request that runs this check."""
        if self.kind == "mysql":
            return {"datasource": self.target, "sql": self.query, "params": []}
        lookback = min(max(self.lookback or 60, 1), max_lookback)
        return {"topic": self.target, "query": self.query[:MAX_QUERY], "lookback_minutes": lookback}


def parse_checks(document: str) -> tuple[Check, ...]:
    """Return the checks of a document in order, malformed ones with their `fault`: what cannot be run must show."""
    return tuple(_parse(kind, body) for kind, body in _FENCE.findall(document.replace("\r\n", "\n")))[:MAX_CHECKS]


def _parse(kind: str, body: str) -> Check:
    values, rest, fault = _read_keys(kind, body.splitlines())
    target_key = "datasource" if kind == "mysql" else "topic"
    values.setdefault("expect", "match")
    query = rest if kind == "mysql" else values.get("query", "")
    code, detail = fault or _fault(kind, target_key, query, values) or ("", "")
    lookback = values.get("lookback", "")
    return Check(
        kind=kind,
        target=values.get(target_key, ""),
        query=query,
        lookback=int(lookback) if lookback and not code else None,
        expect_match=_EXPECTED.get(values["expect"].lower(), True),
        contains=values.get("contains", ""),
        concludes=values.get("concludes", ""),
        rules_out=values.get("rules out", ""),
        fault=code,
        detail=detail[:MAX_DETAIL],
    )


def _read_keys(kind: str, lines: list[str]) -> tuple[dict[str, str], str, tuple[str, str] | None]:
    """Keys with their values, the SQL after them, and the first fault. Keys after a faulty one are still read."""
    values: dict[str, str] = {}
    fault: tuple[str, str] | None = None
    for index, line in enumerate(lines):
        match = _KEY.match(line)
        if match is None:
            if not line.strip():
                continue
            if kind == "mysql":
                return values, "\n".join(lines[index:]).strip(), fault
            fault = fault or ("no_key", "")
            continue
        key = re.sub(r"[ _-]", " ", match[1].lower())
        if key not in _KEYS[kind]:
            fault = fault or ("unknown_key", match[1])
        elif key in values:
            fault = fault or ("repeated_key", key)
        else:
            values[key] = match[2]
    return values, "", fault


def _fault(kind: str, target_key: str, query: str, values: dict[str, str]) -> tuple[str, str] | None:
    """What is wrong with the values of a block whose keys are in order."""
    if not values.get(target_key):
        return "missing_key", target_key
    if kind == "mysql" and not query:
        return "missing_key", "SQL"
    if kind == "logs" and len(query) > MAX_QUERY:
        return "too_long", "query"
    if len(values.get("concludes", "")) > MAX_CONCLUDES:
        return "too_long", "concludes"
    if values["expect"].lower() not in _EXPECTED:
        return "expect", ""
    lookback = values.get("lookback")
    # isdecimal alone also takes digits of other scripts; the length keeps int() cheap.
    whole = lookback is None or (lookback.isascii() and lookback.isdecimal() and len(lookback) < 9)
    if not whole or (lookback is not None and not 1 <= int(lookback) <= MAX_LOOKBACK):
        return "lookback", ""
    return None
