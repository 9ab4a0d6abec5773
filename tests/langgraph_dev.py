"""Runs `langgraph dev` over this repository as a subprocess: no network, no account, killed reliably."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.data import ROOT

START_SECONDS = 60.0
_QUIET = {
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGSMITH_LANGGRAPH_API_VARIANT": "local_dev",
    "NO_COLOR": "1",
}
_SECRETS = ("LANGSMITH_API_KEY", "LANGCHAIN_API_KEY", "LANGGRAPH_CLOUD_LICENSE_KEY")


@contextmanager
def langgraph_dev(folder: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """Start the server with `folder` as its working directory; give its URL; kill it and its children at the end."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    env = {name: value for name, value in os.environ.items() if name not in _SECRETS and "SUPERBIZ" not in name}
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
    command += ["--config", str(_config(folder)), "--port", str(port)]
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**env, **_QUIET, **variables},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait(url, process, log)
            yield url
        finally:
            _kill(process)


def _config(folder: Path) -> Path:
    """Copy the repository's configuration with absolute paths, so that the server keeps its own files in `folder`."""
    config = json.loads((ROOT / "langgraph.json").read_text())
    config["dependencies"] = [str(ROOT)]
    config["graphs"] = {name: str(ROOT / path) for name, path in config["graphs"].items()}
    config["auth"]["path"] = str(ROOT / config["auth"]["path"])
    config["http"]["app"] = str(ROOT / config["http"]["app"])
    copied = folder / "langgraph.json"
    copied.write_text(json.dumps(config))
    return copied


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{url}/ok", timeout=2).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.2)
    raise AssertionError(f"the server did not start:\n{log.read_text(errors='replace')[-3000:]}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
            process.wait(timeout=10)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
