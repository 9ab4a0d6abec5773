"""Bytes in the checkpoint store after 10 to 80 tool calls with 2 kB observations, beside `create_agent`'s default."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from service.checkpoints import CHECKPOINT_FILE, open_checkpoints
from service.settings import Settings
from tests.bench.loop_cost import BUDGET, prebuilt, scripted
from tests.fakes import ProbeTool
from tests.loop import make_loop

CALLS = (10, 20, 40, 80)
SIZE = 2000


def stored_bytes(home: Path) -> int:
    """Payload bytes of all checkpoints and writes."""
    with closing(sqlite3.connect(home / CHECKPOINT_FILE)) as db:
        total = 0
        for statement in (
            "select coalesce(sum(length(checkpoint) + length(metadata)), 0) from checkpoints",
            "select coalesce(sum(length(value)), 0) from writes",
        ):
            total += int(db.execute(statement).fetchone()[0])
        return total


def home_of(folder: Path, name: str) -> Path:
    """Make a home of the product's, whose saver both agents use."""
    home = folder / name
    home.mkdir()
    return home


async def ours(calls: int, folder: Path) -> int:
    """Bytes after one run of the diagnosis graph."""
    home = home_of(folder, f"ours-{calls}")
    async with open_checkpoints(Settings(home=home)) as saver:
        loop = make_loop(scripted(calls), tool=ProbeTool(size=SIZE), checkpointer=saver)
        await loop.run(budget=BUDGET, no_gain_threshold=50)
        assert len(loop.tool.ran) == calls
    return stored_bytes(home)


async def theirs(calls: int, folder: Path) -> int:
    """Bytes after one run of the prebuilt agent."""
    home = home_of(folder, f"theirs-{calls}")
    async with open_checkpoints(Settings(home=home)) as saver:
        config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 10_000}
        await prebuilt(calls, SIZE, saver).ainvoke({"messages": [("user", "why?")]}, config)
    return stored_bytes(home)


async def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = [(calls, await ours(calls, Path(folder)), await theirs(calls, Path(folder))) for calls in CALLS]
    print("bytes in the checkpoint store, 2 kB observations:")
    for calls, mine, other in sizes:
        print(f"  {calls:3} calls: diagnosis graph {mine:>10,}  create_agent {other:>12,}  share {mine / other:.3f}")
    growth, share = sizes[-1][1] / sizes[-2][1], sizes[-1][1] / sizes[-1][2]
    print(f"  bytes(80)/bytes(40) {growth:.2f} (at most 2.5); share at 80 at most 0.100")
    if growth > 2.5 or share > 0.1:
        raise SystemExit("checkpoints grow faster than they may")


if __name__ == "__main__":
    asyncio.run(main())
