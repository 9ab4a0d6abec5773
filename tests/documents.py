"""Parts of the documentation that follow from the code. `python -m tests.documents` writes them anew; tests compare."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from graph.diagnosis import recursion_limit
from service.app import open_app
from service.replay.schema import bundle_schema
from service.settings import Settings, env_name
from tests.chat_loop import make_chat
from tests.data import ROOT
from tests.loop import make_loop

QUESTION = "Checkout has been failing since about 14:10 and orders stay unpaid. Why?"
READMES = ("README.md", "README.zh-CN.md")


def picture() -> str:
    """Return the Mermaid picture of the compiled graph."""
    drawn = make_loop([], checkpointer=None).graph.get_graph().draw_mermaid()
    return "```mermaid\n" + drawn.strip().replace("\t", "  ") + "\n```"


def chat_picture() -> str:
    """Return the Mermaid picture of the compiled chat graph; its `diagnosis` is the other picture."""
    drawn = make_chat([], checkpointer=None).graph.get_graph().draw_mermaid()
    return "```mermaid\n" + drawn.strip().replace("\t", "  ") + "\n```"


def walk_through() -> str:
    """Return the steps of one run of the example, as Studio shows them: node, what it decided, channels it wrote."""
    rows = ["| step | node | `step`: what it decided | wrote besides |", "|---|---|---|---|"]
    return "\n".join([*rows, *asyncio.run(_steps_of_the_example())])


async def _steps_of_the_example() -> list[str]:
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(
            catalog=ROOT / "examples/shop/superbiz.toml", home=Path(home), language="en", model="offline"
        )
        async with open_app(settings) as app:
            config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": recursion_limit(settings.budget())}
            steps = app.graph.astream({"query": QUESTION}, config, context=settings.context(), stream_mode="updates")
            async for update in steps:
                for node, written in update.items():
                    channels = ", ".join(f"`{name}`" for name in sorted(written) if name not in {"step", "position"})
                    rows.append(f"| {written['position']['step']} | `{node}` | {written['step']} | {channels} |")
    return rows


def settings_table() -> str:
    """Return the table of all settings: variable, default, allowed values, meaning."""
    rows = ["| variable | default | allowed | meaning |", "|---|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, (), PydanticUndefined) else f"`{_plain(field.default)}`"
        rows.append(f"| `{env_name(name)}` | {default} | {_allowed(field)} | {field.description or ''} |")
    return "\n".join(rows)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _allowed(field: Any) -> str:
    parts = []
    for limit in field.metadata:
        for name, sign in (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤")):
            if hasattr(limit, name):
                parts.append(f"{sign} {getattr(limit, name)}")
    if getattr(field.annotation, "__args__", None) and all(isinstance(each, str) for each in field.annotation.__args__):
        parts.append(" or ".join(f"`{each}`" for each in field.annotation.__args__))
    if SecretStr in getattr(field.annotation, "__args__", ()):
        parts.append("secret")
    return ", ".join(parts)


def bundle_schema_text() -> str:
    """Return `docs/run-bundle.schema.json`."""
    return json.dumps(bundle_schema(), ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def between(text: str, name: str) -> str:
    """Return what stands between `<!-- name:begin -->` and `<!-- name:end -->`. Raises ValueError when it is not there."""
    start, end = _span(text, name)
    return text[start:end]


def with_part(text: str, name: str, part: str) -> str:
    """Return `text` with a part replaced."""
    start, end = _span(text, name)
    return text[:start] + part + text[end:]


def _span(text: str, name: str) -> tuple[int, int]:
    found = re.search(rf"<!-- {name}:begin -->\n(.*?)\n<!-- {name}:end -->", text, re.DOTALL)
    if found is None:
        raise ValueError(f"no part {name}")
    return found.span(1)


SCHEMA = "docs/run-bundle.schema.json"
GENERATED = (
    *((readme, "graph", picture) for readme in READMES),
    ("docs/architecture.md", "chat", chat_picture),
    ("docs/operating.md", "settings", settings_table),
    ("docs/operating.md", "walk", walk_through),
)
"""(file, part, what makes it)."""


def main() -> None:
    """Write every generated part into its file."""
    for file, name, make in GENERATED:
        path = Path(ROOT / file)
        path.write_text(with_part(path.read_text("utf-8"), name, make()), "utf-8")
    Path(ROOT / SCHEMA).write_text(bundle_schema_text(), "utf-8")


if __name__ == "__main__":
    main()
