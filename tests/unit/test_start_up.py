"""What a command loads: a check or a list must not wait for the graph, nor a graph for what its catalogue has not."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from service.cli.main import MADE_FOR_PEOPLE, explain
from tests.data import ROOT

PROGRAM = """
import json, sys
from service.cli.main import run

loaded = {"the command line": sorted(sys.modules)}
refused = run(["diagnose", "why?", "--at", "noon"])
assert refused == 2, refused
loaded["a refusal"] = sorted(sys.modules)
for command in (["runs"], ["doctor"], ["diagnose", "orders fail since 09:40, why?", "--language", "en"]):
    status = run(command)
    assert status == 0, (command, status)
    loaded[command[0]] = sorted(sys.modules)
sys.stderr.write(json.dumps(loaded))
"""
CATALOGUE = '[[topic]]\nname = "app"\nbackend = "files"\npath = "app.log"\n'
GRAPH = {"langgraph", "langchain_core", "langsmith", "requests"}
UNUSED = {"sqlglot", "rjieba", "snowballstemmer", "openai", "redis", "fastapi", "uvicorn"}
"""What neither of these commands nor this catalogue, of one log file, has any use for."""


@cache
def loaded() -> dict[str, set[str]]:
    """Modules after each command, one after the other in one process: from little to much."""
    with TemporaryDirectory() as folder:
        Path(folder, "superbiz.toml").write_text(CATALOGUE, "utf-8")
        Path(folder, "app.log").write_text("2026-03-12T09:41:00Z ERROR orders: no connection\n", "utf-8")
        env = {name: value for name, value in os.environ.items() if not name.startswith("SUPERBIZ_")}
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=folder,
            env={**env, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return {command: set(names) for command, names in json.loads(ended.stderr.splitlines()[-1]).items()}


@pytest.mark.parametrize(
    ("command", "without"),
    [
        ("the command line", GRAPH | UNUSED | {"pydantic", "sqlalchemy", "service.settings"}),
        ("a refusal", GRAPH | UNUSED | {"sqlalchemy", "service.home"}),
        ("runs", GRAPH | UNUSED | {"tools.logs.tool"}),
        ("doctor", GRAPH | UNUSED | {"httpx", "tools.rag.tool", "tools.logs.backend_loki"}),
        ("diagnose", UNUSED | {"tools.mysql.tool", "tools.logs.backend_loki", "tools.logs.backend_elasticsearch"}),
    ],
)
def test_a_command_loads_what_it_needs_alone(command: str, without: set[str]) -> None:
    assert loaded()[command] & without == set()


def test_what_is_left_out_is_what_a_diagnosis_has() -> None:
    """A list of names that nothing would ever load proves nothing."""
    assert loaded()["diagnose"] >= GRAPH | {"pydantic", "sqlalchemy", "service.settings", "tools.logs.tool"}
    for name in UNUSED:
        assert find_spec(name) is not None, name


@pytest.mark.parametrize("name", sorted(MADE_FOR_PEOPLE))
def test_an_error_made_for_people_is_told_whatever_class_it_is_of(name: str) -> None:
    module, _, kind = name.rpartition(".")
    made = type("Narrower", (getattr(importlib.import_module(module), kind),), {})
    assert explain(made("what was wrong")) == ("what was wrong", 2)
    assert explain(type(kind, (Exception,), {})("secret")) == (f"internal error ({kind})", 1)
