"""A back-test over a folder of run bundles: each is read and verified once, whatever the number of thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from service.replay.text import MAX_BUNDLE_BYTES, BundleError, read_bundle
from service.replay.what_if import History, Thresholds, WhatIf, as_json, history_of, what_if


@dataclass(frozen=True, slots=True)
class Total:
    """All runs under one pair of thresholds."""

    thresholds: Thresholds
    stopped: int
    calls_saved: int
    tokens_saved: int
    seconds_saved: float
    gained_lost: int
    cited_lost: int
    conclusions_lost: int


@dataclass(frozen=True, slots=True)
class BundleBacktest:
    """Totals by thresholds and, per run, where it would have stopped; `rows[i]` belongs to `histories[i]`."""

    histories: tuple[History, ...]
    grid: tuple[Thresholds, ...]
    rows: tuple[tuple[WhatIf, ...], ...]

    @property
    def conclusions(self) -> int:
        """Runs that published a conclusion."""
        return sum(each.has_conclusion for each in self.histories)

    @property
    def calls(self) -> int:
        """Completed calls in all runs."""
        return sum(each.calls for each in self.histories)

    def totals(self) -> list[Total]:
        """Sum over the runs, one total a pair of thresholds."""
        return [_total(pair, [row[index] for row in self.rows]) for index, pair in enumerate(self.grid)]

    def as_json(self) -> dict[str, Any]:
        """JSON data."""
        return {
            "runs": len(self.histories),
            "conclusions": self.conclusions,
            "calls": self.calls,
            "totals": [asdict(each) for each in self.totals()],
            "by_run": [
                as_json(history, zip(self.grid, row, strict=True))
                for history, row in zip(self.histories, self.rows, strict=True)
            ],
        }


def read_histories(paths: Iterable[Path], left_out: list[str]) -> Iterator[History]:
    """Read each bundle once; one that is damaged or no bundle is named in `left_out`."""
    for path in paths:
        try:
            with path.open("rb") as file:
                raw = file.read(MAX_BUNDLE_BYTES + 1)
            yield history_of(read_bundle(raw))
        except BundleError as error:
            left_out.append(f"{path.name[:80]}: {error}")
        except OSError as error:
            left_out.append(f"{path.name[:80]}: cannot be read ({type(error).__name__})")


def backtest_bundles(histories: Iterable[History], no_gain: Sequence[int], protocol: Sequence[int]) -> BundleBacktest:
    """Ask every run under every pair of thresholds."""
    grid = tuple(Thresholds(first, second) for first, second in product(no_gain, protocol))
    runs = tuple(histories)
    return BundleBacktest(runs, grid, tuple(tuple(what_if(run, pair) for pair in grid) for run in runs))


def _total(pair: Thresholds, row: Sequence[WhatIf]) -> Total:
    return Total(
        thresholds=pair,
        stopped=sum(each.stopped_at is not None for each in row),
        calls_saved=sum(each.calls_saved for each in row),
        tokens_saved=sum(each.tokens_saved for each in row),
        seconds_saved=round(sum(each.seconds_saved for each in row), 3),
        gained_lost=sum(len(each.gained_lost) for each in row),
        cited_lost=sum(len(each.cited_lost) for each in row),
        conclusions_lost=sum(each.conclusion_lost for each in row),
    )
