"""Business request of the MySQL tool and its envelope (R18, R22, R125)."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import AfterValidator, Field

from tools.envelope import AgentToolCall, BusinessRequest
from tools.mysql.contract import MAX_PARAMS

MAX_PARAM_CHARS = 1_000
"""Characters of one text parameter."""


def _bounded(value: str | int | float | bool | None) -> str | int | float | bool | None:
    if isinstance(value, str) and len(value) > MAX_PARAM_CHARS:
        raise ValueError("a text of at most 1000 characters")
    if isinstance(value, str) and any(0xD800 <= ord(char) <= 0xDFFF for char in value):
        raise ValueError("a text of whole Unicode characters")
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError("an integer of 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a finite number")
    return value


# Bounds are checked after the type is settled: as members of the union they would let a huge integer become a float.
SqlParam = Annotated[str | int | float | bool | None, AfterValidator(_bounded)]


class MysqlQueryRequest(BusinessRequest):
    """One read-only question to one logical datasource.

    The length of `sql` is the gate's business, so that a long text gets the gate's rule name (R28).
    """

    datasource: str = Field(description="Name of the datasource, one of those in this tool's description.")
    sql: str = Field(
        description=(
            "One MySQL SELECT (WITH and UNION allowed) over the listed tables, at most 4000 characters. Strings in "
            "single quotes, unusual names in backticks, no comments, no double quotes, no backslash, common functions only. "
            "At most 20 rows come back: aggregate, filter and LIMIT."
        )
    )
    params: list[SqlParam] = Field(
        default_factory=list,
        max_length=MAX_PARAMS,
        description="Values for the ? placeholders in sql, in order; exactly one per placeholder.",
    )


class MysqlToolCall(AgentToolCall):
    """Envelope of the MySQL tool: `{previous_observation?, input}`."""

    input: MysqlQueryRequest = Field(description="The query.")
