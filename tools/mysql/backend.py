"""What a database behind the gate is to the tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from tools.mysql.grants import GrantReport
from tools.mysql.values import JsonScalar, QueryResult


@dataclass(frozen=True, slots=True)
class Query:
    """A text that passed the gate, with its values.

    `now` is what NOW() means, in seconds since the epoch; None leaves it to the server's clock. `offset` is the
    session's zone. `seconds` is the time the query may take, connecting included.
    """

    sql: str
    params: Sequence[JsonScalar]
    now: float | None
    offset: timedelta
    seconds: float


class SqlBackend(Protocol):
    """Runs one accepted query read-only; makes exactly one attempt (R118)."""

    async def query(self, query: Query) -> QueryResult:
        """Return the bounded result.

        Raises ToolFailure (QUERY_TIMEOUT, DB_ERROR, BACKEND_UNAVAILABLE) or CancelledError; on both timeout and cancel
        nothing is left running that can be stopped (R120).
        """

    async def account(self, seconds: float) -> GrantReport | None:
        """Say what the account may do beyond reading the listed tables; None where there are no accounts (R124).

        Raises ToolFailure as `query` does.
        """

    async def close(self) -> None:
        """Give connections back."""
