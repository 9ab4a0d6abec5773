"""The draft: a conclusion where a runbook's check matched, else what the probe found (R71, R73, R89). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from release.contract import Analysis, AnalysisKind, Conclusion, DiagnosisDraft, DraftLimitations
from service.offline.bound_tools import BoundTools
from service.offline.checks import Check
from service.offline.not_done import checks_not_run, topics_not_seen
from service.offline.phrases import PHRASES
from service.offline.reading import Runbook, check_matched
from service.offline.showing import matched_quotes, probe_statements
from service.offline.strategy import Journal, Purpose
from service.offline.taken import Taken
from service.offline.terms import Question
from service.offline.transcript import Exchange

MAX_STATEMENT = 600
MAX_CONCLUSION = 1000
MAX_NOTE = 200
MAX_SHOWN = 8
"""Analyses a draft shows; the contract allows 12 (R73), but few and telling ones serve the reader better."""


def draft(
    question: Question, tools: BoundTools, taken: Sequence[Taken], journal: Journal, *, stopped: bool
) -> DiagnosisDraft:
    """Build the final draft from everything that was seen and from what was not done."""
    words = PHRASES[question.language]
    unverified = [words["no_model"]]
    if stopped:
        unverified.append(words["stopped"])
    not_run = checks_not_run(question, taken, journal)
    unverified.extend(not_run)
    runbook = _concluding_runbook(taken)
    if runbook is not None:
        return _with_conclusion(question, runbook, taken, unverified)
    # The public fallback shows missing_info only (R92): what stands in the way of a conclusion must be there too.
    missing = [*not_run, *(topics_not_seen(question, tools, taken) if journal.cut_short else ())]
    return _without_conclusion(question, tools, taken, missing, unverified)


def _concluding_runbook(taken: Sequence[Taken]) -> Runbook | None:
    for step, exchange in taken:
        if step.check and step.check.concludes and step.check.expect_match and check_matched(step.check, exchange):
            return step.runbook
    return None


def _with_conclusion(
    question: Question, runbook: Runbook, taken: Sequence[Taken], unverified: list[str]
) -> DiagnosisDraft:
    words = PHRASES[question.language]
    title = _plain(runbook.title)
    mine = [item for item in taken if item.step.runbook == runbook and item.step.check]
    concluding = next(i.step.check for i in mine if i.step.check and i.step.check.concludes and _matched(i))
    said = _plain(concluding.concludes) if "`" in concluding.concludes else f"`{concluding.concludes}`"
    knowledge = words["runbook"].format(title=title, concludes=said)
    analyses = [_analysis(1, AnalysisKind.REFERENCE_KNOWLEDGE, knowledge, runbook.tool_call_id)]
    support, seen = ["A1"], []
    for item in mine:
        check, exchange = item.step.check, item.exchange
        if check is None:
            continue
        number = len(analyses) + 1
        if _matched(item) and check.expect_match:
            quotes = matched_quotes(check, exchange, question)
            analyses.append(
                _analysis(
                    number, AnalysisKind.OBSERVATION, _seen(check, exchange, quotes, words), exchange.tool_call_id
                )
            )
            if len(support) < 8:
                support.append(f"A{number}")
                seen.extend(quotes[:1])
        elif exchange.empty and not check.expect_match:
            statement = f"{_nothing(check, words)}{' ' if question.language == 'en' else ''}{_plain(check.rules_out)}"
            analyses.append(_analysis(number, AnalysisKind.NEGATIVE_OBSERVATION, statement, exchange.tool_call_id))
        elif exchange.found and not check.expect_match:
            unverified.append(words["not_ruled_out"].format(what=_plain(check.rules_out or check.target)))
        elif exchange.found or exchange.empty:
            unverified.append(words["missed"].format(title=title, what=check.target))
    statement = _conclusion(_plain(concluding.concludes), title, seen, words)
    return DiagnosisDraft(
        conclusion=Conclusion(statement=statement, supporting_analysis_ids=support),
        analyses=analyses[:12],
        limitations=_limits([], unverified),
    )


def _without_conclusion(
    question: Question, tools: BoundTools, taken: Sequence[Taken], not_done: Sequence[str], unverified: list[str]
) -> DiagnosisDraft:
    words = PHRASES[question.language]
    missing: list[str] = []
    if question.says_too_little:
        missing.append(words["missing"])
    elif not tools.topics and not tools.datasources:
        missing.append(words["no_tools"])
    else:
        # The public fallback shows missing_info only, and the reader must learn that no model judged this (R92).
        missing.append(words["unaided"])
        missing.extend(not_done)
        unverified.append(words["no_check"])
    for item in taken:
        if item.step.check and item.step.runbook and item.step.check.expect_match and item.exchange.empty:
            unverified.append(
                words["missed"].format(title=_plain(item.step.runbook.title), what=item.step.check.target)
            )
    probes = [item.exchange for item in taken if item.step.purpose is not Purpose.SEARCH]
    shown = probe_statements(probes, question)[:MAX_SHOWN]
    analyses = [
        _analysis(number, AnalysisKind.OBSERVATION, statement, *ids)
        for number, (statement, ids) in enumerate(shown, start=1)
    ]
    if taken and not analyses:
        unverified.append(words["nothing"])
    return DiagnosisDraft(conclusion=None, analyses=analyses, limitations=_limits(missing, unverified))


def _matched(item: Taken) -> bool:
    return item.step.check is not None and check_matched(item.step.check, item.exchange)


def _seen(check: Check, exchange: Exchange, quotes: Sequence[str], words: dict[str, str]) -> str:
    if check.kind == "mysql":
        rows = exchange.answer.get("rows")
        head = words["rows"].format(datasource=check.target, total=len(rows) if isinstance(rows, list) else 0)
    else:
        head = words["logs"].format(**_scope(check, exchange, words), total=exchange.answer.get("total", len(quotes)))
    statement = head
    for item in quotes:
        longer = f"{statement}{words['sep']}{item}"
        if len(longer) <= MAX_STATEMENT:
            statement = longer
    return statement


def _nothing(check: Check, words: dict[str, str]) -> str:
    if check.kind == "mysql":
        return words["none_rows"].format(datasource=check.target)
    return words["none_logs"].format(**_scope(check, None, words))


def _scope(check: Check, exchange: Exchange | None, words: dict[str, str]) -> dict[str, object]:
    lookback: object = check.lookback or 60
    if exchange is not None and isinstance(exchange.answer.get("scope"), dict):
        lookback = exchange.answer["scope"].get("lookback_minutes", lookback)
    query = check.query.replace("`", "")[:160] or words["any"]
    return {"topic": check.target, "lookback": lookback, "query": query}


def _conclusion(concludes: str, title: str, seen: Sequence[str], words: dict[str, str]) -> str:
    quotes = list(seen)
    while True:
        text = words["conclusion"].format(concludes=concludes, title=title, seen=words["sep"].join(quotes))
        if len(text) <= MAX_CONCLUSION or len(quotes) <= 1:
            break
        quotes.pop()
    return text if len(text) <= MAX_CONCLUSION else (concludes[: MAX_CONCLUSION - 1])


def _plain(text: str) -> str:
    """A runbook's words without backticks: only what tools returned may stand between them (R89)."""
    return text.replace("`", "")


def _analysis(number: int, kind: AnalysisKind, statement: str, *tool_call_ids: str) -> Analysis:
    text = statement if len(statement) <= MAX_STATEMENT else statement[:MAX_STATEMENT].rsplit("`", 1)[0]
    return Analysis(analysis_id=f"A{number}", kind=kind, statement=text.strip(), tool_call_ids=list(tool_call_ids)[:6])


def _limits(missing: Sequence[str], unverified: Sequence[str]) -> DraftLimitations:
    return DraftLimitations(
        missing_info=[note[:MAX_NOTE] for note in missing][:8],
        unverified=[note[:MAX_NOTE] for note in dict.fromkeys(unverified)][:8],
    )
