"""`superbiz export`, `import` and `replay`: runs as files, and run again exactly (R67, R154)."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.console import CliError, ExitCode, print_json, run_async, say
from service.cli.options import JsonOption, settings_from
from service.cli.run_commands import RunArgument, find_run

if TYPE_CHECKING:
    from service.replay.bundle import Bundle
    from service.replay.compare import Comparison
    from service.replay.what_if import History, WhatIf
    from service.store.journal import SqlJournal
    from service.store.runs import SqlRunStore

FileOption = Annotated[Path | None, typer.Option("--output", "-o", help="File to write. Default: stdout.")]
RunOrFile = Annotated[str, typer.Argument(help="A run id, a unique beginning of one, `last`, or a bundle's file.")]


def export(run: RunArgument, output: FileOption = None) -> int:
    """Write a finished run as one self-contained file."""
    return run_async(lambda: _export(run, output))


def import_(bundle: Annotated[Path, typer.Argument(help="A file that `superbiz export` wrote.")]) -> int:
    """Take a run from a file: `show`, `trace` and `replay` know it then."""
    return run_async(lambda: _import(bundle))


def replay(
    run: RunOrFile,
    no_gain_threshold: Annotated[
        int | None, typer.Option("--no-gain-threshold", help="Say where it would have stopped then (1-50).")
    ] = None,
    protocol_threshold: Annotated[
        int | None, typer.Option("--protocol-threshold", help="Say where it would have stopped then (2-50).")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Put the question to this model, over the recorded results.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Run a recorded run again through the real graph; exit status 0 when every byte is the same.

    With a threshold: where it would have stopped, what that saves and what it loses. With --model: what a live model makes
    of the recorded results, and which of its calls have no record.
    """
    for name, value, least in (
        ("--no-gain-threshold", no_gain_threshold, 1),
        ("--protocol-threshold", protocol_threshold, 2),
    ):
        if value is not None and not least <= value <= 50:
            raise CliError(f"{name}: must be {least} to 50")
    if no_gain_threshold is not None or protocol_threshold is not None:
        if model is not None:
            raise CliError("--model: goes without thresholds")
        return run_async(lambda: _what_if(run, no_gain_threshold, protocol_threshold, as_json=json))
    if model is not None:
        return run_async(lambda: _replay_with(run, model, as_json=json))
    return run_async(lambda: _replay(run, as_json=json))


async def _export(name: str, output: Path | None) -> int:
    from service.replay.text import write_bundle

    text = write_bundle(await _of_run(name))
    return await asyncio.to_thread(_write, text, output)


def _write(text: str, output: Path | None) -> int:
    if output is None:
        sys.stdout.buffer.write(text.encode())
        sys.stdout.flush()
        return ExitCode.OK
    try:
        output.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "cannot be written"
        raise CliError(f"--output: {output.name[:80]}: {reason}") from None
    return ExitCode.OK


async def _import(path: Path) -> int:
    from service.replay.importing import import_bundle
    from service.store.clock import SystemClock

    bundle = read_file(path)
    async with _stores() as (runs, journal):
        new = await import_bundle(bundle, runs, journal, SystemClock().now())
    say(f"imported run {bundle.run_id}" if new else f"run {bundle.run_id} is here already")
    return ExitCode.OK


async def _replay(name: str, *, as_json: bool) -> int:
    from service.replay.compare import compare
    from service.replay.engine import replay as replayed

    bundle = await _bundle(name)
    result = await replayed(bundle)
    found = compare(bundle, result.bundle)
    if as_json:
        print_json(_as_json(bundle, found, result.left_at))
    else:
        _show(bundle, found, result.left_at)
    return ExitCode.OK if found.identical else ExitCode.FAILED


async def _what_if(name: str, no_gain: int | None, protocol: int | None, *, as_json: bool) -> int:
    from service.replay import what_if

    history = what_if.history_of(await _bundle(name))
    recorded = history.recorded
    asked = what_if.Thresholds(no_gain or recorded.no_gain, protocol or recorded.protocol)
    found = what_if.what_if(history, asked)
    if as_json:
        print_json(what_if.as_json(history, [(asked, found)]))
    else:
        _show_what_if(history, found)
    return ExitCode.OK


def _show_what_if(history: History, found: WhatIf) -> None:
    if found.stopped_at is not None:
        say(f"stops at step {found.stopped_at} (model turn {found.turn}): {found.stop_reason}", style="bold")
    else:
        beyond = history.stopped_by_progress
        say("would go on beyond the record" if beyond else "does not stop within the record", style="bold")
    say(
        f"saves {found.calls_saved} of {history.calls} tool calls, {found.tokens_saved} tokens, "
        f"{found.seconds_saved:.1f} s"
    )
    say(f"misses results that taught something: {', '.join(found.gained_lost) or 'none'}")
    say(f"misses results that are cited: {', '.join(found.cited_lost) or 'none'}")
    if history.has_conclusion:
        say(f"the published conclusion would be {'lost' if found.conclusion_lost else 'kept'}")


async def _replay_with(name: str, model: str, *, as_json: bool) -> int:
    from service.models.choice import ConfiguredModels
    from service.offline.client import OfflineClient
    from service.replay.engine import replay_with

    models = ConfiguredModels(settings_from(model=model), os.environ, OfflineClient())
    try:
        models.client(None)
    except ValueError as error:
        raise CliError(f"--model: {error}") from None
    bundle = await _bundle(name)
    found = await replay_with(bundle, models)
    unrecorded = [{"tool_name": each.tool_name, "scope": dict(each.normalized)} for each in found.unrecorded]
    outcome = dict(found.outcome or {})
    if as_json:
        calls = {"recorded_calls": found.recorded_calls, "unrecorded_calls": unrecorded}
        print_json({"run_id": bundle.run_id, "model": model, **calls, "outcome": outcome})
        return ExitCode.OK
    say(f"{outcome.get('release_outcome', 'NONE')}: {outcome.get('reason', 'the run did not end')}", style="bold")
    published = outcome.get("published_result") or outcome.get("fallback") or {}
    say(str(published.get("conclusion") or published.get("summary") or ""))
    say(f"{found.recorded_calls} calls answered from the record, {len(unrecorded)} have no record and failed")
    for each in found.unrecorded:
        say(f"  {each.tool_name}: {each.summary}")
    return ExitCode.OK


def read_file(path: Path) -> Bundle:
    """Read a bundle's file, never more of it than a bundle may have. Raises CliError, BundleError."""
    from service.replay.text import MAX_BUNDLE_BYTES, read_bundle

    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BUNDLE_BYTES + 1)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "cannot be read"
        raise CliError(f"{path.name[:80]}: {reason}") from None
    return read_bundle(raw)


async def _bundle(name: str) -> Bundle:
    return read_file(Path(name)) if names_a_file(name) else await _of_run(name)


def names_a_file(name: str) -> bool:
    """Say whether a RUN argument is a file: it has a folder or a suffix, which no run id has."""
    return Path(name).suffix != "" or len(Path(name).parts) > 1


async def _of_run(name: str) -> Bundle:
    from service.replay.export import export_run

    async with _stores() as (runs, journal):
        return await export_run(await find_run(runs, name), journal)


def _as_json(bundle: Bundle, found: Comparison, left_at: str | None) -> dict[str, object]:
    return {
        "run_id": bundle.run_id,
        "identical": found.identical,
        "steps": len(bundle.path),
        "entries": len(bundle.entries),
        "differing_entries": found.entries,
        "first_difference": found.step,
        "left_at": left_at,
        "changed_since": list(found.changed),
        "differences": [
            {"entry": each.entry, "place": each.place, "recorded": each.recorded, "replayed": each.replayed}
            for each in found.first
        ],
    }


def _show(bundle: Bundle, found: Comparison, left_at: str | None) -> None:
    for change in found.changed:
        say(f"note: changed since the run: {change}")
    if found.identical:
        say(f"identical: {len(bundle.path)} steps, {len(bundle.trace)} trace events, {len(bundle.entries)} entries")
        return
    say(f"the replay differs at {found.step}", style="bold")
    if left_at is not None:
        say(f"  it went on to {left_at}, where the recorded run did not")
    for each in found.first:
        say(f"  {each}")
    say(f"  {found.entries} of {len(bundle.entries)} entries differ in all", style="dim")


def _stores() -> AbstractAsyncContextManager[tuple[SqlRunStore, SqlJournal]]:
    from service.home import open_stores

    return open_stores(settings_from())
