"""`superbiz evaluate`: run recorded incidents and score what their runs show."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.console import ExitCode, complain, print_json, run_async, say, show_table, table_of
from service.cli.options import JsonOption, settings_from

if TYPE_CHECKING:
    from service.evaluate import Case, CaseScore, Evaluation, EvidenceBytes, ShownFact
    from service.settings import Settings

MAX_FACT_CHARS = 140


def evaluate(
    folder: Annotated[Path, typer.Argument(help="Folder with expected.json and one folder per case.")],
    json: JsonOption = False,
    model: Annotated[str | None, typer.Option("--model", help="offline, or openai:NAME.")] = None,
) -> int:
    """Run every case of a folder; exit status 1 when a run failed to publish."""
    settings = settings_from(model=model)
    return run_async(lambda: _evaluate(settings, folder, as_json=json))


async def _evaluate(settings: Settings, folder: Path, *, as_json: bool) -> int:
    from service.evaluate import Evaluation, evaluation_json, load_cases

    scores: list[CaseScore] = []
    matches: dict[str, ShownFact | None] = {}
    for case in load_cases(folder):
        score, match = await _run_case(settings, case)
        scores.append(score)
        matches[case.name] = match
        if not as_json:
            complain(f"{case.name}: {score.outcome}, key fact {'found' if score.matched else 'not found'}")
    evaluation = Evaluation(tuple(scores))
    if as_json:
        body = evaluation_json(evaluation)
        for entry in body["cases"]:
            entry["matched"] = entry["matched_in"] is not None
            entry |= _match_json(matches[entry["case"]])
        print_json(body)
    else:
        rows = [_row(score, matches[score.name]) for score in scores]
        show_table(table_of(_HEADINGS, [*rows, _totals(evaluation)]))
        share = evaluation.other_share
        say(
            f"{evaluation.published} of {len(scores)} published, {evaluation.matched} show the key fact, "
            f"facts not matching: {'-' if share is None else f'{share:.0%}'}, "
            f"{evaluation.evidence.shown:,} bytes shown to the model of {evaluation.evidence.raw:,} raw"
        )
    return ExitCode.OK if all(score.published for score in scores) else ExitCode.FAILED


async def _run_case(settings: Settings, case: Case) -> tuple[CaseScore, ShownFact | None]:
    """Run one case in a home of its own."""
    from service.app import open_app
    from service.diagnosis import diagnose
    from service.evaluate import evidence_bytes, score_case, shown_facts

    with tempfile.TemporaryDirectory(prefix="superbiz-case-") as home:
        own = settings.model_copy(update={"catalog": case.catalog, "home": Path(home), "database_url": None})
        async with open_app(own) as app:
            report = await diagnose(app, case.question)
            run_id = report.run_id or ""
            calls = await app.journal.archived(run_id, "agent_result")
            records = [await app.resources.canonical.get(run_id, call) for call in calls]
    evidence = evidence_bytes(report.operator["usage"].get("observation_bytes", 0), records)
    result = report.published_result or report.fallback
    score = score_case(case.name, case.key_fact, report.release_outcome, result, evidence)
    facts = shown_facts(result or {})
    match = next((fact for fact in facts if fact.tool_call_ids and case.key_fact.search(fact.statement)), None)
    return score, match


_HEADINGS = (
    "case",
    "outcome",
    "matched",
    "matched fact",
    "citation",
    "facts",
    "not matching",
    "shown bytes",
    "raw bytes",
)


def _row(score: CaseScore, match: ShownFact | None) -> tuple[str, ...]:
    other = score.facts_shown - score.facts_matching
    share = f"{other / score.facts_shown:.0%}" if score.facts_shown else "-"
    fact = " ".join(match.statement.split()) if match else score.matched_in or "-"
    fact = fact if len(fact) <= MAX_FACT_CHARS else fact[: MAX_FACT_CHARS - 1] + "…"
    citation = ", ".join(match.tool_call_ids) if match else "-"
    told = (score.name, score.outcome, "yes" if score.matched else "no", fact, citation, str(score.facts_shown), share)
    return told + _sizes(score.evidence)


def _totals(evaluation: Evaluation) -> tuple[str, ...]:
    facts = sum(score.facts_shown for score in evaluation.scores)
    share = "-" if evaluation.other_share is None else f"{evaluation.other_share:.0%}"
    matched = f"{evaluation.matched} of {len(evaluation.scores)}"
    return ("all", "", matched, "", "", str(facts), share, *_sizes(evaluation.evidence))


def _sizes(evidence: EvidenceBytes) -> tuple[str, str]:
    return f"{evidence.shown:,}", f"{evidence.raw:,}"


def _match_json(match: ShownFact | None) -> dict[str, Any]:
    if match is None:
        return {"matched_fact": None, "matched_tool_call_ids": []}
    return {"matched_fact": match.statement, "matched_tool_call_ids": list(match.tool_call_ids)}
