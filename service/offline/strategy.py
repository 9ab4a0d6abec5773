"""What the offline model looks at, in order: the knowledge base, a runbook's checks, else one generic probe. Pure.

`strategy` is written as a script: it yields the next step and is sent what came back. The planner replays it from the
transcript for every turn, so it holds no state between turns.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from service.offline.bound_tools import BoundTools
from service.offline.checks import Check
from service.offline.reading import NOTEWORTHY, Line, Runbook, check_matched, read_lines, read_runbooks
from service.offline.terms import Question
from service.offline.topics import RELATED, choose_topic, stem
from service.offline.transcript import Exchange
from service.offline.trouble import ERROR_QUERY, SLOW_QUERY

_PAIRS = re.compile(r"[\w.\-]+=(?:\"[^\"]*\"|[^\s,]*)(?:, [\w.\-]+=(?:\"[^\"]*\"|[^\s,]*))*")
MAX_RUNBOOKS = 3
MAX_TOPICS = 4
MAX_PROBES = 9
MAX_NARROWING = 2
PROBE_EVENTS = 8
"""Events a probe asks for: every one may be shown as a fact, and patterns cover the rest."""
STRONG = 3.0
"""Score of a line that makes topics unrelated to the question not worth a look."""


class Purpose(StrEnum):
    """Why a step is taken."""

    SEARCH = "SEARCH"
    CHECK = "CHECK"
    PROBE = "PROBE"


@dataclass(frozen=True, slots=True)
class Step:
    """One intended tool call: the tool's wire name, the business request, and the check it runs, if any."""

    purpose: Purpose
    tool_name: str
    request: dict[str, Any]
    check: Check | None = None
    runbook: Runbook | None = None


@dataclass(slots=True)
class Journal:
    """What a script did not do: checks it could not even ask for, and whether its own bounds ended the probe.

    Filled while the script runs, made anew for every replay.
    """

    not_asked: list[tuple[Runbook, Check]] = field(default_factory=list)
    cut_short: bool = False


Script = Generator[Step, Exchange, None]


def strategy(question: Question, tools: BoundTools, journal: Journal) -> Script:
    """Search, follow up to three runbooks until one concludes, else probe."""
    found: Exchange | None = None
    if tools.search and question.text.strip():
        found = yield Step(Purpose.SEARCH, tools.search, {"query": in_words(question.text)[:500], "top_k": 3})
    for runbook in (read_runbooks(found) if found else ())[:MAX_RUNBOOKS]:
        if (yield from follow(runbook, tools, journal)):
            return
    yield from probe(question, tools, found, journal)


def in_words(text: str) -> str:
    """Return a question without its lines of `name=value` pairs: to a search by words they are noise."""
    lines = [line for line in text.strip().splitlines() if not _PAIRS.fullmatch(line.strip())]
    return "\n".join(lines).strip() or text.strip()


def follow(runbook: Runbook, tools: BoundTools, journal: Journal) -> Generator[Step, Exchange, bool]:
    """Run a runbook's checks in order; True when a concluding check matched with all evidence before it.

    Checks that are expected to match form a group that ends with the one that concludes. After a miss the rest of the
    group is skipped. Checks that are expected to find nothing run while their group holds. A check of a group that
    could not be run, of either kind, leaves the group without a conclusion.
    """
    holds, concluded = True, False
    within = True
    for check in runbook.checks:
        tool = tools.database if check.kind == "mysql" else tools.logs
        exchange: Exchange | None = None
        if check.fault or not tool:
            journal.not_asked.append((runbook, check))
        elif holds or (concluded and not check.expect_match):
            exchange = yield Step(Purpose.CHECK, tool, check.request(tools.max_lookback), check, runbook)
        if check.expect_match:
            matched = exchange is not None and check_matched(check, exchange)
            concluded = concluded or (matched and bool(check.concludes))
            holds = (holds and matched) or bool(check.concludes)
            within = not check.concludes
        elif within and (exchange is None or not (exchange.found or exchange.empty)):
            holds = False
    return concluded


def probe(question: Question, tools: BoundTools, found: Exchange | None, journal: Journal) -> Script:
    """The generic probe: topics by their overlap with the question, each from broad to narrow."""
    if not tools.logs:
        return
    visited: list[str] = []
    silent: list[str] = []
    seen: list[Line] = []
    probes, named = 0, False
    while len(visited) < MAX_TOPICS and probes < MAX_PROBES:
        # Strong lines of a topic the question is about end the tour of topics it is not about.
        settled = named and any(line.score >= STRONG for line in seen)
        choice = choose_topic(question, tools.topics, visited, found, seen, only_related=settled)
        if choice is None:
            break
        topic, score = choice
        visited.append(topic)
        named = named or score >= RELATED
        following = choose_topic(question, tools.topics, visited, found, seen, only_related=False)
        wait = score < RELATED or (following is not None and following[1] > 0)
        lines, used, empty = yield from _probe_topic(question, tools, topic, may_wait=wait)
        silent += [topic] if empty and score >= RELATED else []
        seen.extend(lines)
        probes += used
    else:
        journal.cut_short = True
    for topic in silent[:1] if not any(line.score >= STRONG for line in seen) else []:
        yield _look(tools, topic, "")


def _look(tools: BoundTools, topic: str, query: str) -> Step:
    request: dict[str, Any] = {"topic": topic, "query": query[:500], "lookback_minutes": tools.max_lookback}
    if tools.events_limited:
        request["limit"] = PROBE_EVENTS
    return Step(Purpose.PROBE, tools.logs, request)


def _probe_topic(
    question: Question, tools: BoundTools, topic: str, *, may_wait: bool
) -> Generator[Step, Exchange, tuple[list[Line], int, bool]]:
    """Look at one topic; returns the lines read, the looks taken, and whether it stayed silent and is to be read later.

    Words that find nothing, twice in a row, may end the Run: after the first miss a topic waits while others are there.
    """
    lines: list[Line] = []
    used = 0
    for query in (SLOW_QUERY, ERROR_QUERY) if question.about_time else (ERROR_QUERY,):
        exchange = yield _look(tools, topic, query)
        used += 1
        lines.extend(read_lines(exchange, question))
        if exchange.empty and may_wait:
            return lines, used, True
        if exchange.empty or any(line.score >= STRONG for line in lines):
            break
    if not any(line.score >= NOTEWORTHY for line in lines):
        exchange = yield _look(tools, topic, "")
        used += 1
        lines.extend(read_lines(exchange, question))
        terms = [term for term in question.terms if term not in stem(topic)]
        if exchange.found and terms and not any(line.shared for line in lines):
            exchange = yield _look(tools, topic, " OR ".join(_quoted(term) for term in terms[:8]))
            used += 1
            lines.extend(read_lines(exchange, question))
    for line in _unseen(lines)[:MAX_NARROWING]:
        exchange = yield _look(tools, topic, " AND ".join(narrow_words(line.text)))
        used += 1
        lines.extend(read_lines(exchange, question))
    return lines, used, False


def narrow_words(template: str) -> list[str]:
    """Up to four long words of a template that a query can ask for together."""
    words: list[str] = []
    for word in template.split():
        core = word.strip("\"'`()[]{}<>,;:.=!?*#")
        if len(core) > 3 and core.replace("_", "").replace("-", "").isalpha() and core not in words:
            words.append(core)
    return [_quoted(word) for word in sorted(words, key=lambda word: -len(word))[:4]]


def _unseen(lines: Sequence[Line]) -> list[Line]:
    """Telling patterns that no returned event shows yet, and that a query can name."""
    best = max((line.score for line in lines), default=0.0)
    return [
        line
        for line in sorted(lines, key=lambda line: -line.score)
        if not line.is_event and line.score >= max(NOTEWORTHY, best - 0.75) and len(narrow_words(line.text)) >= 2
    ]


def _quoted(term: str) -> str:
    return term if term.isalnum() else '"' + term.replace('"', "") + '"'
