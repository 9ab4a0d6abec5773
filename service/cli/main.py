"""Entry of the command line: commands, and the one place that turns errors into a line and an exit status."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Sequence

import typer
from typer.exceptions import Abort, Exit, TyperException

from service.cli import (
    backtest_command,
    calibrate_command,
    chat_command,
    diagnose_command,
    doctor_command,
    evaluate_command,
    index_command,
    replay_commands,
    run_commands,
    serve_command,
    tool_command,
)
from service.cli.console import CliError, ExitCode, complain, prepare_logging, prepare_streams, print_json

OBJECTS_PER_COLLECTION = 20_000
"""Start-up makes some hundred thousand objects that stay: with the default of 700 a tenth of it is looking for garbage."""

app = typer.Typer(
    name="superbiz",
    help="Diagnose incidents from runbooks, logs and databases; every statement is backed by evidence of its run.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("diagnose")(diagnose_command.diagnose)
app.command("chat")(chat_command.chat)
app.command("runs")(run_commands.runs)
app.command("show")(run_commands.show)
app.command("trace")(run_commands.trace)
app.command("export")(replay_commands.export)
app.command("import")(replay_commands.import_)
app.command("replay")(replay_commands.replay)
app.command("serve")(serve_command.serve)
app.command("index")(index_command.index)
app.command("calibrate")(calibrate_command.calibrate)
app.command("tool")(tool_command.tool)
app.command("doctor")(doctor_command.doctor)
app.command("evaluate")(evaluate_command.evaluate)
app.command("backtest")(backtest_command.backtest)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 usage or configuration, 130 cancelled."""
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    prepare_streams()
    prepare_logging()
    # Whatever is created below the home folder belongs to its owner alone.
    os.umask(0o077)
    sys.exit(_flushed(run(sys.argv[1:] if arguments is None else list(arguments))))


def _flushed(status: int) -> int:
    """Write out what stands in stdout; where that fails, the interpreter must not try again and speak of it."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status or ExitCode.FAILED
    except AttributeError:
        return status or ExitCode.FAILED  # no stdout at all
    return status


def run(arguments: Sequence[str]) -> int:
    """Run one command; return its exit status. Never raises, never shows a traceback."""
    try:
        status = int(app(args=list(arguments), prog_name="superbiz", standalone_mode=False) or ExitCode.OK)
        # Ctrl-C arrives here as a status already.
        return _end("cancelled", ExitCode.CANCELLED, arguments) if status == ExitCode.CANCELLED else status
    except (KeyboardInterrupt, Abort):
        return _end("cancelled", ExitCode.CANCELLED, arguments)
    except Exit as error:
        return error.exit_code
    except TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stdout.write(error.format_message() + "\n")
            return ExitCode.USAGE
        return _end(error.format_message(), ExitCode.USAGE, arguments)
    except BrokenPipeError:
        # The reader of stdout is gone (`| head`): nothing is left to say, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except Exception as error:
        return _end(*explain(error), arguments)


def explain(error: Exception) -> tuple[str, ExitCode]:
    """Say what an error means to whoever typed the command; of an unexpected one only the type is told."""
    if isinstance(error, CliError):
        return str(error), error.code
    if any(f"{each.__module__}.{each.__name__}" in MADE_FOR_PEOPLE for each in type(error).__mro__):
        return str(error), ExitCode.USAGE
    return f"internal error ({type(error).__name__})", ExitCode.FAILED


MADE_FOR_PEOPLE = frozenset(
    {
        "tools.catalog.CatalogError",
        "service.settings.SettingsError",
        "service.contract.StorageError",
        "nodes.start_run.InvalidQuestion",
        "service.evaluate.EvaluationError",
        "service.models.recorded.RecordedAnswersError",
        "tools.rag.folder.KnowledgeError",
        "service.replay.text.BundleError",
    }
)
"""Errors whose text is one bounded line about what was configured or asked; by name, so that a refusal loads nothing."""


def _end(message: str, code: ExitCode, arguments: Sequence[str]) -> int:
    # Where nobody can be told (a full disk, a closed stream), the status has to do.
    with contextlib.suppress(OSError, AttributeError, ValueError):
        complain(message)
    if "--json" in arguments:
        with contextlib.suppress(OSError, AttributeError, ValueError):
            print_json({"error": {"message": message, "exit_code": int(code)}})
    return code


if __name__ == "__main__":
    main()
