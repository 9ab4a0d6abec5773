"""Prints everything a scripted run leaves behind as one JSON text; run in processes of its own (see the test)."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

from tests.fakes import SUPPORTED, by_round, call, calls, draft, envelope, text
from tests.loop import make_loop

FALSE = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c9"])])
CONCLUDED = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c1"])])
AGENT = [
    call("c1", "found a"),
    calls(("c2", "query_probe", envelope("none b", ("c1", "GAINED"))), ("e2", "no_tool", None), ("f2", "x", {})),
    call("c3", "found a"),
    call("c4", "error d"),
    calls(("c5", "query_probe", {"surprise": 1, "input": {}})),
    call("c6", "none f"),
    FALSE,
]


async def everything() -> dict[str, Any]:
    """The final state, all checkpoints' values, trace, steps, archive and record of two runs on a thread."""
    loop = make_loop(by_round(AGENT, [CONCLUDED], [text("?"), SUPPORTED]))
    kept: dict[str, Any] = {}
    for number in (1, 2):
        await loop.run(f"question {number}", run_id=uuid.UUID(int=number))
        kept[f"run {number}"] = {
            "state": loop.state,
            "trace": await loop.journal.trace(loop.run_id),
            "steps": await loop.journal.steps(loop.run_id),
            "archive": await loop.journal.archive(loop.run_id),
            "batches": loop.journal.batches,
            "record": await loop.record(),
        }
    kept["checkpoints"] = [each.values for each in await loop.history()]
    return kept


def plain(value: Any) -> Any:
    """Show what is no JSON by its fields, in their own order."""
    return value.model_dump() if hasattr(value, "model_dump") else repr(value)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(everything()), default=plain, ensure_ascii=False))
