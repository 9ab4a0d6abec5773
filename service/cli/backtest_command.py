"""`superbiz backtest`: what other thresholds of the stop rule would have saved and cost, over recorded runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from service.cli.console import CliError, ExitCode, complain, print_json, say, show_table, table_of
from service.cli.options import JsonOption

if TYPE_CHECKING:
    from service.backtest.bundles import BundleBacktest
    from service.backtest.foreign import ForeignBacktest
    from service.backtest.transcripts import Transcript

BUNDLES = "bundles"
OPENAI = "openai-messages"
MAX_THRESHOLD = 50
MAX_NAMED = 20
_RANGE = re.compile(r"([0-9]{1,2})(?:\.\.([0-9]{1,2}))?")
T = TypeVar("T")


def backtest(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, or folders of files.")],
    no_gain_threshold: Annotated[
        str, typer.Option("--no-gain-threshold", help="One threshold or a range, e.g. 1..6.")
    ] = "1..6",
    protocol_threshold: Annotated[
        str, typer.Option("--protocol-threshold", help="The same for protocol violations, e.g. 2..4; bundles only.")
    ] = "2",
    format_: Annotated[
        str,
        typer.Option(
            "--format", help=f"{BUNDLES}: files of `superbiz export`; {OPENAI}: other agents' transcripts with a flag."
        ),
    ] = BUNDLES,
    chart: Annotated[
        Path | None, typer.Option("--chart", help="Also draw a .png or .svg (extra `charts`); bundles only.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Compare thresholds of the stop rule over recorded runs; exit status 1 when a file had to be left out."""
    if format_ not in (BUNDLES, OPENAI):
        raise CliError(f"--format: must be {BUNDLES} or {OPENAI}")
    thresholds = threshold_range(no_gain_threshold, "--no-gain-threshold", 1)
    if format_ == OPENAI:
        if chart is not None:
            raise CliError(f"--chart: not with --format {OPENAI}")
        return _foreign(files_of(paths, (".json", ".jsonl")), thresholds, as_json=json)
    protocol = threshold_range(protocol_threshold, "--protocol-threshold", 2)
    return _bundles(files_of(paths, (".json",)), thresholds, protocol, chart, as_json=json)


def threshold_range(text: str, option: str, least: int) -> range:
    """Parse `3` or `1..6`. Raises CliError naming the option."""
    found = _RANGE.fullmatch(text.strip())
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not least <= first <= last <= MAX_THRESHOLD:
        raise CliError(f"{option}: must be a number or a range such as {least}..6, from {least} to {MAX_THRESHOLD}")
    return range(first, last + 1)


def files_of(paths: Sequence[Path], suffixes: Sequence[str]) -> list[Path]:
    """Return the named files, and those with one of the suffixes in the named folders, in order of their names."""
    found = list[Path]()
    for path in paths:
        if path.is_dir():
            found += sorted(each for each in path.rglob("*") if each.suffix in suffixes and each.is_file())
        elif path.exists():
            found.append(path)
        else:
            raise CliError(f"{path.name[:80]}: file not found")
    if not found:
        raise CliError(f"no file found; looked for {', '.join(suffixes)}")
    return found


def with_progress(items: Sequence[T], label: str) -> Iterator[T]:
    """Yield the items under a progress bar on stderr; where that is no terminal nothing is drawn."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(items, total=len(items))


def name_skipped(skipped: Sequence[str]) -> int:
    """Tell on stderr what was left out; return the exit status."""
    for line in skipped[:MAX_NAMED]:
        complain(f"left out: {line}")
    if len(skipped) > MAX_NAMED:
        complain(f"left out: {len(skipped) - MAX_NAMED} more")
    return ExitCode.FAILED if skipped else ExitCode.OK


def _bundles(files: Sequence[Path], no_gain: range, protocol: range, chart: Path | None, *, as_json: bool) -> int:
    from service.backtest.bundles import backtest_bundles, read_histories
    from service.backtest.chart import ChartError, check_chart, write_chart

    skipped = list[str]()
    try:
        if chart is not None:
            check_chart(chart)
        result = backtest_bundles(read_histories(with_progress(files, "bundles"), skipped), no_gain, protocol)
        if chart is not None:
            write_chart(result, chart)
    except ChartError as error:
        raise CliError(str(error)) from None
    if as_json:
        print_json(result.as_json() | {"left_out": skipped})
    else:
        _show_bundles(result)
    return name_skipped(skipped)


def _show_bundles(result: BundleBacktest) -> None:
    say(f"{len(result.histories)} runs, {result.conclusions} published conclusions, {result.calls} tool calls")
    say()
    headings = ("no gain", "protocol", "runs stopped", "calls saved", "tokens saved", "seconds saved")
    rows = (
        (
            str(each.thresholds.no_gain),
            str(each.thresholds.protocol),
            str(each.stopped),
            str(each.calls_saved),
            str(each.tokens_saved),
            f"{each.seconds_saved:.1f}",
            str(each.gained_lost),
            str(each.cited_lost),
            f"{each.conclusions_lost} of {result.conclusions}",
        )
        for each in result.totals()
    )
    show_table(table_of((*headings, "gained lost", "cited lost", "conclusions lost"), rows))


def _foreign(files: Sequence[Path], thresholds: range, *, as_json: bool) -> int:
    from service.backtest.foreign import backtest_transcripts
    from service.backtest.rules import rules_for
    from service.backtest.transcripts import TranscriptError, read_transcripts

    skipped = list[str]()

    def every() -> Iterator[Transcript]:
        for path in with_progress(files, "files"):
            try:
                yield from read_transcripts(path)
            except TranscriptError as error:
                skipped.append(str(error))

    result = backtest_transcripts(every(), rules_for(thresholds))
    if as_json:
        print_json(result.as_json() | {"left_out": skipped})
    else:
        _show(result)
    return name_skipped(skipped)


def _show(result: ForeignBacktest) -> None:
    say(
        f"{result.runs} runs, {result.successes} successful; {result.calls} calls, {result.useless} of them useless "
        "(error, nothing found, or the same call again)"
    )
    say()
    rows = (
        (
            each.rule,
            str(each.stopped),
            f"{each.lost} of {result.successes}",
            f"{each.useless_cut} of {result.useless}",
            f"{each.other_cut} of {result.calls - result.useless}",
        )
        for each in result.outcomes
    )
    show_table(table_of(("rule", "runs stopped", "successes lost", "useless calls cut", "other calls cut"), rows))
