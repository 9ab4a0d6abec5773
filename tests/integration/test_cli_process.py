"""The command line as a process: no terminal, any encoding, Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graph.contract import RunState
from nodes.ports import RunRecord
from service.home import open_stores
from service.settings import Settings
from tests.data import ROOT
from tests.scenes import conclusion, log_call, write_answers, write_scene

SCRIPT = [log_call("c1", "timeout"), conclusion("c1")]


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SUPERBIZ_", "PYTHON", "LC_"))}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "SUPERBIZ_CATALOG": str(write_scene(tmp_path)),
        "SUPERBIZ_HOME": str(tmp_path / "home"),
        "SUPERBIZ_MODEL": write_answers(tmp_path / "answers.json", SCRIPT),
    }


def start(variables: dict[str, str], *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "service", *arguments],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        preexec_fn=_as_from_a_terminal,
        **options,
    )


def _as_from_a_terminal() -> None:
    # A test run in the background inherits ignored signals; a person's shell does not.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    assert b"Traceback" not in err
    return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")


def test_diagnose_into_a_pipe(variables: dict[str, str], tmp_path: Path) -> None:
    status, out, err = finish(start(variables, "diagnose", "订单服务为什么失败 🔥?"))
    assert (status, err) == (0, "")
    assert "订单服务为什么失败 🔥?" in out
    assert "\x1b" not in out
    assert "start_run" in out
    modes = {path.name: path.stat().st_mode & 0o077 for path in (tmp_path / "home").rglob("*")}
    assert modes
    assert not any(modes.values())


def test_an_ascii_only_terminal_gets_marks_and_json_gets_escapes(variables: dict[str, str]) -> None:
    variables |= {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    status, out, _ = finish(start(variables, "diagnose", "why?"))
    assert status == 0
    assert "??" in out
    status, out, _ = finish(start(variables, "show", "last", "--json"))
    assert status == 0
    assert json.loads(out)["query"] == "why?"


def last_run(folder: Path) -> RunRecord:
    """What the only run left behind; read in this process, since another start would prove nothing more."""

    async def read() -> RunRecord:
        async with open_stores(Settings(home=folder / "home")) as (store, _):
            (record,) = await store.runs(2)
        return record

    return asyncio.run(read())


@pytest.mark.parametrize(
    "stop", [signal.SIGINT, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGTERM, signal.SIGHUP))]
)
def test_ctrl_c_a_stopped_service_or_a_closed_terminal_cancels_the_run_and_says_so(
    variables: dict[str, str], tmp_path: Path, stop: signal.Signals
) -> None:
    slow = [log_call("c1", "timeout"), {"text": "too late", "seconds": 120}]
    variables["SUPERBIZ_MODEL"] = write_answers(tmp_path / "answers.json", slow)
    process = start(variables, "diagnose", "why?", start_new_session=True)
    assert process.stdout is not None
    for line in process.stdout:
        if b"project_observation" in line:
            break
    process.send_signal(stop)
    status, _, err = finish(process)
    assert (status, err) == (130, "superbiz: cancelled\n")
    record = last_run(tmp_path)
    assert (record.internal_state, record.error_code) == (RunState.CANCELLED, "CANCELLED")


def test_a_reader_that_goes_away_is_no_crash(variables: dict[str, str]) -> None:
    process = start(variables, "diagnose", "why?")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) in (0, 1)
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err


def test_usage_errors_leave_stdout_alone(variables: dict[str, str]) -> None:
    status, out, err = finish(start(variables, "diagnose", "why?", "--at", "noon"))
    assert (status, out) == (2, "")
    assert err.startswith("superbiz: at: must be")


def test_a_hangup_that_was_ignored_from_outside_stays_ignored(variables: dict[str, str]) -> None:
    command = ["nohup", sys.executable, "-W", "error", "-m", "service", "diagnose", "why?"]
    process = subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    status, _, _ = finish(process)
    assert status == 0


def test_a_reader_that_goes_away_loses_no_run(variables: dict[str, str], tmp_path: Path) -> None:
    process = start(variables, "diagnose", "why?")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)
    assert last_run(tmp_path).internal_state is RunState.SUCCESS


def test_a_full_disk_behind_stdout_is_no_traceback(variables: dict[str, str]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-W", "error", "-m", "service", "diagnose", "why?", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=variables, cwd=ROOT, check=False)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
