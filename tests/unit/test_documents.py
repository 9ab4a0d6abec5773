"""The documentation says what the code does: picture, output, settings, codes, places, both languages (R152, R155)."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from service.cli.main import app
from tests.data import ROOT
from tests.documents import GENERATED, READMES, between

ENUMS_ELSEWHERE = {"GateRule", "Purpose"}
"""GateRule: docs/sql-gate.md, compared by its own test. Purpose never leaves its module."""

PLACE = re.compile(r"`((?:graph|nodes|tools|release|service|tests|docs|examples)/[\w./*-]*)`")


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def documents() -> list[str]:
    return [*READMES, *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


@pytest.mark.parametrize(("file", "part", "make"), GENERATED)
def test_generated_parts_are_up_to_date(file: str, part: str, make: object) -> None:
    assert callable(make)
    assert between(read(file), part) == make(), "run python -m tests.documents"


def enums() -> Iterator[type[StrEnum]]:
    for name in ("graph", "nodes", "release", "service", "tools"):
        package = importlib.import_module(name)
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            if found.name.endswith("__main__"):
                continue
            module = importlib.import_module(found.name)
            for value in vars(module).values():
                if isinstance(value, type) and issubclass(value, StrEnum) and value.__module__ == found.name:
                    yield value


def glossary() -> dict[str, list[str]]:
    parts = re.split(r"^## (\w+)$", read("docs/glossary.md"), flags=re.MULTILINE)
    bodies = zip(parts[1::2], parts[2::2], strict=True)
    return {name: re.findall(r"^\| `([^`]+)` \| \S", body, re.MULTILINE) for name, body in bodies}


def test_r152_the_glossary_has_every_code_and_no_other() -> None:
    in_code = {enum.__name__: [member.value for member in enum] for enum in enums()}
    assert set(in_code) >= ENUMS_ELSEWHERE
    written = glossary()
    assert set(written) == set(in_code) - ENUMS_ELSEWHERE
    for name, values in written.items():
        assert sorted(values) == sorted(in_code[name]), name
        assert len(set(values)) == len(values), name


def test_every_place_that_documents_name_exists() -> None:
    seen = 0
    for name in documents():
        for place in PLACE.findall(read(name)):
            assert list(ROOT.glob(place.rstrip("/"))), f"{name}: {place}"
            seen += 1
    assert seen > 60


def test_every_link_between_documents_leads_somewhere() -> None:
    for name in [*documents(), "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", read(name)):
            assert (ROOT / name).parent.joinpath(target).exists(), f"{name}: {target}"


def test_r155_every_decided_value_stands_where_decisions_say() -> None:
    rows = [line.split("|")[1:-1] for line in read("docs/decisions.md").splitlines() if line.startswith("| R")]
    rows = [row for row in rows if len(row) == 4 and "where" not in row[2]]
    assert len(rows) > 35
    for requirement, _, where, _ in rows:
        names = [each for each in re.findall(r"`([^`]+)`", where) if "/" not in each]
        files = PLACE.findall(where)
        assert files, requirement
        for file in files:
            text = read(file)
            missing = [each for each in names if not re.search(rf"\b{re.escape(each)}\b", text)]
            assert not missing, f"{requirement}: {file} has no {missing}"


def commands(name: str) -> list[str]:
    """Commands in code blocks, without comments and questions."""
    lines = "\n".join(re.findall(r"```bash\n(.*?)```", read(name), re.DOTALL)).splitlines()
    return [re.sub(r'\s*#.*|"[^"]*"| --language en| SUPERBIZ_LANGUAGE=en', "", line).strip() for line in lines if line]


def test_both_readmes_say_the_same() -> None:
    english, chinese = READMES
    assert commands(english) == commands(chinese)
    assert len(commands(english)) > 12
    for pattern in (r"^(#+) ", r"^\| (`[^`]+`|\[[^\]]+\])", r"\]\(([^)]+)\)", r"^- \*\*"):
        counts = [len(re.findall(pattern, read(name), re.MULTILINE)) for name in READMES]
        # Each links the other; nothing else differs.
        assert counts[0] == counts[1], (pattern, counts)
    assert between(read(english), "graph") == between(read(chinese), "graph")
    assert re.findall(r"^(#+) ", read(english), re.MULTILINE) == re.findall(r"^(#+) ", read(chinese), re.MULTILINE)


def test_readmes_list_every_command() -> None:
    known = {str(command.name) for command in app.registered_commands}
    for name in READMES:
        assert set(re.findall(r"^\| `superbiz (\w+)", read(name), re.MULTILINE)) == known, name


def test_makefile_has_every_target_that_readmes_name() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", read("Makefile"), re.MULTILINE))
    for name in READMES:
        named = set(re.findall(r"^make ([a-z0-9]+)", read(name), re.MULTILINE))
        assert len(named) >= 7
        assert named <= targets, name


@pytest.mark.parametrize(("readme", "language"), [("README.md", "en"), ("README.zh-CN.md", "zh")])
def test_the_output_in_the_readme_is_what_the_example_prints(readme: str, language: str, tmp_path: Path) -> None:
    question = next(
        line.split("?=", 1)[1].strip()
        for line in read("Makefile").split("ifeq")[1].splitlines()
        if line.startswith("QUESTION") and (line.isascii() == (language == "en"))
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SUPERBIZ_", "OPENAI_"))}
    env = kept | {
        "SUPERBIZ_CATALOG": str(ROOT / "examples" / "shop" / "superbiz.toml"),
        "SUPERBIZ_HOME": str(tmp_path / "home"),
        "SUPERBIZ_LANGUAGE": language,
        "PYTHONPATH": str(ROOT),
        "PYTHONIOENCODING": "utf-8",
    }
    command = [sys.executable, "-W", "error", "-m", "service", "diagnose", question]
    ran = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", timeout=60)
    assert ran.returncode == 0, ran.stderr
    printed = ran.stdout.splitlines()
    shown = between(read(readme), "output").splitlines()[1:-1]
    assert len(shown) > 20
    place = 0
    for line in shown:
        if line in ("…", ""):
            continue
        start = line.removesuffix("…").rstrip()
        while place < len(printed) and not (
            printed[place].rstrip() == start or (line.endswith("…") and printed[place].startswith(start))
        ):
            place += 1
        assert place < len(printed), f"not printed, or not in this order: {line}"
        place += 1
