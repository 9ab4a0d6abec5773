"""Bytes in the checkpoint store after 10 to 80 tool calls with 2 kB observations, beside `create_agent`'s default."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import aiosqlite
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from tests.bench.loop_cost import BUDGET, prebuilt, scripted
from tests.fakes import ProbeTool
from tests.loop import make_loop

CALLS = (10, 20, 40, 80)
SIZE = 2000


async def stored_bytes(path: Path) -> int:
    """Payload bytes of all checkpoints and writes."""
    async with aiosqlite.connect(path) as db:
        total = 0
        for statement in (
            "select coalesce(sum(length(checkpoint) + length(metadata)), 0) from checkpoints",
            "select coalesce(sum(length(value)), 0) from writes",
        ):
            async with db.execute(statement) as rows:
                row = await rows.fetchone()
                assert row is not None
                total += row[0]
        return total


async def ours(calls: int, folder: Path) -> int:
    """Bytes after one run of the diagnosis graph."""
    path = folder / f"ours-{calls}.db"
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        loop = make_loop(scripted(calls), tool=ProbeTool(size=SIZE), checkpointer=saver)
        await loop.run(budget=BUDGET, no_gain_threshold=50)
        assert len(loop.tool.ran) == calls
    return await stored_bytes(path)


async def theirs(calls: int, folder: Path) -> int:
    """Bytes after one run of the prebuilt agent."""
    path = folder / f"theirs-{calls}.db"
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 10_000}
        await prebuilt(calls, SIZE, saver).ainvoke({"messages": [("user", "why?")]}, config)
    return await stored_bytes(path)


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
