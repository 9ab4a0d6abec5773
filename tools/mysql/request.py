"""Business request of the MySQL tool and its envelope (R18, R22, R125)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tools.envelope import AgentToolCall, BusinessRequest
from tools.mysql.contract import MAX_PARAMS

MAX_PARAM_CHARS = 1_000
"""Characters of one text parameter."""

SqlInteger = Annotated[int, Field(ge=-(2**63), le=2**64 - 1)]
SqlNumber = Annotated[float, Field(allow_inf_nan=False)]
SqlText = Annotated[str, Field(max_length=MAX_PARAM_CHARS)]


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
    params: list[SqlText | SqlInteger | SqlNumber | bool | None] = Field(
        default_factory=list,
        max_length=MAX_PARAMS,
        description="Values for the ? placeholders in sql, in order; exactly one per placeholder.",
    )


class MysqlToolCall(AgentToolCall):
    """Envelope of the MySQL tool: `{previous_observation?, input}`."""

    input: MysqlQueryRequest = Field(description="The query.")
