"""The curl examples of the documents, each as it stands, against a served process."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.data import ROOT
from tests.http_service import process

DOCUMENTS = ("README.md", "README.zh-CN.md", "docs/http.md")
ADDRESS = "http://127.0.0.1:9900"
RUN_ID = "6f1d…"
"""Stands in the documents for the id of a run."""


def commands() -> list[tuple[str, str]]:
    """Return (document, command) of every curl command in a block of shell, its continued lines joined."""
    found = []
    for document in DOCUMENTS:
        for block in re.findall(r"```(?:bash|sh)\n(.*?)```", (ROOT / document).read_text(), re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            found += [(document, line) for line in lines if line.startswith("curl ")]
    return found


def test_every_document_has_an_example() -> None:
    assert {document for document, _ in commands()} == set(DOCUMENTS)


def test_r131_r132_every_curl_example_works_as_it_stands(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    knowledge = tmp_path / "shop"
    shutil.copytree(ROOT / "examples" / "shop", knowledge)
    (tmp_path / "disk-full.md").write_text("# Disk full\n\nDelete old logs.\n")
    with process(tmp_path, SUPERBIZ_CATALOG=str(knowledge / "superbiz.toml")) as (_, url):
        run_id = RUN_ID
        for document, command in commands():
            line = command.replace(ADDRESS, url).replace(RUN_ID, run_id)
            assert url in line, (document, command)
            done = subprocess.run(
                ["bash", "-c", line + " --fail-with-body --silent --show-error --max-time 120"],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (document, command, done.stdout, done.stderr)
            if "/api/upload" in line:
                assert json.loads(done.stdout)["data"]["document_id"] == "runbooks/disk-full.md"
                continue
            events = re.findall(r"^event: (\w+)$", done.stdout, re.MULTILINE)
            assert events[-1] == "done", (document, command, events)
            assert ("result" in events, events[0] == "run_started") == (True, "Last-Event-ID" not in line)
            run_id = re.search(r"^id: ([^/]+)/", done.stdout, re.MULTILINE)[1]  # type: ignore[index]
