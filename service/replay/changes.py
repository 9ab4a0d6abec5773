"""What a model would be shown otherwise today than in the recorded Run: prompts, tools, forms of output, by name. Pure.

A recorded answer is given whatever the prompt says, so none of this is a difference of the replay; but an answer to another
prompt tells less of today's system, and where a tool's parameters changed, that is why a recorded call is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graph.contract import Component
from nodes.recall import ASKED
from service.replay.bundle import Bundle
from service.replay.differing import differing

MAX_CHANGES = 40
MAX_NAME_CHARS = 80
_PROMPT_NAMES = {Component.DIAGNOSIS_AGENT.value: "diagnosis"}
"""Components whose prompt's file has another name than they have."""


def changes(recorded: Bundle, replayed: Bundle) -> tuple[str, ...]:
    """Name what has changed of what this Run's components were shown."""
    pairs = list(_pairs(recorded, replayed))
    named = [*_prompts(recorded, replayed, pairs), *_tools(recorded, replayed, pairs), *_outputs(pairs)]
    return tuple(dict.fromkeys(named))[:MAX_CHANGES]


Pair = tuple[str, Mapping[str, str], Mapping[str, str]]
"""A component, and the digests of one of its calls then and now; empty where the record has none."""


def _pairs(recorded: Bundle, replayed: Bundle) -> Iterator[Pair]:
    then, now = recorded.by_kind["model_answer"], replayed.by_kind["model_answer"]
    for key, answer in then.items():
        known = key in now and isinstance(answer.get(ASKED), dict)
        yield key.partition("/")[0], answer[ASKED] if known else {}, now[key][ASKED] if known else {}


def _prompts(recorded: Bundle, replayed: Bundle, pairs: list[Pair]) -> Iterator[str]:
    then, now = (each.settings.get("prompts", {}) for each in (recorded, replayed))
    language = recorded.settings["context"].get("language") or recorded.settings["harness"]["language"]
    for component, before, after in pairs:
        name = f"{_PROMPT_NAMES.get(component, component.lower())}.{language}"
        if then.get(name) != now.get(name) or before.get("prompt") != after.get("prompt"):
            yield f"prompt {name[:MAX_NAME_CHARS]}"


def _tools(recorded: Bundle, replayed: Bundle, pairs: list[Pair]) -> Iterator[str]:
    """Name changed tools, if the Run's agent was asked at all: nobody else is shown any."""
    if not any(component == Component.DIAGNOSIS_AGENT for component, _, _ in pairs):
        return
    then, now = (each.settings.get("tools", {}) for each in (recorded, replayed))
    named = [line for name in {**then, **now} for line in _tool(name, then.get(name), now.get(name))]
    yield from named
    if not named and any(before.get("tools") != after.get("tools") for _, before, after in pairs):
        yield "the tools" if not then else "the order of the tools"


def _tool(name: str, then: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> Iterator[str]:
    label = f"tool {name[:MAX_NAME_CHARS]}"
    if then is None or now is None:
        yield f"{label}: {'is new' if then is None else 'is gone'}"
        return
    if then["description"] != now["description"]:
        yield f"{label}: its description"
    place = next(differing(then["schema"], now["schema"]), None)
    if place is not None:
        yield f"{label}: its parameters, first at {place[0][-MAX_NAME_CHARS:]}"


def _outputs(pairs: list[Pair]) -> Iterator[str]:
    for component, before, after in pairs:
        if before.get("output") != after.get("output"):
            yield f"the form of the answers of {component}"
