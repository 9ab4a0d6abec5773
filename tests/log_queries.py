"""Generated events and queries: few words, so that they meet."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

WORDS = (
    "error",
    "Timeout",
    "SocketTimeoutException",
    "redis",
    "500",
    "5003",
    "50ms",
    "10.0.0.7:6379",
    "/api/v1",
    "连接超时",
)
WORDS += ("refused", "x_y", "null", "ошибка", "a-b", "level:error", "status=503", "it's", "é", "[warn]", "KB")
LEVELS = ("ERROR", "error", "warning", "INFO", "debug", "30", "weird")
SERVICES = ("order", "Pay-1", "payment")

WORDS += ("service:pay", "Redis refused")
LEVELS = ("ERROR", "error", "warning", "INFO", "debug", "30", "weird")
SERVICES = ("order", "Pay-1", "payment")


def make_document(dice: random.Random) -> dict[str, Any]:
    """One event in which every part may be missing."""
    document: dict[str, Any] = {"message": " ".join(dice.choices(WORDS, k=dice.randint(1, 5)))}
    for key, values in (("level", LEVELS), ("service", SERVICES), ("status", (5, 50, 200, 500, 503))):
        if dice.random() < 0.6:
            document[key] = dice.choice(values)
    if dice.random() < 0.5:
        document["error"] = dice.choice((None, "", "refused", "Disk full"))
    if dice.random() < 0.3:
        document["trace"] = {"note": " ".join(dice.choices(WORDS, k=2))}
    return document


_pieces = st.sampled_from(
    (*WORDS, "time", "timeoutex", "超时", "conn", "50*", "re*d", "*out*", '"redis refused"', '"x_y"', "КБ", "шиб", "kb")
)
_fields = st.sampled_from(
    (
        "level:error",
        "level:warn",
        "level:debug",
        "level:weird",
        "level:err*",
        "level:info",
        "service:pay",
        "service:order",
        *(
            "service:p*",
            "status:5*",
            "status:50",
            "status:503",
            "status:*",
            "note:redis",
            "error:refused",
            "message:redis",
        ),
    )
)


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        inner.map(lambda text: f"NOT ({text})"),
        pair.map(lambda two: f"({two[0]} {two[1]})"),
        pair.map(lambda two: f"({two[0]} OR {two[1]})"),
    )


queries = st.recursive(st.one_of(_pieces, _fields), _combined, max_leaves=5)
