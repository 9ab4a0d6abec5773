"""What a back-test says of a recorded run is what the real graph does under those thresholds (R2, R35, R37)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodes.ports import ModelReply
from service.backtest import bundles as reading
from service.backtest.bundles import backtest_bundles, read_histories
from service.cli.main import run
from service.replay.text import read_bundle, write_bundle
from service.replay.what_if import History, Thresholds, WhatIf, history_of, what_if
from tests.fakes import SUPPORTED, call, calls, draft
from tests.loop import Loop, make_loop
from tests.replays import bundles_of

LOOSE = {"no_gain_threshold": 50, "protocol_violation_threshold": 50}
CONCLUDED = draft("cause of it", [("A1", "OBSERVATION", "line about found c", ["c5"])])
GAIN, NONE = "GAINED", "NO_GAIN"


def malformed(tool_call_id: str) -> ModelReply:
    return calls((tool_call_id, "query_probe", None))


def wandering() -> list[Any]:
    """Two results without gain, one with; a slip; what the conclusion cites; and then nothing any more."""
    return [
        call("c1", "found a"),
        call("c2", "none a", ("c1", NONE)),
        call("c3", "found b"),
        malformed("c4"),
        call("c5", "found c", ("c3", GAIN)),
        call("c6", "found c", ("c5", GAIN)),
        malformed("c7"),
        malformed("c8"),
        call("c9", "none b"),
        call("c10", "none c"),
        CONCLUDED,
        SUPPORTED,
    ]


async def recorded(script: Callable[[], list[Any]], **context: Any) -> tuple[Loop, str]:
    """A finished run as the text of its bundle."""
    loop = make_loop(script())
    await loop.run(**context)
    (bundle,) = await bundles_of(loop)
    return loop, write_bundle(bundle)


def written(folder: Path, texts: dict[str, str]) -> list[Path]:
    for name, text in texts.items():
        (folder / f"{name}.json").write_text(text)
    return sorted(folder.iterdir())


def history(text: str) -> History:
    return history_of(read_bundle(text.encode()))


@pytest.mark.parametrize("no_gain", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("protocol", [2, 3])
async def test_r37_the_stop_is_where_the_real_graph_stops(no_gain: int, protocol: int) -> None:
    _, text = await recorded(wandering, **LOOSE)
    said = what_if(history(text), Thresholds(no_gain, protocol))
    loop = make_loop([*wandering(), draft()])
    await loop.run(no_gain_threshold=no_gain, protocol_violation_threshold=protocol)
    (bundle,) = await bundles_of(loop)
    stops = [each["node"] for each in bundle.trace if each["type"] == "COLLECTION_SATURATED"]
    assert [int(node[:4]) for node in stops] == ([] if said.stopped_at is None else [said.stopped_at])


async def test_what_is_saved_and_lost_is_counted() -> None:
    loop, text = await recorded(wandering, **LOOSE)
    assert loop.outcome["release_outcome"] == "CONCLUSION"
    past = history(text)
    assert (past.gained, past.cited, past.has_conclusion) == ({"c3", "c5"}, {"c5"}, True)
    early, late = what_if(past, Thresholds(2, 50)), what_if(past, Thresholds(3, 50))
    assert (early.calls_saved, early.gained_lost, early.cited_lost, early.conclusion_lost) == (
        4,
        ("c3", "c5"),
        ("c5",),
        True,
    )
    assert (late.calls_saved, late.gained_lost, late.cited_lost, late.conclusion_lost) == (0, (), (), False)
    assert early.tokens_saved > late.tokens_saved == 0
    assert what_if(past, Thresholds(6, 50)) == WhatIf(None)


async def test_a_run_that_stopped_itself_stops_there_again() -> None:
    loop, text = await recorded(lambda: [call("c1", "none a"), call("c2", "none b"), draft()], no_gain_threshold=2)
    past = history(text)
    assert past.stop_reason == "INFORMATION_SATURATED"
    assert what_if(past, past.recorded).stopped_at is not None
    assert what_if(past, past.recorded).calls_saved == 0
    assert what_if(past, Thresholds(3, 2)).stopped_at is None  # what it would have done then nobody knows
    assert loop.tool.ran == ["none a", "none b"]


async def test_each_bundle_is_read_once_and_bad_ones_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = await recorded(wandering, **LOOSE)
    texts = {f"run{number}": text for number in range(3)}
    files = written(tmp_path, texts | {"changed": text.replace("found c", "found d", 1), "other": "{}"})
    read = list[int]()
    real = reading.read_bundle

    def counted(raw: bytes) -> Any:
        read.append(len(raw))
        return real(raw)

    monkeypatch.setattr(reading, "read_bundle", counted)
    left_out = list[str]()
    result = backtest_bundles(read_histories(files, left_out), range(1, 7), range(2, 5))
    assert len(read) == 5
    assert len(result.grid) == 18
    assert [each.partition(":")[0] for each in left_out] == ["changed.json", "other.json"]
    two = next(each for each in result.totals() if each.thresholds == Thresholds(2, 4))
    assert (two.stopped, two.calls_saved, two.gained_lost, two.cited_lost, two.conclusions_lost) == (3, 12, 6, 3, 3)

    chart = tmp_path / "chart.svg"
    command = ["backtest", str(tmp_path), "--no-gain-threshold", "1..6", "--protocol-threshold", "2..4"]
    assert run([*command, "--json", "--chart", str(chart)]) == 1
    shown = capsys.readouterr()
    body = json.loads(shown.out)
    assert (body["runs"], body["conclusions"], len(body["totals"])) == (3, 3, 18)
    assert len(body["left_out"]) == 2
    assert "left out: changed.json" in shown.err
    assert "<svg" in chart.read_text()
    assert run(command) == 1
    assert "conclusions lost" in capsys.readouterr().out


def test_a_chart_that_cannot_be_drawn_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert run(["backtest", str(tmp_path), "--chart", "chart.gif"]) == 2
    assert "--chart: the file's name must end with .png or .svg" in capsys.readouterr().err
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    assert run(["backtest", str(tmp_path), "--chart", "chart.png"]) == 2
    assert "--chart needs the extra `charts`" in capsys.readouterr().err
