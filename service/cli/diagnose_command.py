"""`superbiz diagnose`: one question, its steps live, its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.console import CliError, ExitCode, plain, print_json, run_async, say
from service.cli.options import CatalogOption, JsonOption, LanguageOption, settings_from

if TYPE_CHECKING:
    from service.app import App
    from service.contract import DiagnosisReport, StepView
    from service.settings import Settings


def diagnose(
    question: Annotated[str, typer.Argument(help="What happened, in Chinese or English.")],
    at: Annotated[
        str | None, typer.Option("--at", help="Time the question is about, e.g. 2026-03-01T03:05:00+08:00.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print the run's trace after the report.")] = False,
    json: JsonOption = False,
    no_gain_threshold: Annotated[
        int | None, typer.Option("--no-gain-threshold", help="Results without gain until collection stops (1-50).")
    ] = None,
    protocol_threshold: Annotated[
        int | None, typer.Option("--protocol-threshold", help="Protocol violations until collection stops (2-50).")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="offline, or openai:NAME.")] = None,
    language: LanguageOption = None,
    catalog: CatalogOption = None,
    session: Annotated[str | None, typer.Option("--session", help="Session the run belongs to.")] = None,
) -> int:
    """Diagnose a question; exit status 0 when a conclusion or a fallback was published."""
    settings = settings_from(catalog=catalog, language=language, model=model)
    overrides = {"no_gain_threshold": no_gain_threshold, "protocol_violation_threshold": protocol_threshold}
    if session is not None and (not session.strip() or len(session) > 128):
        raise CliError("--session: must be 1 to 128 characters")
    return run_async(lambda: _diagnose(settings, question, at, session, overrides, as_json=json, with_trace=trace))


async def _diagnose(
    settings: Settings,
    question: str,
    at: str | None,
    session: str | None,
    overrides: dict[str, Any],
    *,
    as_json: bool,
    with_trace: bool,
) -> int:
    # Before anything is loaded, opened or written: what is wrong with the command itself.
    settings.context(at=at, **overrides)
    from nodes.start_run import checked_question
    from service.app import open_app
    from service.diagnosis import diagnose as run_diagnosis

    checked_question(question)
    async with open_app(settings) as app:
        report = await run_diagnosis(
            app,
            question,
            at=at,
            session_id=session,
            overrides=overrides,
            on_step=None if as_json else _show_step,
        )
        if as_json:
            print_json(report.as_json())
        else:
            await _show_report(app, question, report, with_trace=with_trace)
    return ExitCode.OK if report.published else ExitCode.FAILED


def _show_step(view: StepView) -> None:
    say(f"{view.step_no:3d} {view.node:<20} {plain(view.step)}", style="dim")


async def _show_report(app: App, question: str, report: DiagnosisReport, *, with_trace: bool) -> None:
    from service.cli.report import report_lines
    from service.cli.run_commands import calls_of, trace_lines

    calls = await calls_of(app.journal, report.run_id) if report.run_id else {}
    offline = app.resources.models.client(None).semantic_guard_is_lexical
    for line in report_lines(report, question, calls, app.settings.language, offline=offline):
        say(line.text, style=line.style)
    if with_trace and report.run_id:
        say()
        for text in trace_lines(await app.journal.trace(report.run_id)):
            say(text)
