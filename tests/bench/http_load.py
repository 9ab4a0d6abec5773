"""Concurrent event streams over loopback: the service beside a bare route that streams a `create_agent` run.

Both answer the example's question with the offline rules and the same tool calls, in processes of their own, in
alternating rounds. Fails unless every run of the service ends, with the events and the outcome of a run that is alone.
Prints runs/s, the 95th percentile of a run's time, and the ratio of paired rounds.
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
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.data import ROOT
from tests.http_service import QUESTION, process, watching
from tests.stub_model_server import unused_port


@dataclass(frozen=True)
class Told:
    """What one stream told: its events' names and stages in order, and how the run ended."""

    events: tuple[str, ...]
    outcome: str


async def one(client: httpx.AsyncClient, name: str) -> tuple[float, Told]:
    """Ask and read to the end; return the seconds it took and what was told."""
    begun, events, outcome = time.perf_counter(), list[str](), ""
    async with watching(client, "POST", "/api/chat_stream", json={"Id": name, "Question": QUESTION}) as stream:
        async for event in stream.events():
            data = event.data["data"]
            events.append(data["stage"] if event.event == "status" else event.event)
            outcome = data["release_outcome"] if event.event == "result" else outcome
    return time.perf_counter() - begun, Told(tuple(events), outcome)


async def load(url: str, runs: int, expected: Told | None = None) -> tuple[float, float, Told]:
    """Start all runs at once; return runs/s, the 95th percentile in seconds, and what each of them told.

    Raises SystemExit when one is lost, did not end, or told something else than `expected`.
    """
    limits = httpx.Limits(max_connections=runs, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=3600, limits=limits) as client:
        begun, batch = time.perf_counter(), uuid.uuid4().hex
        done = await asyncio.gather(*(one(client, f"load-{batch}-{number}") for number in range(runs)))
        seconds = time.perf_counter() - begun
    told = Counter(each for _, each in done)
    expected = expected or done[0][1]
    if set(told) != {expected} or expected.events[-1] != "done":
        raise SystemExit(f"expected {expected}, but {told}")
    took = sorted(each for each, _ in done)
    return runs / seconds, took[min(runs - 1, int(runs * 0.95))], expected


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
        alone = []
        for each in (url, other):
            await ready(each)
            alone.append((await load(each, 1))[2])
        for number in range(1, rounds + 1):
            own, least = await load(url, runs, alone[0]), await load(other, runs, alone[1])
            ratios.append(own[0] / least[0])
            print(
                f"round {number}: service {own[0]:.1f} runs/s, p95 {own[1]:.1f} s; "
                f"bare route {least[0]:.1f} runs/s, p95 {least[1]:.1f} s; ratio {ratios[-1]:.2f}",
                flush=True,
            )
    ratio = statistics.median(ratios)
    print(f"{runs} streams at once, {rounds} rounds, each ended as one alone, none lost; median ratio {ratio:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    asyncio.run(measure(options.runs, options.rounds))
