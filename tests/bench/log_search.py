"""Searching one large log file beside `rg -c -i`, in alternating rounds; our queries run in a process of their own.

The file repeats lines of real samples (SUPERBIZ_DATA; made-up ones where it is absent) over 30 days. Asked are the last 30
minutes for a common word and the whole file for a rare one. Both are held against ripgrep's time for the rare word over the
whole file, ripgrep's fastest. Without ripgrep, `grep -c -i` is shown beside and only memory is bounded.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path

from tests.data import ROOT
from tools.catalog import TopicEntry
from tools.logs.backend import Lookback, ParsedQuery
from tools.logs.backend_files import FilesBackend

MAX_RECENT, MAX_WHOLE, MAX_ANONYMOUS_MB = 1 / 3, 4.0, 150.0
RECENT_FROM_BYTES = 900_000_000
"""The last minutes cost the same in a file of any size, ripgrep's time grows with it: a ratio says something from here."""
DAYS = 30
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
RARE, RARE_LINES = "brownout-7f3a", 5
QUERIES = {"recent": (30, "exception"), "whole": ((DAYS + 1) * 24 * 60, RARE)}
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (.*)")
_MADE_UP = [
    f"{level} [worker-{n % 7}] shop.{name}: {said} {n * 37} ms"
    for n in range(500)
    for level, name, said in (
        ("INFO", "OrderService", "stored order after"),
        ("INFO", "PaymentClient", "POST /v1/payments answered 200 in"),
        ("WARN", "ConnectionPool", "waited for a connection"),
        *((("ERROR", "CartService", "java.net.ConnectException: refused after"),) if n % 10 == 0 else ()),
    )
]


def samples() -> list[str]:
    """Log lines without their timestamps."""
    folder = Path(os.environ.get("SUPERBIZ_DATA", ROOT.parent / "shared" / "data")) / "logs"
    paths = [folder / f"{name}_2k.log" for name in ("Hadoop", "Zookeeper")]
    texts = [path.read_text("utf-8", "replace") for path in paths if path.is_file()]
    found = [match[1] for text in texts for line in text.splitlines() if (match := _STAMP.match(line))]
    return found or _MADE_UP


def write_log(path: Path, size: int) -> None:
    """Write about `size` bytes that ascend in time."""
    tails = samples()
    lines = int(size / (24 + sum(len(tail.encode()) + 1 for tail in tails) / len(tails)))
    step = DAYS * 86_400_000 / lines
    rare = {lines * (2 * n + 1) // (2 * RARE_LINES) for n in range(RARE_LINES)}

    def stamped() -> Iterator[str]:
        minute, prefix = -1, ""
        for number, tail in zip(range(lines), cycle(tails), strict=False):
            now = int(number * step)
            if now // 60_000 != minute:
                minute = now // 60_000
                prefix = (BEGIN + timedelta(minutes=minute)).strftime("%Y-%m-%d %H:%M:")
            more = f" {RARE}" if number in rare else ""
            yield f"{prefix}{now % 60_000 // 1000:02d},{now % 1000:03d} {tail}{more}\n"

    with path.open("w", encoding="utf-8", buffering=4 * 1024 * 1024) as file:
        file.writelines(stamped())


def anonymous_mb() -> float:
    """Anonymous resident memory of this process in MB (what no file backs)."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(re.findall(r"RssAnon:\s+(\d+)", status)[0]) / 1024


def serve(path: Path) -> None:
    """Answer names of queries from stdin: seconds, matches, and the greatest anonymous memory so far in MB."""
    peak = anonymous_mb()

    def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, anonymous_mb())
            time.sleep(0.005)

    threading.Thread(target=watch, daemon=True).start()
    backend, topic = FilesBackend(path.parent), TopicEntry(name="large", path=path.name)
    for name in sys.stdin:
        minutes, text = QUERIES[name.strip()]
        start = time.perf_counter()
        asked = backend.query(topic, ParsedQuery.of(text), Lookback(minutes, None, time.time()), 20, 300.0)
        total = asyncio.run(asked).total
        print(time.perf_counter() - start, total, peak, flush=True)


class Ours:
    """Our search in a child process."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-m", "tests.bench.log_search", "--serve", str(path)]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, name: str) -> tuple[float, int, float]:
        """Return seconds, matches, peak of anonymous memory in MB."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(name + "\n")
        self.child.stdin.flush()
        seconds, total, peak = self.child.stdout.readline().split()
        return float(seconds), int(total), float(peak)

    def close(self) -> None:
        """End the child."""
        assert self.child.stdin is not None
        self.child.stdin.close()
        self.child.wait()


def counted(tool: str, path: Path) -> tuple[float, int]:
    """Return the seconds `rg` or `grep` takes for the rare word, and its count."""
    start = time.perf_counter()
    ran = subprocess.run([tool, "-c", "-i", RARE, str(path)], capture_output=True, text=True, check=True)
    return time.perf_counter() - start, int(ran.stdout)


def ratio(ours: list[float], others: list[float]) -> float:
    """Return how many times longer ours took: of the paired median and the best rounds, what a busy machine disturbs less."""
    paired = statistics.median(mine / other for mine, other in zip(ours, others, strict=True))
    return min(paired, min(ours) / min(others))


def compare(path: Path, rounds: int) -> list[str]:
    """Run the rounds, print the table and return the limits that are broken."""
    tool = "rg" if shutil.which("rg") else "grep"
    ours = Ours(path)
    counted(tool, path), ours.ask("whole"), ours.ask("recent")  # the file into the page cache, the modules loaded
    times: list[tuple[float, float, float]] = []
    peak = 0.0
    for _ in range(rounds):
        other, count = counted(tool, path)
        recent, found, _ = ours.ask("recent")
        whole, total, peak = ours.ask("whole")
        assert total == count == RARE_LINES
        assert found > 0
        times.append((other, recent, whole))
    ours.close()
    other, recent, whole = (statistics.median(column) for column in zip(*times, strict=True))
    shares = [ratio([row[at] for row in times], [row[0] for row in times]) for at in (1, 2)]
    print(f"log search in {path.stat().st_size / 1e6:.0f} MB, median of {rounds} alternating rounds:")
    print(f"  {tool} -c -i, rare word, whole file {other * 1e3:.0f} ms")
    large = path.stat().st_size >= RECENT_FROM_BYTES
    bound = f"at most {MAX_RECENT:.2f}" if large else f"at most {MAX_RECENT:.2f} in 1 GB, --size 1000"
    print(f"  last 30 minutes {recent * 1e3:.0f} ms, ratio {shares[0]:.2f} ({bound})")
    print(f"  rare word, whole file {whole * 1e3:.0f} ms, ratio {shares[1]:.2f} (at most {MAX_WHOLE:.0f})")
    print(f"  anonymous memory {peak:.0f} MB (at most {MAX_ANONYMOUS_MB:.0f})")
    broken = [f"memory {peak:.0f} MB"] if peak > MAX_ANONYMOUS_MB else []
    if tool == "grep":
        print("  ripgrep is not installed: its limits were not checked")
        return broken
    limits = [("whole file", shares[1], MAX_WHOLE), *([("last 30 minutes", shares[0], MAX_RECENT)] if large else [])]
    return broken + [f"{name} {share:.2f} times rg" for name, share, limit in limits if share > limit]


def main() -> None:
    """Print the table; exit 1 when a limit is broken."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=200, help="megabytes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.log"
        write_log(path, options.size * 1_000_000)
        broken = compare(path, options.rounds)
    if broken:
        raise SystemExit("log search breaks its limits: " + ", ".join(broken))


if __name__ == "__main__":
    main()
