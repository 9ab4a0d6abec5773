"""The readable report of a Run, as lines. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.contract import DiagnosisReport
from service.report_texts import texts

MAX_SCOPE_CHARS = 160
MAX_MOMENTS = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One line and how a terminal may show it."""

    text: str = ""
    style: str | None = None


Calls = Mapping[str, Mapping[str, Any]]
"""Archived calls by Tool Call ID: tool_name, scope, evidence_status, agent_result."""


def report_lines(
    report: DiagnosisReport, question: str, calls: Calls, language: str, *, offline: bool = False
) -> Iterator[Line]:
    """Write a report: what was found with its citations, what was checked, what is missing, and the operator's line."""
    word = texts(language)
    yield Line()
    yield Line(f"{word['question']}: {question.strip()}", "bold")
    if moments := _moments(calls):
        yield Line(f"{word['now']}: {moments}", "dim")
    yield Line()
    yield from answer_lines(report, calls, language)
    yield Line()
    if offline:
        yield Line(word["offline"])
    yield Line(f"{word['run']}: {report.run_id or '-'}  {report.status}  {report.release_outcome}")
    yield Line(f"{word['operator']}: {operator_text(report.operator)}", "dim")


def _moments(calls: Calls) -> str:
    """Write which times were taken as now: scopes like `last 60 min` end there."""
    ends = [(call.get("agent_result") or {}).get("to") for call in calls.values()]
    times = list(dict.fromkeys(end for end in ends if isinstance(end, str)))
    return ", ".join([*times[:MAX_MOMENTS], *(["…"] if times[MAX_MOMENTS:] else [])])


def answer_lines(report: DiagnosisReport, calls: Calls, language: str) -> Iterator[Line]:
    """Write what a user may see of a Run's end, whatever it answers (R55)."""
    word = texts(language)
    if report.published_result is not None:
        write = {"KNOWLEDGE_ANSWER": _knowledge, "CHAT": _chat}.get(report.release_outcome, _published)
        yield from write(report.published_result, calls, word)
    elif report.fallback is not None:
        yield from _fallback(report.fallback, calls, word)
    else:
        yield Line(word["cancelled" if report.status == "CANCELLED" else "failed"], "red")


def operator_text(operator: Mapping[str, Any]) -> str:
    """Say in one line what only operators may see (R55)."""
    usage = operator.get("usage") or {}
    parts = [f"state {operator.get('internal_state')}", f"stop reason {operator.get('stop_reason') or 'none'}"]
    if operator.get("error_code"):
        parts.append(f"error {operator['error_code']}")
    if usage:
        gap = f" (+{usage['usage_unavailable']} calls unknown)" if usage.get("usage_unavailable") else ""
        parts.append(
            f"{usage.get('model_calls', 0)} model calls, {usage.get('tool_calls', 0)} tool calls, "
            f"{usage.get('total_tokens', 0)} tokens{gap}"
        )
    return " | ".join(parts)


def citation(call_ids: Sequence[str], calls: Calls) -> str:
    """Write citations as `[tool id]`."""
    return " ".join(
        f"[{calls[each]['tool_name']} {each}]" if each in calls else f"[{each}]" for each in call_ids if each
    )


def scope_text(scope: Mapping[str, Any]) -> str:
    """Write a scope in one short line."""
    text = " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in scope.items()
        if value not in ("", None, [])
    )
    text = " ".join(text.split())
    return text if len(text) <= MAX_SCOPE_CHARS else text[: MAX_SCOPE_CHARS - 1] + "…"


def _published(result: Mapping[str, Any], calls: Calls, word: Mapping[str, str]) -> Iterator[Line]:
    yield Line(word["conclusion"], "bold green")
    yield Line(f"  {result.get('conclusion') or '-'}")
    yield Line()
    yield Line(word["findings"], "bold")
    for number, finding in enumerate(result.get("findings") or [], start=1):
        kind = word.get(str(finding["kind"]), str(finding["kind"]))
        yield Line(f"  {number}. ({kind}) {finding['statement']} {citation(finding['tool_call_ids'], calls)}")
    yield from _checked(result.get("scope") or [], word)
    yield from _documents(result.get("documents") or [], word)
    yield from _limitations(result.get("limitations") or {}, word)


def _knowledge(result: Mapping[str, Any], _calls: Calls, word: Mapping[str, str]) -> Iterator[Line]:
    items = result.get("items") or []
    if not items:
        yield Line(word["not_found"], "bold yellow")
    for number, item in enumerate(items, start=1):
        sources = ", ".join(f"{each['title']} ({each['source']})" for each in item["documents"])
        yield Line(f"  {number}. {item['text']} [{sources}]")


def _chat(result: Mapping[str, Any], _calls: Calls, _word: Mapping[str, str]) -> Iterator[Line]:
    yield from (Line(text) for text in str(result.get("text") or "-").splitlines())


def _fallback(fallback: Mapping[str, Any], calls: Calls, word: Mapping[str, str]) -> Iterator[Line]:
    yield Line(f"{fallback['reason']}: {fallback['summary']}", "bold yellow")
    yield Line()
    yield Line(word["facts"], "bold")
    facts = fallback.get("observed_facts") or []
    for number, fact in enumerate(facts, start=1):
        yield Line(f"  {number}. {fact['statement']} {citation([fact['tool_call_id']], calls)}")
    if not facts:
        yield Line(f"  {word['no_facts']}")
    yield from _checked(fallback.get("process") or [], word)
    yield from _limitations(fallback.get("limitations") or {}, word)


def _checked(steps: Sequence[Mapping[str, Any]], word: Mapping[str, str]) -> Iterator[Line]:
    yield Line()
    yield Line(word["checked"], "bold")
    for step in steps:
        status = word.get(str(step["evidence_status"]), str(step["evidence_status"]))
        count = f" ({step['returned_count']})" if step.get("returned_count") else ""
        cut = f", {word['truncated']}" if step.get("truncated") else ""
        yield Line(f"  - {step['tool_name']} {scope_text(step['scope'])}: {status}{count}{cut}")
    if not steps:
        yield Line(f"  {word['nothing_checked']}")


def _documents(documents: Sequence[Mapping[str, Any]], word: Mapping[str, str]) -> Iterator[Line]:
    if documents:
        yield Line()
        yield Line(word["documents"], "bold")
        for each in documents:
            yield Line(f"  - {each['title']} ({each['source']}, {each['relevance_level']})")


def _limitations(limits: Mapping[str, Any], word: Mapping[str, str]) -> Iterator[Line]:
    lines = [f"{word['missing']}: {text}" for text in limits.get("missing_info") or []]
    lines += [f"{word['unverified']}: {text}" for text in limits.get("unverified") or []]
    lines += [word.get(str(code), str(code)) for code in limits.get("notes") or []]
    if lines:
        yield Line()
        yield Line(word["limitations"], "bold")
        for text in lines:
            yield Line(f"  - {text}")
