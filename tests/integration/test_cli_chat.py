"""`superbiz chat` at a real terminal (a pty) and through pipes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.cli.main import run
from tests.data import ROOT
from tests.scenes import conclusion, log_call, write_answers, write_scene

SCRIPT = [log_call("c1", "timeout"), conclusion("c1")]
SLOW = [log_call("c1", "timeout"), {"text": "too late", "seconds": 120}]
ROUTED = {"INTENT_ROUTER/1": {"text": '{"intent": "DIAGNOSIS"}', "usage": [20, 5]}}
OPERATORS = re.compile(r"state SUCCESS|stop reason|model calls|tokens|budget|threshold|without gain", re.IGNORECASE)
SECONDS = 60.0


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SUPERBIZ_", "PYTHON", "LC_"))}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
        "SUPERBIZ_CATALOG": str(write_scene(tmp_path)),
        "SUPERBIZ_HOME": str(tmp_path / "home"),
        "SUPERBIZ_MODEL": write_answers(tmp_path / "answers.json", SCRIPT, **ROUTED),
    }


Pipes = Callable[..., tuple[int, str, str]]


@pytest.fixture
def through_pipes(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Pipes:
    """Chat in this process with a stdin that is no terminal; gives status, stdout and stderr."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def ask(asked: str | bytes, *arguments: str) -> tuple[int, str, str]:
        data = asked.encode() if isinstance(asked, str) else asked
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
        capsys.readouterr()
        status = run(["chat", *arguments])
        return status, *capsys.readouterr()

    return ask


def runs(variables: dict[str, str]) -> list[tuple[str, str, str]]:
    """Query, session and internal state of the stored runs, oldest first."""
    with contextlib.closing(sqlite3.connect(Path(variables["SUPERBIZ_HOME"]) / "superbiz.db")) as database:
        return database.execute(
            "SELECT query, session_id, internal_state FROM diagnosis_run ORDER BY created_at"
        ).fetchall()


class Terminal:
    """A chat at the other end of a pty."""

    def __init__(self, variables: dict[str, str], *arguments: str) -> None:
        self._end, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "service", "chat", *arguments],
            env=variables,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=_own_terminal,
        )
        os.close(theirs)
        self.seen = ""
        self._raw = b""

    def expect(self, text: str) -> str:
        """Read until `text` appears after what was expected before; return what came with it."""
        deadline = time.monotonic() + SECONDS
        while text not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen!r}"
            if not select.select([self._end], [], [], 0.2)[0]:
                continue
            try:
                self._raw += os.read(self._end, 65_536)
            except OSError:  # the other end is closed
                assert text in self.seen, f"no {text!r} in {self.seen!r}"
            # A character may arrive in two parts.
            whole = self._raw.decode("utf-8", "ignore")
            self._raw = self._raw[len(whole.encode()) :]
            self.seen += whole
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def press(self, key: int) -> None:
        """Type a control character: the terminal makes the signal, as from a keyboard."""
        os.write(self._end, termios.tcgetattr(self._end)[6][key])

    def leave(self) -> int:
        status = self.process.wait(SECONDS)
        assert "Traceback" not in self.seen
        return status

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)


def _own_terminal() -> None:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)
    os.setsid()
    import fcntl

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(variables: dict[str, str]) -> Iterator[Any]:
    opened: list[Terminal] = []

    def open_terminal(*arguments: str) -> Terminal:
        opened.append(Terminal(variables, *arguments))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()


PROMPT = "superbiz> "


def test_a_question_at_a_terminal_is_answered_with_its_stages(terminal: Any, variables: dict[str, str]) -> None:
    chat = terminal()
    chat.expect("会话: ")
    chat.expect(PROMPT)
    chat.type("订单服务为什么失败 🔥错")
    chat.press(termios.VERASE)  # a wide character goes as one
    chat.type("？\r")
    shown = chat.expect(PROMPT)
    for text in ("已收到问题", "已查询", "完成", "order-service cannot reach redis-01.", "[query_logs c1]"):
        assert text in shown
        shown = shown[shown.index(text) :]
    assert not OPERATORS.search(shown)
    chat.press(termios.VEOF)
    assert chat.leave() == 0
    assert [query for query, *_ in runs(variables)] == ["订单服务为什么失败 🔥？"]


def test_r119_ctrl_c_cancels_the_run_says_so_and_returns_to_the_prompt(
    terminal: Any, variables: dict[str, str], tmp_path: Path
) -> None:
    variables["SUPERBIZ_MODEL"] = write_answers(tmp_path / "answers.json", SLOW, **ROUTED)
    chat = terminal("--language", "en")
    chat.expect(PROMPT)
    chat.type("why?\r")
    chat.expect("query made")
    chat.press(termios.VINTR)
    chat.press(termios.VINTR)
    assert "This run was cancelled." in chat.expect(PROMPT)
    assert [state for *_, state in runs(variables)] == ["CANCELLED"]
    chat.type("/new\r")
    chat.expect("Session: ")
    chat.expect(PROMPT)
    chat.type("/exit\r")
    assert chat.leave() == 0


def test_a_session_goes_on_and_new_starts_another(through_pipes: Pipes, variables: dict[str, str]) -> None:
    status, out, err = through_pipes("why?\n\n/new\nwhy again?\n/exit\nnever\n", "--session", "mine")
    assert (status, err) == (0, "")
    assert out.count("order-service cannot reach redis-01.") == 2
    assert "never" not in out
    (first, session, _), (second, new, _) = runs(variables)
    assert (first, session, second) == ("why?", "mine", "why again?")
    assert new not in (None, "mine")


def test_json_is_one_object_a_question(through_pipes: Pipes) -> None:
    status, out, err = through_pipes("为什么?\n" + "x" * 4001 + "\nwhy?", "--json", "--session", "s")
    assert status == 1
    first, refused, last = (json.loads(line) for line in out.splitlines())
    assert first["session_id"] == "s"
    assert first["question"] == "为什么?"
    assert first["published_result"]["conclusion"] == "order-service cannot reach redis-01."
    assert refused["error"]["message"] == "query: at most 4000 characters are allowed"
    assert last["release_outcome"] == "CONCLUSION"
    assert err == "superbiz: query: at most 4000 characters are allowed\n"
    assert "operator" not in first
    assert not OPERATORS.search(out)


def test_r55_operators_data_comes_only_when_asked_for(through_pipes: Pipes) -> None:
    _, out, _ = through_pipes("why?\n")
    assert not OPERATORS.search(out)
    _, out, _ = through_pipes("why?\n", "--verbose")
    assert "state SUCCESS" in out
    assert "start_run" in out
    _, out, _ = through_pipes("why?\n", "--verbose", "--json")
    assert json.loads(out)["operator"]["internal_state"] == "SUCCESS"


def test_input_that_is_no_text_is_asked_as_it_can_be_shown(through_pipes: Pipes) -> None:
    status, out, _ = through_pipes(b"why \xff\xfe?\n", "--json")
    assert status == 0
    assert json.loads(out)["question"] == "why \ufffd\ufffd?"


def test_no_questions_are_no_failure(through_pipes: Pipes) -> None:
    assert through_pipes("") == (0, "", "")
    status, out, err = through_pipes("/nonsense\n", "--language", "en")
    assert (status, out) == (0, "")
    assert err == "superbiz: Commands: /new, /exit\n"


def test_what_is_wrong_with_the_command_is_told_before_anything_is_opened(through_pipes: Pipes, tmp_path: Path) -> None:
    status, out, err = through_pipes("why?\n", "--at", "noon")
    assert (status, out) == (2, "")
    assert err.startswith("superbiz: at: must be")
    assert through_pipes("why?\n", "--session", "x" * 129)[0] == 2
    assert not (tmp_path / "home").exists()


def test_a_stopped_service_ends_the_run(variables: dict[str, str], tmp_path: Path) -> None:
    variables["SUPERBIZ_MODEL"] = write_answers(tmp_path / "answers.json", SLOW, **ROUTED)
    process = subprocess.Popen(
        [sys.executable, "-m", "service", "chat", "--language", "en"],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_defaults,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"why?\nagain?\n")
    process.stdin.flush()
    for line in process.stdout:
        if b"query made" in line:
            break
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert b"This run was cancelled." in out
    assert err.decode() == "superbiz: cancelling…\nsuperbiz: cancelled\n"
    assert [state for *_, state in runs(variables)] == ["CANCELLED"]


def _defaults() -> None:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)
