"""Transcripts of other agents in OpenAI message format, with a success flag. Input is hostile: bounded, errors name the place.

Read are JSON files of one run or a list of runs, and JSON lines of one run each. A run is an object with messages under
`messages`, `traj` or `answer_generation.train_messages` (the last of several branches), and a flag under `success`, `win` or
`reward` (1 is success). Calls stand in `tool_calls` with answers of role `tool`, or in `function_call` with role `function`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.scope import canonical_json

MAX_FILE_BYTES = 64 * 1024 * 1024
"""A JSON file is held in memory whole; JSON lines are read one by one and have no such bound."""
MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_MESSAGES = 10_000
LINES = ".jsonl"
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_FLAGS = ("success", "win", "reward")


class TranscriptError(Exception):
    """A transcript cannot be used; one bounded line naming file, run, message and field, never a value."""


@dataclass(frozen=True, slots=True)
class ForeignCall:
    """One tool call that was answered; `arguments` is canonical JSON where the text was JSON."""

    tool: str
    arguments: str
    result: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """One run of another agent."""

    name: str
    success: bool
    calls: tuple[ForeignCall, ...]


def read_transcripts(path: Path) -> Iterator[Transcript]:
    """Yield the runs of one file. Raises TranscriptError."""
    place = path.name[:80]
    try:
        if path.suffix == LINES:
            yield from _lines(path, place)
            return
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TranscriptError(
                f"{place}: larger than {MAX_FILE_BYTES // 2**20} MiB; write one run a line into a {LINES} file"
            )
        runs = _parsed(path.read_bytes(), place)
    except OSError as error:
        raise TranscriptError(f"{place}: cannot be read ({type(error).__name__})") from None
    if not isinstance(runs, list):
        yield _transcript(runs, place)
        return
    for number, run in enumerate(runs, start=1):
        yield _transcript(run, f"{place}: run {number}")


def _lines(path: Path, place: str) -> Iterator[Transcript]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise TranscriptError(f"{place}: line {number}: longer than {MAX_LINE_BYTES // 2**20} MiB")
            if line.strip():
                yield _transcript(_parsed(line, f"{place}: line {number}"), f"{place}: line {number}")


def _parsed(raw: bytes, place: str) -> Any:
    try:
        return json.loads(raw)
    except RecursionError:
        raise TranscriptError(f"{place}: nested too deeply") from None
    except json.JSONDecodeError as error:
        raise TranscriptError(f"{place}: no JSON (line {error.lineno}, column {error.colno})") from None
    except ValueError:  # no UTF-8, or a number of absurd length
        raise TranscriptError(f"{place}: no JSON") from None


def _transcript(run: Any, place: str) -> Transcript:
    if not isinstance(run, dict):
        raise TranscriptError(f"{place}: must be an object with messages and a success flag")
    return Transcript(place, _success(run, place), tuple(_calls(_messages(run, place), place)))


def _success(run: Mapping[str, Any], place: str) -> bool:
    name = next((each for each in _FLAGS if each in run), None)
    if name is None:
        raise TranscriptError(f"{place}: has no success flag; one of {', '.join(_FLAGS)} is needed")
    value = run[name]
    if isinstance(value, bool) and name != "reward":
        return value
    if name == "reward" and isinstance(value, int | float) and 0 <= value <= 1:
        return value == 1
    raise TranscriptError(f"{place}: {name}: must be {'a number from 0 to 1' if name == 'reward' else 'true or false'}")


def _messages(run: Mapping[str, Any], place: str) -> list[Any]:
    name = next((each for each in ("messages", "traj") if each in run), "answer_generation.train_messages")
    messages = run.get(name)
    if "." in name:
        generation = run.get("answer_generation")
        branches = generation.get("train_messages") if isinstance(generation, dict) else None
        messages = branches[-1] if isinstance(branches, list) and branches else None
    if not isinstance(messages, list):
        raise TranscriptError(f"{place}: {name}: must be a list of messages")
    if len(messages) > MAX_MESSAGES:
        raise TranscriptError(f"{place}: {name}: more than {MAX_MESSAGES} messages")
    return messages


def _calls(messages: list[Any], place: str) -> Iterator[ForeignCall]:
    """Pair each answer with the call of the message before it: ids may repeat within a run."""
    asked: dict[str, tuple[str, str]] = {}
    for number, message in enumerate(messages, start=1):
        at = f"{place}: message {number}"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in _ROLES:
            raise TranscriptError(f"{at}: role: must be one of {', '.join(_ROLES)}")
        if role == "assistant":
            asked = dict(_asked(message, at))
        elif role in ("tool", "function"):
            key = _text(message, "tool_call_id" if role == "tool" else "name", at)
            if key not in asked:
                raise TranscriptError(f"{at}: answers no call of the message before it")
            tool, arguments = asked.pop(key)
            yield ForeignCall(tool, arguments, _content(message, at))


def _asked(message: Mapping[str, Any], at: str) -> Iterator[tuple[str, tuple[str, str]]]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise TranscriptError(f"{at}: tool_calls: must be a list")
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise TranscriptError(f"{at}: tool_calls: each needs id and function")
        yield _text(call, "id", at), (_text(function, "name", at), _arguments(function, at))
    function = message.get("function_call")
    if isinstance(function, dict):
        name = _text(function, "name", at)
        yield name, (name, _arguments(function, at))


def _text(holder: Mapping[str, Any], field: str, at: str) -> str:
    value = holder.get(field)
    if not isinstance(value, str):
        raise TranscriptError(f"{at}: {field}: must be text")
    return value


def _arguments(function: Mapping[str, Any], at: str) -> str:
    text = _text(function, "arguments", at)
    try:
        return canonical_json(json.loads(text))
    except (ValueError, RecursionError):
        return text  # models write broken JSON too; the text is what can be compared


def _content(message: Mapping[str, Any], at: str) -> str:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(str(part.get("text", "")) for part in content)
    raise TranscriptError(f"{at}: content: must be text")
