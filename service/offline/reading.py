"""Reading results: distinct telling lines of a log observation, rows, runbooks, and the verdict on a result. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from service.offline.checks import Check, parse_checks
from service.offline.terms import Question
from service.offline.transcript import Exchange
from service.offline.trouble import clean, is_preamble, longest_seconds, shared_terms, telling
from tools.placeholders import OTHER, is_verbatim, verbatim_pieces

NOTEWORTHY = 2.0
"""Score from which a line counts as telling."""
SAME_LINE = 0.7
"""Share of words two lines need in common to count as one pattern."""

_WORDS = re.compile(r"[A-Za-z_]{2,}|[\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class Line:
    """One distinct line of a result, times as the tool wrote them.

    `text` occurs verbatim in the observation, where `is_event` is False with placeholders for what varies.
    """

    text: str
    level: str
    score: float
    count: int = 1
    first: str = ""
    last: str = ""
    is_event: bool = True
    shared: int = 0

    @property
    def skeleton(self) -> frozenset[str]:
        """The words that make the line's pattern: no numbers, no ids."""
        return skeleton(self.text)


@dataclass(frozen=True, slots=True)
class Runbook:
    """A knowledge document that lists checks, and the search that returned it."""

    title: str
    source: str
    tool_call_id: str
    checks: tuple[Check, ...]


def skeleton(text: str) -> frozenset[str]:
    """Words without those that hold digits: of the first line where it says something, else of the whole text."""
    lines = clean(text).strip().split("\n", 1)
    first = _plain_words(lines[0])
    return first if len(first) >= 3 and not is_preamble(lines[0]) else _plain_words(text)


def _plain_words(text: str) -> frozenset[str]:
    words = (word for word in clean(text).split() if not any(c.isdigit() for c in word) and is_verbatim(word))
    return frozenset(_WORDS.findall(" ".join(words).lower()))


def similar(left: frozenset[str], right: frozenset[str]) -> bool:
    """True when two skeletons belong to one pattern."""
    if not left or not right:
        return left == right
    common = len(left & right)
    shorter = min(len(left), len(right))
    # A template may be cut: then the shorter one is all but contained in the longer.
    return common / len(left | right) >= SAME_LINE or (shorter >= 5 and common / shorter >= 0.8)


def read_lines(exchange: Exchange, question: Question) -> tuple[Line, ...]:
    """Distinct lines of a log result, most telling first; patterns that no returned event shows stand as templates."""
    total = _count(exchange.answer.get("total")) or 1
    lines: list[Line] = []
    for event in _objects(exchange.answer.get("events")):
        text = str(event.get("message") or "")
        if text.strip():
            level, stamp = str(event.get("level") or ""), str(event.get("timestamp") or "")
            score = telling(level, text, question)
            _merge(lines, Line(text, level, score, 1, stamp, stamp, True, shared_terms(text, question)))
    counted: set[int] = set()
    for pattern in _objects(exchange.answer.get("patterns")):
        if str(pattern.get("template") or OTHER).strip() != OTHER:
            counted.add(_add_pattern(lines, counted, pattern, question))
    return tuple(sorted((_weigh(line, total) for line in lines), key=lambda line: -line.score))


def merge_lines(groups: Iterable[Sequence[Line]]) -> tuple[Line, ...]:
    """Join the lines of several results into distinct ones, most telling first."""
    lines: list[Line] = []
    for group in groups:
        for line in group:
            at = _find(lines, line)
            if at is None:
                lines.append(line)
            elif (line.is_event, line.count) > (lines[at].is_event, lines[at].count):
                lines[at] = replace(
                    line, score=max(line.score, lines[at].score), count=max(line.count, lines[at].count)
                )
    return tuple(sorted(lines, key=lambda line: -line.score))


def read_runbooks(exchange: Exchange) -> tuple[Runbook, ...]:
    """Documents of a search that list checks, best first; parts of one document are joined."""
    parts: dict[str, tuple[str, list[Check]]] = {}
    for document in documents(exchange):
        checks = parse_checks(str(document.get("content") or ""))
        source = str(document.get("source") or document.get("title") or "")
        _, known = parts.setdefault(source, (str(document.get("title") or source), []))
        known.extend(check for check in checks if check not in known)
    return tuple(
        Runbook(title, source, exchange.tool_call_id, tuple(checks))
        for source, (title, checks) in parts.items()
        if any(check.expect_match for check in checks)
    )


def documents(exchange: Exchange) -> list[dict[str, Any]]:
    """Documents of a knowledge observation."""
    return _objects(exchange.answer.get("documents"))


def check_matched(check: Check, exchange: Exchange) -> bool:
    """True when the result holds what the check looks for."""
    if not exchange.found:
        return False
    return not check.contains or any(check.contains.lower() in text.lower() for text in leaves(exchange))


def leaves(exchange: Exchange) -> list[str]:
    """Texts of a log or database result that may be quoted."""
    answer = exchange.answer
    texts = [str(event.get("message") or "") for event in _objects(answer.get("events"))]
    for pattern in _objects(answer.get("patterns")):
        texts += verbatim_pieces(str(pattern.get("template") or ""))
    texts += [str(cell) for row in rows(exchange) for cell in row if cell is not None]
    return [text for text in texts if text]


def rows(exchange: Exchange) -> list[list[Any]]:
    """Rows of a database observation."""
    value = exchange.answer.get("rows")
    return [row for row in value if isinstance(row, list)] if isinstance(value, list) else []


def gained(exchange: Exchange, check: Check | None, earlier: Sequence[Exchange], question: Question) -> bool:
    """The verdict on a result (R21), by one plain rule.

    A check's result gained when it matched. A search gained when a document came back that
    lists checks, or one of HIGH relevance that holds a name the question holds. A log result gained
    when it shows a telling line, or one that shares a term with the question, whose pattern no earlier result showed.
    A row nobody has seen yet is a gain.
    """
    if check is not None:
        return check_matched(check, exchange)
    if documents(exchange):
        return _lists_checks(exchange) or _names_a_name(exchange, question)
    if rows(exchange):
        known = [row for other in earlier for row in rows(other)]
        return any(row not in known for row in rows(exchange))
    seen = [line.skeleton for other in earlier for line in read_lines(other, question)]
    fresh = (line for line in read_lines(exchange, question) if not any(similar(line.skeleton, old) for old in seen))
    return any(line.score >= NOTEWORTHY or line.shared for line in fresh)


def _lists_checks(exchange: Exchange) -> bool:
    return any(not check.fault for book in read_runbooks(exchange) for check in book.checks)


def _names_a_name(exchange: Exchange, question: Question) -> bool:
    high = [
        str(doc.get("content") or "").lower() for doc in documents(exchange) if doc.get("relevance_level") == "HIGH"
    ]
    return any(name in text for name in question.names for text in high)


def _add_pattern(lines: list[Line], counted: set[int], pattern: dict[str, Any], question: Question) -> int:
    """Give a pattern's count and times to its line, or add it as a line; the line's place.

    Of several patterns that read as one line the first counts: a sum would be a number that no result states.
    """
    template, count = str(pattern["template"]), _count(pattern.get("count")) or 1
    first, last = str(pattern.get("first") or ""), str(pattern.get("last") or "")
    at = _find(lines, Line(template, "", 0.0))
    if at is None:
        level = str(pattern.get("level") or "")
        score = telling(level, template, question)
        lines.append(Line(template, level, score, count, first, last, False, shared_terms(template, question)))
        return len(lines) - 1
    if at not in counted:
        line = lines[at]
        lines[at] = replace(line, count=max(count, line.count), first=first or line.first, last=last or line.last)
    return at


def _weigh(line: Line, total: int) -> Line:
    """Rare among many, or most of all: both are telling, where the line is telling at all."""
    if line.score <= 0:
        return line
    share = line.count / total
    bonus = 0.5 if total >= 20 and share <= 0.05 else 0.25 if share >= 0.5 else 0.0
    return replace(line, score=line.score + bonus)


def _merge(lines: list[Line], line: Line) -> None:
    at = _find(lines, line)
    if at is None:
        lines.append(line)
        return
    known = lines[at]
    slower = longest_seconds(line.text) > longest_seconds(known.text) or line.score > known.score
    kept = line if slower else known
    lines[at] = replace(
        kept, count=known.count + 1, first=min(known.first, line.first), last=max(known.last, line.last)
    )


def _find(lines: Sequence[Line], line: Line) -> int | None:
    mine = line.skeleton
    return next((i for i, other in enumerate(lines) if similar(mine, other.skeleton)), None)


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
