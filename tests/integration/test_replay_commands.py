"""`export`, `import`, `replay` and `backtest` as a user runs them, and runs of the HTTP service replayed (R67, R154)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.cli.main import run
from service.home import open_stores
from service.replay.bundle import Bundle
from service.replay.export import export_run
from service.replay.text import read_bundle, write_bundle
from service.settings import Settings
from tests.http_service import QUESTION, ask_stream, serving
from tests.replays import assert_replays
from tests.scenes import conclusion, log_call, write_answers, write_scene

TALK = "你能做什么？"
SCRIPT = [
    log_call("c1", "timeout"),
    log_call("c2", "nothing-such", ("c1", "GAINED")),
    log_call("c3", "pool"),
    conclusion("c1", "c3"),
]


class Commands:
    """The command line over the home folder in hand."""

    def __init__(self, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
        self._captured = capsysbinary
        self._environment = monkeypatch

    def at(self, home: Path) -> None:
        self._environment.setenv("SUPERBIZ_HOME", str(home))

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Return what the command said: on stdout, or on stderr where it fails without a word there."""
        self._captured.readouterr()
        status = run(arguments)
        out, err = (each.decode() for each in self._captured.readouterr())
        assert status == code, err
        assert "Traceback" not in out + err
        return out or err

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        return dict(json.loads(self(*arguments, "--json", code=code)))


@pytest.fixture
def superbiz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Commands:
    for name in ("DATABASE_URL", "REDIS_URL", "API_KEY", "NO_GAIN_THRESHOLD"):
        monkeypatch.delenv(f"SUPERBIZ_{name}", raising=False)
    monkeypatch.setenv("SUPERBIZ_CATALOG", str(write_scene(tmp_path)))
    monkeypatch.setenv("SUPERBIZ_MODEL", write_answers(tmp_path / "answers.json", SCRIPT))
    commands = Commands(capsysbinary, monkeypatch)
    commands.at(tmp_path / "home")
    return commands


def with_other(bundle: Bundle, kind: str, **fields: Any) -> str:
    """The text of a valid bundle that differs in the first entry of a kind."""
    place = next(number for number, each in enumerate(bundle.entries) if each.kind == kind)
    entries = list(bundle.entries)
    entries[place] = replace(entries[place], payload={**entries[place].payload, **fields})
    return write_bundle(Bundle.of(bundle.run_id, entries))


def test_r67_r154_a_run_goes_to_another_machine_as_a_file_and_is_replayed_there(
    superbiz: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    superbiz("diagnose", "why do orders fail?", "--language", "en")
    file = tmp_path / "runs" / "a.json"
    file.parent.mkdir()
    superbiz("export", "last", "-o", str(file))
    assert superbiz("export", "last") == file.read_text("utf-8")
    bundle = read_bundle(file.read_bytes())
    assert superbiz("replay", "last").startswith("identical: ")

    superbiz.at(tmp_path / "elsewhere")
    for name in ("CATALOG", "MODEL"):  # neither is needed there
        monkeypatch.delenv(f"SUPERBIZ_{name}")
    assert superbiz("import", str(file)) == f"imported run {bundle.run_id}\n"
    assert superbiz("import", str(file)) == f"run {bundle.run_id} is here already\n"
    assert superbiz("export", bundle.run_id[:8]) == file.read_text("utf-8")
    found = superbiz.json("replay", "last")
    assert (found["identical"], found["differing_entries"], found["steps"]) == (True, 0, len(bundle.path))
    assert superbiz.json("show", "last")["run_id"] == bundle.run_id

    other = tmp_path / "other.json"
    other.write_text(with_other(bundle, "run", query="another question?"), encoding="utf-8")
    assert "exists here with other content" in superbiz("import", str(other), code=2)
    assert superbiz("export", "last") == file.read_text("utf-8")


def test_r154_a_replay_that_differs_or_cannot_be_read_fails_and_says_where(superbiz: Commands, tmp_path: Path) -> None:
    superbiz("diagnose", "why do orders fail?", "--language", "en")
    bundle = read_bundle(superbiz("export", "last").encode())
    file = tmp_path / "a.json"
    file.write_text(with_other(bundle, "step", step="Something else."), encoding="utf-8")
    assert superbiz("replay", str(file), code=1).startswith("the replay differs at step 1 (start_run)")
    assert superbiz.json("replay", str(file), code=1)["differing_entries"] == 1
    file.write_text(write_bundle(bundle).replace("timeout", "timeoux", 1), encoding="utf-8")
    assert "entry " in superbiz("replay", str(file), code=2)
    assert "No such file" in superbiz("import", str(tmp_path / "missing.json"), code=2)
    assert "No such file" in superbiz("export", "last", "-o", str(tmp_path / "no" / "a.json"), code=2)
    assert "must be 1 to 50" in superbiz("replay", "last", "--no-gain-threshold", "0", code=2)


def test_r154_one_run_and_many_are_asked_the_same(superbiz: Commands, tmp_path: Path) -> None:
    superbiz("diagnose", "why do orders fail?", "--language", "en")
    file = tmp_path / "a.json"
    superbiz("export", "last", "-o", str(file))
    alone = superbiz.json("replay", "last", "--no-gain-threshold", "1")
    (found,) = alone["what_if"]
    assert (found["no_gain"], found["turn"], found["stop_reason"]) == (1, 2, "INFORMATION_SATURATED")
    assert (alone["calls"], found["calls_saved"], found["cited_lost"], found["conclusion_lost"]) == (3, 1, ["c3"], True)
    many = superbiz.json("backtest", str(file), "--no-gain-threshold", "1")
    assert many["by_run"] == [alone]
    said = superbiz("replay", "last", "--no-gain-threshold", "1")
    assert said.startswith(f"stops at step {found['stopped_at']} (model turn 2): INFORMATION_SATURATED\n")
    assert said.endswith("the published conclusion would be lost\n")
    assert superbiz("replay", "last", "--protocol-threshold", "9").startswith("does not stop within the record\n")


@pytest.mark.parametrize("question", [QUESTION, TALK])
async def test_r67_r154_a_run_of_the_service_is_exported_and_replayed_identically(
    tmp_path: Path, question: str
) -> None:
    async with serving(tmp_path) as served, served.client() as client:
        events = await ask_stream(client, question, body={"Id": "s-1"})
    run_id = events[0].data["data"]["run_id"]
    async with open_stores(Settings(home=tmp_path / "home")) as (runs, journal):
        record = await runs.get(run_id)
        assert record is not None
        bundle = await export_run(record, journal)
    assert bundle.run.query == question
    assert "0001:start_run" in bundle.path
    await assert_replays(read_bundle(write_bundle(bundle).encode()))
