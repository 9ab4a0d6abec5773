"""Checks that a runbook lists: fenced `logs` and `mysql` blocks (docs/runbook-checks.md). Pure, never raises."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_FENCE = re.compile(r"^[ \t]*```[ \t]*(logs|mysql)[ \t]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_KEY = re.compile(
    r"^\s*(topic|datasource|query|lookback|expect|contains|concludes|rules[ _-]out)\s*[:：]\s*(.*?)\s*$",
    re.IGNORECASE,
)
MAX_CHECKS = 8
"""Checks taken from one runbook; more would not fit a Run's tool budget."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a runbook.

    `kind` is "logs" or "mysql"; `target` its topic or datasource; `query` the log query or the SQL. `expect_match` is
    False for a check that is expected to find nothing. `contains` must occur in what came back for the check to match.
    """

    kind: str
    target: str
    query: str
    lookback: int | None
    expect_match: bool
    contains: str
    concludes: str
    rules_out: str

    def request(self, max_lookback: int) -> dict[str, Any]:
        """The business request that runs this check."""
        if self.kind == "mysql":
            return {"datasource": self.target, "sql": self.query, "params": []}
        lookback = min(max(self.lookback or 60, 1), max_lookback)
        return {"topic": self.target, "query": self.query[:500], "lookback_minutes": lookback}


def parse_checks(document: str) -> tuple[Check, ...]:
    """Return the usable checks of a document in order; blocks without a target, or `mysql` without SQL, are ignored."""
    checks = (_parse(kind, body) for kind, body in _FENCE.findall(document.replace("\r\n", "\n")))
    return tuple(check for check in checks if check is not None)[:MAX_CHECKS]


def _parse(kind: str, body: str) -> Check | None:
    values: dict[str, str] = {}
    lines = body.splitlines()
    rest: list[str] = []
    for index, line in enumerate(lines):
        match = _KEY.match(line)
        if match is None and line.strip():
            rest = lines[index:]
            break
        if match:
            values[re.sub(r"[ _-]", " ", match[1].lower())] = match[2]
    target = values.get("datasource" if kind == "mysql" else "topic", "")
    query = "\n".join(rest).strip() if kind == "mysql" else values.get("query", "")
    if not target or (kind == "mysql" and not query):
        return None
    lookback = values.get("lookback", "")
    return Check(
        kind=kind,
        target=target,
        query=query,
        lookback=int(lookback) if lookback.isascii() and lookback.isdigit() and len(lookback) < 7 else None,
        expect_match=values.get("expect", "match").lower() not in {"none", "no match", "nothing"},
        contains=values.get("contains", ""),
        concludes=values.get("concludes", ""),
        rules_out=values.get("rules out", ""),
    )
