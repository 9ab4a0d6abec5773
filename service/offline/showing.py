"""What to show of results: quotes of a matched check, and the few telling statements of a probe (R89). Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.offline.checks import Check
from service.offline.phrases import PHRASES, quote, short_time
from service.offline.reading import NOTEWORTHY, Line, merge_lines, read_lines, rows
from service.offline.terms import Question
from service.offline.transcript import Exchange
from service.offline.trouble import LEVELS, SLOW_SECONDS, longest_seconds

MAX_STATEMENT = 600
MAX_DISTINCT = 5
"""Distinct lines one overview statement quotes."""
MAX_TOP_QUOTE = 320
MIN_QUOTE = 70
MAX_RARE = 3
RARE = 0.02
"""Share of all lines up to which a pattern is rare."""
CLOSE = 0.6
"""Share of the best line's score that another line needs to be shown."""

Shown = tuple[str, tuple[str, ...]]


def matched_quotes(check: Check, exchange: Exchange, question: Question, limit: int = 3) -> list[str]:
    """Quotes of what a matched check returned, most telling first; those holding `contains` come before others."""
    if check.kind == "mysql":
        return _row_quotes(check, exchange)
    lines = read_lines(exchange, question)
    wanted = [text.lower() for text in (check.contains, *re.findall(r'"([^"]+)"', check.query)) if text]
    ordered = sorted(lines, key=lambda line: (-sum(text in line.text.lower() for text in wanted), not line.is_event))
    return [quoted for quoted in (quote(line.text, 160, wanted) for line in ordered[:limit]) if quoted]


def _row_quotes(check: Check, exchange: Exchange, limit: int = 3) -> list[str]:
    columns = exchange.answer.get("columns")
    names = [str(name) for name in columns] if isinstance(columns, list) else []
    found = rows(exchange)
    wanted = check.contains.lower()
    if wanted:
        found = sorted(found, key=lambda row: not any(wanted in str(cell).lower() for cell in row))
    quotes = []
    for row in found[:limit]:
        cells = [
            f"{names[i]}={quote(str(cell), 60)}" if i < len(names) else quote(str(cell), 60)
            for i, cell in enumerate(row[:6])
            if cell is not None and str(cell).strip()
        ]
        quotes.append(", ".join(cells))
    return [item for item in quotes if item]


def probe_statements(exchanges: Sequence[Exchange], question: Question) -> list[Shown]:
    """Statements about the telling lines of each topic, the most telling topic first."""
    topics: dict[str, list[Exchange]] = {}
    for exchange in exchanges:
        if exchange.found and "topic" in exchange.input:
            topics.setdefault(str(exchange.input["topic"]), []).append(exchange)
    read = [
        (topic, group, merge_lines([read_lines(item, question) for item in group])) for topic, group in topics.items()
    ]
    best = max((line.score for _, _, lines in read for line in lines), default=0.0)
    shown: list[tuple[float, list[Shown]]] = []
    for topic, group, lines in read:
        statements = _topic_statements(topic, group, lines, question, best)
        if statements:
            shown.append((max((line.score for line in lines), default=0.0), statements))
    if not shown and read:
        return _rare_lines(*read[0], question)
    shown.sort(key=lambda item: -item[0])
    return [statement for _, statements in shown for statement in statements]


def _rare_lines(topic: str, group: Sequence[Exchange], lines: Sequence[Line], question: Question) -> list[Shown]:
    """Where nothing is telling and nothing shares a word with the question: what is rare in the first topic."""
    total = sum(line.count for line in lines)
    rare = [line for line in lines if line.is_event and total >= 20 and line.count <= RARE * total]
    rare = sorted(rare, key=lambda line: line.count)[:MAX_RARE]
    words = PHRASES[question.language]
    quotes = [quote(line.text, 160) for line in rare]
    text = words["rare"].format(topic=topic, quotes=words["sep"].join(item for item in quotes if item))
    return [(text, _ids(rare, group, question))] if any(quotes) else []


def _topic_statements(
    topic: str, group: Sequence[Exchange], lines: Sequence[Line], question: Question, best: float
) -> list[Shown]:
    words = PHRASES[question.language]
    telling = [line for line in lines if line.score >= max(NOTEWORTHY, CLOSE * best)][:MAX_DISTINCT]
    if telling:
        return [_trouble(topic, telling, group, question)]
    related = [line for line in lines if line.shared and line.is_event and not line.text.lstrip().startswith("{")]
    if not related or any(line.score >= NOTEWORTHY for line in lines):
        return []
    top = max(related, key=lambda line: (line.shared, line.count))
    quoted = quote(top.text, 300)
    text = words["common"].format(topic=topic, quote=quoted) + _count(top, words)
    return [(text, _ids([top], group, question))] if quoted else []


def _trouble(topic: str, lines: Sequence[Line], group: Sequence[Exchange], question: Question) -> Shown:
    words = PHRASES[question.language]
    top = lines[0]
    if len(lines) == 1:
        slow = question.about_time and longest_seconds(top.text) >= SLOW_SECONDS and not _levelled(top)
        head = words["slow" if slow else "line"].format(topic=topic, quote=quote(top.text, 400))
        return head + _count(top, words), _ids(lines, group, question)
    room = MAX_STATEMENT - len(words["several"]) - len(topic)
    parts: list[str] = []
    for number, line in enumerate(lines):
        count = _count_only(line, words) if parts else _count(line, words)
        # The most telling line gets the most room; a stump tells nothing.
        wanted = (
            MAX_TOP_QUOTE // (1 if len(lines) < 3 else 2)
            if number == 0
            else max(room // (len(lines) - number) - 4 - len(count), MIN_QUOTE)
        )
        if wanted + len(count) + 4 > room:
            break
        parts.append(quote(line.text, wanted) + count)
        room -= len(parts[-1]) + len(words["sep"])
    joined = words["sep"].join(part for part in parts if part.startswith("`"))
    return words["several"].format(topic=topic, quotes=joined), _ids(lines[: len(parts)], group, question)


def _count_only(line: Line, words: dict[str, str]) -> str:
    return words["count_only"].format(count=line.count) if line.count > 1 else ""


def _count(line: Line, words: dict[str, str]) -> str:
    if line.count <= 1:
        return ""
    if line.first and line.last and short_time(line.first) != short_time(line.last):
        return words["count"].format(count=line.count, first=short_time(line.first), last=short_time(line.last))
    return words["count_only"].format(count=line.count)


def _ids(lines: Sequence[Line], group: Sequence[Exchange], question: Question) -> tuple[str, ...]:
    """Calls whose results hold the lines verbatim, one per line, without repetition."""
    ids: list[str] = []
    for line in lines:
        for exchange in group:
            if any(other.text == line.text for other in read_lines(exchange, question)):
                if exchange.tool_call_id not in ids:
                    ids.append(exchange.tool_call_id)
                break
    return tuple(ids[:6])


def _levelled(line: Line) -> bool:
    return line.level.strip().lower() in LEVELS
