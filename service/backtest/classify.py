"""What a foreign tool result was worth, as far as a rule without judgement can say. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from service.backtest.transcripts import ForeignCall


class ResultClass(StrEnum):
    """Class of one answered call of a transcript; the first that holds."""

    REPEATED_CALL = "REPEATED_CALL"
    ERROR = "ERROR"
    EMPTY = "EMPTY"
    REPEATED_RESULT = "REPEATED_RESULT"
    NEW = "NEW"

    @property
    def useless(self) -> bool:
        """Whether the call could have been spared; an answer seen before still tells something to another question."""
        return self in (ResultClass.ERROR, ResultClass.EMPTY, ResultClass.REPEATED_CALL)


def classify(calls: Sequence[ForeignCall]) -> tuple[ResultClass, ...]:
    """Return the class of each call of one run.

    Only answers without error are remembered: to repeat a failed call is a retry (R38). A result repeats when its text equals
    that of any earlier call of the run, whatever the tool.
    """
    asked, seen, classes = set[tuple[str, str]](), set[str](), list[ResultClass]()
    for call in calls:
        found = _class(call, (call.tool, call.arguments) in asked, call.result in seen)
        classes.append(found)
        if found is not ResultClass.ERROR:
            asked.add((call.tool, call.arguments))
            seen.add(call.result)
    return tuple(classes)


def _class(call: ForeignCall, asked: bool, seen: bool) -> ResultClass:
    if asked:
        return ResultClass.REPEATED_CALL  # this system would not have made it, whatever it brought (R45)
    value = _value(call.result)
    if _is_error(value):
        return ResultClass.ERROR
    if _is_empty(value):
        return ResultClass.EMPTY
    return ResultClass.REPEATED_RESULT if seen else ResultClass.NEW


def _value(result: str) -> Any:
    try:
        return json.loads(result)
    except (ValueError, RecursionError):
        return result.strip()


def _is_error(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value.get("error"))
    return isinstance(value, str) and value[:5].lower() == "error"


def _is_empty(value: Any) -> bool:
    """Nothing at all: no text, null, and lists or objects of such values alone."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            pending.extend(each.values())
        elif isinstance(each, list):
            pending.extend(each)
        elif each is not None and each != "":
            return False
    return True
