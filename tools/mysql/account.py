"""Asks a server what the account of a session may do (R124). The model's text never appears here."""

from __future__ import annotations

from typing import Protocol

from tools.mysql.grant_lines import read_role_names
from tools.mysql.grants import AccountRule, GrantReport, judge_grants


class Asks(Protocol):
    """Runs one statement of this module and returns the first column of its rows as text."""

    async def __call__(self, statement: str, /) -> list[str]:
        """Run `statement`."""


async def read_account(ask: Asks, *, is_mariadb: bool, rule: AccountRule) -> GrantReport:
    """Return what the account may do beyond the rule; privileges of active roles count as its own.

    MariaDB shows them by itself, MySQL when it is asked about the roles by name. Raises what `ask` raises.
    """
    lines = await ask("SHOW GRANTS")
    if is_mariadb:
        return judge_grants(lines, rule)
    active: tuple[str, ...] = ()
    for shown in await ask("SELECT CURRENT_ROLE()"):
        roles = read_role_names(shown)
        if roles:
            lines += await ask(f"SHOW GRANTS FOR CURRENT_USER() USING {', '.join(_quoted(role) for role in roles)}")
            active += tuple(name for name, _ in roles)
    return judge_grants(lines, rule, active)


def _quoted(role: tuple[str, str]) -> str:
    return "@".join("`" + part.replace("`", "``") + "`" for part in role)
