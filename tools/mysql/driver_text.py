"""The accepted text in the driver's placeholder style (R123): only the `?` outside literals change. Pure."""

from __future__ import annotations

from tools.mysql.lexical import Kind, tokenize


def to_driver_text(sql: str) -> str:
    """Write `?` as `%s` and every other `%` as `%%`, so that the driver's formatting gives the original text back.

    Use it only with parameters; a text without any is sent as it is. Raises GateRefusal on what the gate refuses.
    """
    parts, position = [], 0
    for token in tokenize(sql):
        if token.kind is Kind.PARAM:
            parts += [sql[position : token.start].replace("%", "%%"), "%s"]
            position = token.end
    return "".join([*parts, sql[position:].replace("%", "%%")])
