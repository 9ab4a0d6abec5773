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
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.chat_texts import CHAT_TEXTS, STAGES
from service.cli.console import STOPS, ExitCode, complain, plain, print_json_line, say
from service.cli.options import CatalogOption, LanguageOption, settings_from

if TYPE_CHECKING:
    from nodes.ports import RunRecord
    from service.app import App
    from service.contract import DiagnosisReport, StepView
    from service.runner import RunManager
    from service.settings import Settings

PROMPT = "superbiz> "


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
    from nodes.start_run import checked_session

    checked_session(session, "--session")
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
        self._stages = Stages(settings.language, verbose=verbose, silent=as_json)
        self._leaving = False
        self._failed = False

    def hold(self) -> int:
        """Answer until the input ends; return the exit status."""
        app, manager = self._runner.run(self._open())
        try:
            self._greet()
            for question in self._questions():
                self._turn(app, manager, question)
                if self._leaving:
                    return ExitCode.CANCELLED
        finally:
            self._runner.run(self._stack.aclose())
        return ExitCode.FAILED if self._failed and not self._interactive else ExitCode.OK

    async def _open(self) -> tuple[App, RunManager]:
        from service.app import open_app
        from service.runner import RunManager

        app = await self._stack.enter_async_context(open_app(self._settings))
        manager = RunManager(app, max_runs=self._settings.max_runs, on_step=self._stages.show)
        return app, await self._stack.enter_async_context(manager)

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
            if text.lower() in {"/exit", "/quit", "exit", "quit", "退出"}:
                return
            if text == "/new":
                self._session = str(uuid.uuid4())
                self._tell_session()
            elif text.startswith("/") and text[1:].isalpha():
                complain(self._word["commands"])
            elif text:
                yield text

    def _turn(self, app: App, manager: RunManager, question: str) -> None:
        from nodes.start_run import InvalidQuestion
        from service.diagnosis import report_of
        from service.runner import SessionHasRun

        try:
            ended = self._runner.run(self._interruptible(manager, question))
        except (InvalidQuestion, SessionHasRun) as error:
            self._failed = True
            complain(str(error))
            if self._as_json:
                print_json_line({**self._asked(question), "error": {"message": str(error)}})
            return
        report = report_of(ended)
        self._failed |= not report.published
        if self._as_json:
            hidden = set() if self._verbose else {"operator"}
            print_json_line(self._asked(question) | report.model_dump(mode="json", exclude=hidden))
        else:
            self._show(app, report)

    def _asked(self, question: str) -> dict[str, Any]:
        return {"session_id": self._session, "question": question}

    async def _interruptible(self, manager: RunManager, question: str) -> RunRecord:
        """Answer one question; the first Ctrl-C cancels its run, further ones change nothing (R119)."""
        from service.runner import Question

        cancel = asyncio.Event()

        def interrupted(leaving: bool) -> None:
            self._leaving |= leaving
            if not cancel.is_set():
                complain(self._word["cancelling"])
                cancel.set()

        async def cancelled(run_id: str) -> None:
            await cancel.wait()
            await manager.cancel(run_id)

        with _caught(lambda signum: interrupted(signum is not signal.SIGINT or not self._interactive)):
            self._stages.begin()
            started = await manager.start(Question(question, self._session, at=self._at))
            watcher = asyncio.create_task(cancelled(started.run_id))
            try:
                return await manager.wait(started.run_id) or started
            finally:
                watcher.cancel()

    def _show(self, app: App, report: DiagnosisReport) -> None:
        from service.cli.run_commands import calls_of
        from service.report import answer_lines, operator_text
        from service.report_texts import texts

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
        self._words = STAGES[language]
        self._verbose = verbose
        self._silent = silent
        self._last = ""

    def begin(self) -> None:
        """A new run begins."""
        self._last = ""

    def show(self, view: StepView) -> None:
        """Show one step."""
        if self._silent:
            return
        if self._verbose:
            say(f"{view.step_no:3d} {view.node:<20} {plain(view.step)}", style="dim")
            return
        word = self._words.get(view.node, "")
        if view.node == "start_run" and view.step_no > 1:
            return  # a diagnosis joins the run of its chat
        if word and word != self._last:
            self._last = word
            say(f"  · {word}", style="dim")


@contextlib.contextmanager
def _caught(handle: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Let the event loop handle what would end the process, but what was ignored from outside."""
    loop = asyncio.get_running_loop()
    watched = [each for each in (signal.SIGINT, *STOPS) if signal.getsignal(each) is not signal.SIG_IGN]
    for each in watched:
        loop.add_signal_handler(each, handle, each)
    try:
        yield
    finally:
        for each in watched:
            loop.remove_signal_handler(each)


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
