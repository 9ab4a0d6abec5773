"""Strict reading of a JSON text that a model wrote (R77). Pure; never raises on any text."""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from release.contract import AgentOutputFailure

Model = TypeVar("Model", bound=BaseModel)


class _NotStrictError(Exception):
    """The text is JSON for lenient readers only."""

    def __init__(self, failure: AgentOutputFailure) -> None:
        super().__init__(failure.value)
        self.failure = failure


def text_bytes(text: str) -> int:
    """Return the UTF-8 length of a text, lone surrogates included (R79)."""
    return len(text.encode("utf-8", "surrogatepass"))


def parse_strict(text: str, model: type[Model], max_bytes: int) -> Model | AgentOutputFailure:
    """Read exactly one JSON object of the type `model`, or say why the text is refused (R77, R79).

    Only JSON whitespace may surround the object: fences, prose, a byte order mark and a second value are NOT_JSON.
    Duplicate keys, unknown keys, wrong types, values out of bounds and escaped lone surrogates are SCHEMA_VIOLATION.
    """
    if text_bytes(text) > max_bytes:
        return AgentOutputFailure.OUTPUT_TOO_LARGE
    if not text.strip():
        return AgentOutputFailure.EMPTY_OUTPUT
    failure = _syntax_failure(text)
    if failure is not None:
        return failure
    try:
        # From the text, not from the parsed value: strict mode takes enums from JSON only.
        return model.model_validate_json(text)
    except ValidationError:
        return AgentOutputFailure.SCHEMA_VIOLATION


def _syntax_failure(text: str) -> AgentOutputFailure | None:
    try:
        text.encode()
        json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse_constant,
            parse_int=_no_number,  # a number of thousands of digits is legal JSON, and int() refuses it
            parse_float=_no_number,
        )
    except _NotStrictError as error:
        return error.failure
    except RecursionError:
        return AgentOutputFailure.SCHEMA_VIOLATION
    except ValueError:
        return AgentOutputFailure.NOT_JSON
    return None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise _NotStrictError(AgentOutputFailure.SCHEMA_VIOLATION)
    return values


def _refuse_constant(_: str) -> NoReturn:
    raise _NotStrictError(AgentOutputFailure.NOT_JSON)


def _no_number(_: str) -> int:
    return 0
