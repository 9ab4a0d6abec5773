"""What the release package may import (R6), and that it has one place of decision (R5)."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.data import ROOT

FILES = sorted((ROOT / "release").glob("*.py"))
PURE_HELPERS = {"tools.masking", "tools.evidence_tool", "tools.placeholders"}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_r6_release_imports_contracts_and_pure_helpers_only(path: Path) -> None:
    for module in imports(path):
        top = module.split(".")[0]
        if top == "release":
            continue
        allowed = top in sys.stdlib_module_names or top == "pydantic"
        assert allowed or module.endswith(".contract") or module in PURE_HELPERS, module


def test_r6_the_contract_imports_other_contracts_only() -> None:
    for module in imports(ROOT / "release" / "contract.py"):
        top = module.split(".")[0]
        assert top in sys.stdlib_module_names or top == "pydantic" or module == "tools.contract", module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_release_is_pure(path: Path) -> None:
    names = {node.id for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Name)}
    assert not names & {"open", "print", "input"}
    assert not any(isinstance(node, ast.AsyncFunctionDef) for node in ast.walk(ast.parse(path.read_text())))
    assert not imports(path) & {"os", "time", "datetime", "random", "uuid", "pathlib", "socket", "asyncio"}
