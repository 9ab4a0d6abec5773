"""MySQL's functions for the SQLite backend, under their own names, so that a text means on both what it says.

Functions that are neither here nor the same in SQLite fail as DB_ERROR: no answer rather than a different one.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import re2

from tools.mysql.functions import words
from tools.mysql.sqlite_aggregates import AGGREGATES, install_aggregates
from tools.mysql.sqlite_shape import COLLATION, compare_text, folded, text_of
from tools.mysql.sqlite_time import SessionTime

_REGEX = re2.Options()
_REGEX.case_sensitive = False
_REGEX.log_errors = False  # they would print the pattern
_PLAIN_PATH = re.compile(r"\$(\.[A-Za-z_]\w*)*")
NOW_NAMES = {
    "NOW": "%Y-%m-%d %H:%M:%S",
    "CURRENT_TIMESTAMP": "%Y-%m-%d %H:%M:%S",
    "LOCALTIME": "%Y-%m-%d %H:%M:%S",
    "LOCALTIMESTAMP": "%Y-%m-%d %H:%M:%S",
    "UTC_TIMESTAMP": "%Y-%m-%d %H:%M:%S",
    "CURDATE": "%Y-%m-%d",
    "CURRENT_DATE": "%Y-%m-%d",
    "UTC_DATE": "%Y-%m-%d",
    "CURTIME": "%H:%M:%S",
    "CURRENT_TIME": "%H:%M:%S",
    "UTC_TIME": "%H:%M:%S",
}
"""Functions of the clock and what they show; those named UTC show UTC, the others the session's zone."""


def _null_safe(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: None if any(value is None for value in values) else function(*values)


def _substring_index(value: Any, delimiter: Any, count: Any) -> str:
    parts = text_of(value).split(text_of(delimiter)) if text_of(delimiter) else [""]
    number = int(count)
    return text_of(delimiter).join(parts[:number] if number > 0 else parts[number:] if number < 0 else [])


def _locate(needle: Any, text: Any, start: Any = 1) -> int:
    return text_of(text).lower().find(text_of(needle).lower(), int(start) - 1) + 1 if int(start) > 0 else 0


def _round_half_up(value: Any, digits: Any = 0) -> float | int:
    if isinstance(value, int) and int(digits) >= 0:
        return value
    scale = 10.0 ** int(digits)
    rounded = math.copysign(math.floor(abs(float(value)) * scale + 0.5), float(value)) / scale
    return int(rounded) if int(digits) <= 0 else rounded


def _truncate(value: Any, digits: Any) -> float | int:
    if isinstance(value, int) and int(digits) >= 0:
        return value
    scale = 10.0 ** int(digits)
    cut = math.trunc(float(value) * scale) / scale
    return int(cut) if int(digits) <= 0 else cut


def _signed(value: Any) -> int:
    """CAST(value AS SIGNED): a number is rounded, a text is read up to its first other character."""
    if isinstance(value, int | float):
        return int(_round_half_up(value))
    match = re.match(r"\s*([+-]?\d+)", text_of(value))
    return int(match.group(1)) if match else 0


def _unsigned(value: Any) -> int:
    number = _signed(value)
    if number < 0:
        raise ValueError("SQLite has no unsigned numbers")
    return number


def _hex(value: Any) -> str:
    if isinstance(value, int | float):
        return f"{_signed(value) & 0xFFFF_FFFF_FFFF_FFFF:X}"
    return (value if isinstance(value, bytes) else text_of(value).encode()).hex().upper()


def _regexp(pattern: Any, value: Any) -> int:
    return int(re2.search(text_of(pattern), text_of(value), options=_REGEX) is not None)


def _same(one: Any, other: Any) -> bool:
    return compare_text(one, other) == 0 if isinstance(one, str) and isinstance(other, str) else bool(one == other)


def _field(value: Any, *others: Any) -> int:
    return next((index for index, other in enumerate(others, 1) if value is not None and _same(value, other)), 0)


def _find_in_set(value: Any, listed: Any) -> int:
    items = [folded(item) for item in text_of(listed).split(",")]
    return items.index(folded(text_of(value))) + 1 if folded(text_of(value)) in items else 0


def _concat_ws(separator: Any, *values: Any) -> str | None:
    return (
        None if separator is None else text_of(separator).join(text_of(value) for value in values if value is not None)
    )


def _sha2(value: Any, bits: Any) -> str | None:
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(int(bits))
    return hashlib.new(name, text_of(value).encode()).hexdigest() if name else None


def _json_text(value: Any, path: Any) -> Any:
    """JSON_UNQUOTE(JSON_EXTRACT(value, '$.a.b')) for paths of plain keys. Raises ValueError for others."""
    if not _PLAIN_PATH.fullmatch(text_of(path)):
        raise ValueError("path")
    found: Any = json.loads(text_of(value))
    for key in text_of(path).split(".")[1:]:
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found if isinstance(found, str) else json.dumps(found)


_NULL_SAFE: dict[str, tuple[int, Callable[..., Any]]] = {
    "CONCAT": (-1, lambda *values: "".join(text_of(value) for value in values)),
    "LENGTH": (1, lambda value: len(value) if isinstance(value, bytes) else len(text_of(value).encode())),
    "CHAR_LENGTH": (1, lambda value: len(text_of(value))),
    "CHARACTER_LENGTH": (1, lambda value: len(text_of(value))),
    "MYSQL_LEFT": (2, lambda value, count: text_of(value)[: max(int(count), 0)]),
    "MYSQL_RIGHT": (2, lambda value, count: text_of(value)[-int(count) :] if int(count) > 0 else ""),
    "LCASE": (1, lambda value: text_of(value).lower()),
    "LOWER": (1, lambda value: text_of(value).lower()),
    "UCASE": (1, lambda value: text_of(value).upper()),
    "UPPER": (1, lambda value: text_of(value).upper()),
    "REVERSE": (1, lambda value: text_of(value)[::-1]),
    "LOCATE": (-1, _locate),
    "INSTR": (2, lambda text, needle: _locate(needle, text)),
    "SUBSTRING_INDEX": (3, _substring_index),
    "FIND_IN_SET": (2, _find_in_set),
    "REGEXP": (2, _regexp),
    "REGEXP_LIKE": (2, lambda value, pattern: _regexp(pattern, value)),
    "GREATEST": (-1, max),
    "LEAST": (-1, min),
    "ROUND": (-1, _round_half_up),
    "TRUNCATE": (2, _truncate),
    "CEIL": (1, lambda value: math.ceil(value)),
    "CEILING": (1, lambda value: math.ceil(value)),
    "FLOOR": (1, lambda value: math.floor(value)),
    "POW": (2, lambda base, exponent: float(base) ** float(exponent)),
    "POWER": (2, lambda base, exponent: float(base) ** float(exponent)),
    "SQRT": (1, lambda value: math.sqrt(value) if value >= 0 else None),
    "MOD": (2, lambda value, by: math.fmod(value, by) if by else None),
    "MYSQL_XOR": (2, lambda one, two: int(bool(one) != bool(two))),
    "MYSQL_BITXOR": (2, lambda one, two: int(one) ^ int(two)),
    "MD5": (1, lambda value: hashlib.md5(text_of(value).encode(), usedforsecurity=False).hexdigest()),
    "SHA1": (1, lambda value: hashlib.sha1(text_of(value).encode(), usedforsecurity=False).hexdigest()),
    "SHA2": (2, _sha2),
    "MYSQL_JSON_TEXT": (2, _json_text),
    "MYSQL_SIGNED": (1, _signed),
    "MYSQL_UNSIGNED": (1, _unsigned),
    "HEX": (1, _hex),
}
_OTHERS: dict[str, tuple[int, Callable[..., Any]]] = {
    "IF": (3, lambda condition, yes, no: yes if condition else no),
    "ISNULL": (1, lambda value: int(value is None)),
    "CONCAT_WS": (-1, _concat_ws),
    "FIELD": (-1, _field),
}


def _time_functions(time: SessionTime) -> dict[str, tuple[int, Callable[..., Any]]]:
    return {
        "MYSQL_ADD": (3, time.add),
        "MYSQL_SUB": (3, lambda value, amount, unit: time.add(value, amount, unit, -1)),
        "TIMESTAMPDIFF": (3, time.difference),
        "TIMESTAMPADD": (3, lambda unit, amount, value: time.add(value, amount, unit)),
        "MYSQL_PART": (2, time.part),
        "DATEDIFF": (2, time.date_difference),
        "DATE_FORMAT": (2, time.date_format),
        "FROM_UNIXTIME": (1, time.from_unixtime),
        "DATE": (1, time.date_of),
        "TIME": (1, time.time_of),
        "TIMESTAMP": (1, time.timestamp_of),
        "LAST_DAY": (1, time.last_day),
        "WEEKDAY": (1, time.weekday),
        "DAYOFWEEK": (1, time.day_of_week),
        "DAYOFYEAR": (1, time.day_of_year),
    }


_PARTS = ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND")
SAME_IN_SQLITE = words(
    """
    COUNT SUM AVG MIN MAX ROW_NUMBER RANK DENSE_RANK PERCENT_RANK CUME_DIST NTILE LAG LEAD FIRST_VALUE
    LAST_VALUE NTH_VALUE IFNULL NULLIF COALESCE ABS SIGN SUBSTR LTRIM RTRIM REPLACE
    JSON_VALID CAST
    """
)
"""Functions that SQLite has with MySQL's meaning."""
KNOWN_FUNCTIONS = SAME_IN_SQLITE.union(
    NOW_NAMES,
    _NULL_SAFE,
    _OTHERS,
    _PARTS,
    _time_functions(SessionTime(timedelta())),
    ("UNIX_TIMESTAMP", "DAYOFMONTH"),
    AGGREGATES,
)


def _clock(moment: datetime, pattern: str) -> Callable[..., str]:
    """A function of the clock: its digits of a second are cut, as MySQL does."""
    shown = moment.strftime(pattern)
    return lambda digits=0: shown + (f".{moment.microsecond:06d}"[: int(digits) + 1] if digits else "")


def install(connection: sqlite3.Connection, now: float, offset: timedelta) -> None:
    """Give a connection MySQL's functions, with `now` (seconds since the epoch) as clock in a zone `offset` from UTC."""
    local = datetime.fromtimestamp(now, UTC) + offset
    utc = datetime.fromtimestamp(now, UTC)
    time = SessionTime(offset)
    functions = {name: (arity, _null_safe(function)) for name, (arity, function) in _NULL_SAFE.items()}
    functions |= _OTHERS | _time_functions(time)
    functions |= {
        name: (-1, _clock(utc if name.startswith("UTC") else local, pattern)) for name, pattern in NOW_NAMES.items()
    }
    functions |= {unit: (1, partial(time.part, unit)) for unit in _PARTS}
    functions["DAYOFMONTH"] = (1, partial(time.part, "DAY"))
    for name, (arity, function) in functions.items():
        connection.create_function(name, arity, function, deterministic=True)
    connection.create_function("UNIX_TIMESTAMP", 0, lambda: int(now), deterministic=True)
    connection.create_function("UNIX_TIMESTAMP", 1, time.unix_timestamp, deterministic=True)
    connection.create_collation(COLLATION, compare_text)
    install_aggregates(connection)
