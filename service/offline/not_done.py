"""What a draft must say was not done: checks that could not be run, topics nobody looked at. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from service.offline.bound_tools import BoundTools
from service.offline.checks import Check
from service.offline.phrases import PHRASES
from service.offline.reading import Runbook
from service.offline.strategy import Journal
from service.offline.taken import Taken
from service.offline.terms import Question
from service.offline.transcript import Exchange

MAX_NOT_RUN = 4
"""Sentences about checks that could not be run; a draft has eight places for limitations of each kind (R73)."""
MAX_TITLE = 60
MAX_WORD = 48
MAX_NAMES = 130


def checks_not_run(question: Question, taken: Sequence[Taken], journal: Journal) -> list[str]:
    """One bounded sentence per check that was malformed, had no tool, was refused, or ended in an error."""
    words = PHRASES[question.language]
    said = [
        _sentence(book, words[f"fault_{c.fault or 'no_tool'}"].format(detail=_short(c.detail)), words)
        for book, c in journal.not_asked
    ]
    for step, exchange in taken:
        # A check that the end of collection kept from running is covered by the sentence that says so.
        stopped = exchange.error_code == "COLLECTION_STOPPED"
        if step.check and step.runbook and not (exchange.found or exchange.empty or stopped):
            said.append(_sentence(step.runbook, _why(step.check, exchange, words), words))
    return list(dict.fromkeys(said))[:MAX_NOT_RUN]


def topics_not_seen(question: Question, tools: BoundTools, taken: Sequence[Taken]) -> list[str]:
    """One sentence naming the topics without a result, as many as fit; none when every topic was looked at."""
    words = PHRASES[question.language]
    seen = {str(item.exchange.input.get("topic")) for item in taken if item.exchange.found or item.exchange.empty}
    left = [topic.name for topic in tools.topics if topic.name not in seen] if tools.logs else []
    if not left:
        return []
    shown = left[:1]
    for name in left[1:]:
        if len(", ".join([*shown, name])) > MAX_NAMES:
            break
        shown.append(name)
    rest = len(left) - len(shown)
    return [words["unseen"].format(names=", ".join(shown) + (words["more"].format(count=rest) if rest else ""))]


def _why(check: Check, exchange: Exchange, words: dict[str, str]) -> str:
    target, code = _short(check.target), _short(exchange.error_code)
    if code == "INVALID_TOOL_REQUEST":
        return words["refused"].format(target=target, rule=_short(str(exchange.answer.get("rule") or code)))
    return words["failed" if code else "unusable"].format(target=target, code=code)


def _sentence(runbook: Runbook, why: str, words: dict[str, str]) -> str:
    return words["not_run"].format(title=_short(runbook.title, MAX_TITLE), why=why)


def _short(text: str, limit: int = MAX_WORD) -> str:
    """A word of a document or an answer: one line, no backticks (R89), bounded."""
    line = " ".join(text.replace("`", "").split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
