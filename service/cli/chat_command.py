"""`superbiz chat`: questions one after another, each answered like those of the HTTP service, with its stages live.

The prompt reads in the main thread, between runs of one event loop: the terminal's line editing stays whole, and Ctrl-C
means the prompt there and the run here.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.chat_texts import CHAT_TEXTS, STAGES
from service.cli.console import STOPS, CliError, ExitCode, complain, plain, print_json_line, say
from service.cli.options import CatalogOption, LanguageOption, settings_from

if TYPE_CHECKING:
    from service.app import App
    from service.contract import DiagnosisReport, StepView
    from service.settings import Settings

PROMPT = "superbiz> "
MAX_SESSION_CHARS = 128


def chat(
    session: Annotated[str | None, typer.Option("--session", help="Session to go on with. Default: a new one.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="Time the questions are about, e.g. 2026-03-01T03:05:00+08:00.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show every step and what is for operators: state, stop reason, usage.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a question, each on one line.")] = False,
    model: Annotated[str | None, typer.Option("--model", help="offline, or openai:NAME.")] = None,
    language: LanguageOption = None,
    catalog: CatalogOption = None,
) -> int:
    """Ask and answer in a session, at a terminal or through pipes: one question a line."""
    settings = settings_from(catalog=catalog, language=language, model=model)
    if session is not None and (not session.strip() or len(session) > MAX_SESSION_CHARS):
        raise CliError(f"--session: must be 1 to {MAX_SESSION_CHARS} characters")
    settings.context(at=at)
    with asyncio.Runner() as runner:
        return Conversation(settings, runner, session, at, verbose=verbose, as_json=json).hold()


class Conversation:
    """The turns of one invocation."""

    def __init__(
        self,
        settings: Settings,
        runner: asyncio.Runner,
        session: str | None,
        at: str | None,
        *,
        verbose: bool,
        as_json: bool,
    ) -> None:
        self._settings = settings
        self._runner = runner
        self._session = session or str(uuid.uuid4())
        self._at = at
        self._verbose = verbose
        self._as_json = as_json
        self._interactive = sys.stdin.isatty()
        self._word = CHAT_TEXTS[settings.language]
        self._stack = AsyncExitStack()
        self._leaving = False
        self._failed = False

    def hold(self) -> int:
        """Answer until the input ends; return the exit status."""
        from service.app import open_app

        app = self._runner.run(self._stack.enter_async_context(open_app(self._settings)))
        try:
            self._greet()
            for question in self._questions():
                self._turn(app, question)
                if self._leaving:
                    return ExitCode.CANCELLED
        finally:
            self._runner.run(self._stack.aclose())
        return ExitCode.FAILED if self._failed and not self._interactive else ExitCode.OK

    def _greet(self) -> None:
        if self._interactive and not self._as_json:
            say(self._word["welcome"])
            self._tell_session()

    def _tell_session(self) -> None:
        if not self._as_json:
            say(f"{self._word['session']}: {self._session}", style="dim")

    def _questions(self) -> Iterator[str]:
        """Yield what is asked; commands are done here."""
        for line in _lines(self._interactive, "" if self._as_json else PROMPT):
            text = line.strip()
            if text == "/exit":
                return
            if text == "/new":
                self._session = str(uuid.uuid4())
                self._tell_session()
            elif text.startswith("/") and text[1:].isalpha():
                complain(self._word["commands"])
            elif text:
                yield text

    def _turn(self, app: App, question: str) -> None:
        from nodes.start_run import InvalidQuestion

        try:
            report = self._runner.run(self._interruptible(app, question))
        except InvalidQuestion as error:
            self._failed = True
            complain(str(error))
            if self._as_json:
                print_json_line({**self._asked(question), "error": {"message": str(error)}})
            return
        self._failed |= not report.published
        if self._as_json:
            hidden = set() if self._verbose else {"operator"}
            print_json_line(self._asked(question) | report.model_dump(mode="json", exclude=hidden))
        else:
            self._show(app, report)

    def _asked(self, question: str) -> dict[str, Any]:
        return {"session_id": self._session, "question": question}

    async def _interruptible(self, app: App, question: str) -> DiagnosisReport:
        """Answer one question; the first Ctrl-C cancels its run, further ones change nothing (R119)."""
        stages = Stages(self._settings.language, verbose=self._verbose, silent=self._as_json)
        task = asyncio.create_task(self._answer(app, question, stages))
        loop, cancelled = asyncio.get_running_loop(), False

        def cancel(leaving: bool) -> None:
            nonlocal cancelled
            self._leaving |= leaving
            if not cancelled:
                cancelled = True
                complain(self._word["cancelling"])
                task.cancel()

        watched = [each for each in (signal.SIGINT, *STOPS) if signal.getsignal(each) is not signal.SIG_IGN]
        for each in watched:
            loop.add_signal_handler(each, cancel, each is not signal.SIGINT or not self._interactive)
        try:
            return await task
        except asyncio.CancelledError:
            if not cancelled:
                raise
            return await _cancelled_report(app, stages.run_id)
        finally:
            for each in watched:
                loop.remove_signal_handler(each)

    async def _answer(self, app: App, question: str, stages: Stages) -> DiagnosisReport:
        from service.diagnosis import diagnose

        return await diagnose(app, question, at=self._at, session_id=self._session, on_step=stages.show)

    def _show(self, app: App, report: DiagnosisReport) -> None:
        from service.cli.report import answer_lines, operator_text
        from service.cli.run_commands import calls_of
        from service.cli.texts import texts

        calls = self._runner.run(calls_of(app.journal, report.run_id)) if report.run_id else {}
        word = texts(self._settings.language)
        say()
        for line in answer_lines(report, calls, self._settings.language):
            say(line.text, style=line.style)
        say(f"{word['run']}: {report.run_id or '-'}", style="dim")
        if self._verbose:
            say(f"{word['operator']}: {operator_text(report.operator)}", style="dim")
        say()


class Stages:
    """Shows a run's stages as its nodes finish; every step in words where operators look on (R55)."""

    def __init__(self, language: str, *, verbose: bool, silent: bool) -> None:
        self.run_id: str | None = None
        self._words = STAGES[language]
        self._verbose = verbose
        self._silent = silent
        self._last = ""

    def show(self, view: StepView) -> None:
        """Show one step."""
        self.run_id = view.run_id
        if self._silent:
            return
        if self._verbose:
            say(f"{view.step_no:3d} {view.node:<20} {plain(view.step)}", style="dim")
            return
        word = self._words.get(view.node, "")
        if word and word != self._last:
            self._last = word
            say(f"  · {word}", style="dim")


async def _cancelled_report(app: App, run_id: str | None) -> DiagnosisReport:
    """Say how a cancelled run ended, by the run store: it may have been faster (R98)."""
    from service.contract import DiagnosisReport
    from service.diagnosis import report_of

    record = await app.runs.get(run_id) if run_id is not None else None
    if record is not None:
        return report_of(record)
    return DiagnosisReport(run_id=None, status="CANCELLED", release_outcome="NONE")


def _lines(interactive: bool, prompt: str) -> Iterator[str]:
    """Yield the lines of stdin. At a terminal Ctrl-D and Ctrl-C end them."""
    if not interactive:
        reconfigure = getattr(sys.stdin, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
        yield from sys.stdin
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (line editing and history of `input`)
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            yield input(prompt)
    say()
