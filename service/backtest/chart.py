"""The chart of a back-test, with matplotlib from the extra `charts`. Labels are English: they need no font but its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from service.backtest.bundles import BundleBacktest

SUFFIXES = (".png", ".svg")


class ChartError(Exception):
    """A chart cannot be drawn; one bounded line."""


def check_chart(path: Path) -> None:
    """Refuse before any work is done what could not be drawn in the end. Raises ChartError."""
    if path.suffix not in SUFFIXES:
        raise ChartError(f"--chart: the file's name must end with {' or '.join(SUFFIXES)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ChartError("--chart needs the extra `charts`: pip install 'superbizagent[charts]'") from None


def write_chart(result: BundleBacktest, path: Path) -> None:
    """Draw per threshold the calls saved and the conclusions lost; one line a protocol threshold. Raises ChartError."""
    from matplotlib.figure import Figure  # its own canvas: no window system is touched

    figure = Figure(figsize=(8, 5), layout="constrained")
    saved, lost = figure.subplots(2, 1, sharex=True)
    totals = result.totals()
    for protocol in sorted({each.thresholds.protocol for each in totals}):
        line = [each for each in totals if each.thresholds.protocol == protocol]
        x = [each.thresholds.no_gain for each in line]
        _line(saved, x, [each.calls_saved for each in line], protocol)
        _line(lost, x, [each.conclusions_lost for each in line], protocol)
    saved.set_title(f"Stop rule over {len(result.histories)} recorded runs")
    saved.set_ylabel(f"tool calls saved of {result.calls}")
    lost.set_ylabel(f"conclusions lost of {result.conclusions}")
    lost.set_xlabel("no-gain threshold")
    for axis in (lost.xaxis, lost.yaxis, saved.yaxis):
        axis.get_major_locator().set_params(integer=True)
    saved.legend(title="protocol threshold")
    try:
        figure.savefig(path)
    except OSError as error:
        raise ChartError(f"--chart: {path.name[:80]}: cannot be written ({type(error).__name__})") from None


def _line(axes: Any, x: list[int], y: list[int], protocol: int) -> None:
    axes.plot(x, y, marker="o", label=str(protocol))
    axes.grid(visible=True, alpha=0.3)
