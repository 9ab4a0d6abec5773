"""Concurrent event streams over loopback: the service beside a bare route that streams a `create_agent` run.

Both answer the example's question with the offline rules and the same tool calls, in processes of their own, in
alternating rounds. Prints runs/s and the 95th percentile of a run's time, and the ratio of paired rounds. Fails when a run
of the service is lost, or ends in anything but `done`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.data import ROOT
from tests.http_service import QUESTION, process
from tests.stub_model_server import unused_port


async def one(client: httpx.AsyncClient, number: int) -> float:
    """Ask and read to the end; return the seconds it took."""
    begun, last = time.perf_counter(), ""
    body = {"Id": f"load-{number}", "Question": QUESTION}
    async with client.stream("POST", "/api/chat_stream", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            last = line.removeprefix("event: ") if line.startswith("event: ") else last
    if last != "done":
        raise SystemExit(f"a run ended with {last or 'nothing'}")
    return time.perf_counter() - begun


async def load(url: str, runs: int) -> tuple[float, float]:
    """Start all runs at once; return runs/s and the 95th percentile in seconds."""
    limits = httpx.Limits(max_connections=runs, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        begun = time.perf_counter()
        took = await asyncio.gather(*(one(client, number) for number in range(runs)))
        seconds = time.perf_counter() - begun
    return runs / seconds, sorted(took)[min(runs - 1, int(runs * 0.95))]


@contextlib.contextmanager
def bare() -> Iterator[str]:
    """Run the bare route; give its URL."""
    port = unused_port()
    with subprocess.Popen([sys.executable, "-m", "tests.bench.bare_route", str(port)], cwd=ROOT) as running:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            running.kill()


async def ready(url: str) -> None:
    """Wait until a service answers."""
    async with httpx.AsyncClient() as client, asyncio.timeout(60):
        while True:
            with contextlib.suppress(httpx.TransportError):
                await client.get(url)
                return
            await asyncio.sleep(0.1)


async def measure(runs: int, rounds: int) -> None:
    """Run the rounds and print what they came to."""
    ratios = []
    with (
        tempfile.TemporaryDirectory() as folder,
        bare() as other,
        process(Path(folder), SUPERBIZ_MAX_RUNS=str(runs)) as (_, url),
    ):
        for each in (url, other):
            await ready(each)
            await load(each, 2)
        for number in range(1, rounds + 1):
            own, least = await load(url, runs), await load(other, runs)
            ratios.append(own[0] / least[0])
            print(
                f"round {number}: service {own[0]:.1f} runs/s, p95 {own[1]:.1f} s; "
                f"bare route {least[0]:.1f} runs/s, p95 {least[1]:.1f} s; ratio {ratios[-1]:.2f}"
            )
    print(f"{runs} streams at once, {rounds} rounds, none lost; median ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    asyncio.run(measure(options.runs, options.rounds))
