"""MySQL's date functions for the SQLite backend. Pure; times are UTC text `YYYY-MM-DD HH:MM:SS[.ffffff]`."""

from __future__ import annotations

import calendar
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1)
_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3_600, "DAY": 86_400, "WEEK": 604_800}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_DATE_ONLY = re.compile(r"^\s*\d{4}-\d{1,2}-\d{1,2}\s*$")
_FORMATS = {
    "Y": "%Y", "y": "%y", "m": "%m", "d": "%d", "H": "%H", "h": "%I", "I": "%I", "i": "%M", "s": "%S", "S": "%S", "f": "%f",
    "p": "%p", "T": "%H:%M:%S", "r": "%I:%M:%S %p", "M": "%B", "b": "%b", "W": "%A", "a": "%a", "j": "%j", "w": "%w",
    "u": "%W", "v": "%V", "x": "%G",
}  # fmt: skip


def moment(value: Any) -> datetime | None:
    """Read a date or time as UTC without zone; None for NULL and for what is no date."""
    if value is None or isinstance(value, bytes):
        return None
    try:
        read = datetime.fromisoformat(str(value).strip())
    except ValueError:
        return None
    return read.astimezone(UTC).replace(tzinfo=None) if read.tzinfo else read


def text(value: datetime | None) -> str | None:
    """Write a time as MySQL shows it."""
    if value is None:
        return None
    return value.isoformat(sep=" ", timespec="microseconds" if value.microsecond else "seconds")


def add(value: Any, amount: Any, unit: Any, sign: int = 1) -> str | None:
    """DATE_ADD and DATE_SUB: a date stays a date when the unit is a day or longer. Raises ValueError."""
    start, unit = moment(value), str(unit).upper()
    if unit != "MICROSECOND" and unit not in _SECONDS and unit not in _MONTHS:
        raise ValueError("unit")
    if start is None or amount is None:
        return None
    number = float(amount) * sign
    try:
        if unit in _MONTHS:
            end = _add_months(start, round(number) * _MONTHS[unit])
        elif unit == "MICROSECOND":
            end = start + timedelta(microseconds=round(number))
        else:
            end = start + timedelta(seconds=(number if unit == "SECOND" else round(number)) * _SECONDS[unit])
    except (OverflowError, ValueError):
        return None
    if _DATE_ONLY.match(str(value)) and unit in ("DAY", "WEEK", *_MONTHS):
        return end.date().isoformat()
    return text(end)


def _add_months(start: datetime, months: int) -> datetime:
    index = start.year * 12 + start.month - 1 + months
    year, month = divmod(index, 12)
    return start.replace(year=year, month=month + 1, day=min(start.day, calendar.monthrange(year, month + 1)[1]))


def difference(unit: Any, start: Any, end: Any) -> int | None:
    """TIMESTAMPDIFF: whole units from `start` to `end`, towards zero. Raises ValueError for an unknown unit."""
    first, last, unit = moment(start), moment(end), str(unit).upper()
    if unit != "MICROSECOND" and unit not in _SECONDS and unit not in _MONTHS:
        raise ValueError("unit")
    if first is None or last is None:
        return None
    sign = 1
    if last < first:
        first, last, sign = last, first, -1
    if unit in _MONTHS:
        months = (last.year - first.year) * 12 + last.month - first.month
        months -= (last.day, last.time()) < (first.day, first.time())
        return sign * (months // _MONTHS[unit])
    micros = (last - first) // timedelta(microseconds=1)
    return sign * (micros if unit == "MICROSECOND" else micros // (_SECONDS[unit] * 1_000_000))


def date_format(value: Any, pattern: Any) -> str | None:
    """DATE_FORMAT with MySQL's specifiers. Raises ValueError for one it does not know."""
    when = moment(value)
    if when is None or pattern is None:
        return None
    plain = {"c": str(when.month), "e": str(when.day), "k": str(when.hour), "l": str(when.hour % 12 or 12), "%": "%"}

    def specifier(match: re.Match[str]) -> str:
        letter = match.group(1)
        if letter in plain:
            return plain[letter]
        if letter not in _FORMATS:
            raise ValueError("specifier")
        return when.strftime(_FORMATS[letter])

    return re.sub(r"%(.)", specifier, str(pattern), flags=re.DOTALL)


def unix_timestamp(value: Any) -> int | float | None:
    """UNIX_TIMESTAMP(x): seconds since the epoch."""
    when = moment(value)
    if when is None:
        return None
    seconds = (when - _EPOCH).total_seconds()
    return seconds if when.microsecond else int(seconds)


def from_unixtime(value: Any) -> str | None:
    """FROM_UNIXTIME(x) in UTC."""
    try:
        return None if value is None else text(_EPOCH + timedelta(seconds=float(value)))
    except (OverflowError, ValueError):
        return None


def part(unit: Any, value: Any) -> int | None:
    """EXTRACT(unit FROM x) and YEAR(x), HOUR(x)... Raises ValueError for an unknown unit."""
    when, unit = moment(value), str(unit).upper()
    if unit not in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND"):
        raise ValueError("unit")
    if when is None:
        return None
    if unit == "QUARTER":
        return (when.month + 2) // 3
    return int(getattr(when, unit.lower()))


def date_of(value: Any) -> str | None:
    """DATE(x)."""
    when = moment(value)
    return when.date().isoformat() if when else None


def time_of(value: Any) -> str | None:
    """TIME(x)."""
    when = moment(value)
    return when.time().isoformat() if when else None


def date_difference(first: Any, second: Any) -> int | None:
    """DATEDIFF(a, b) in days."""
    one, two = moment(first), moment(second)
    return None if one is None or two is None else (one.date() - two.date()).days


def last_day(value: Any) -> str | None:
    """LAST_DAY(x)."""
    when = moment(value)
    return date(when.year, when.month, calendar.monthrange(when.year, when.month)[1]).isoformat() if when else None


def weekday(value: Any) -> int | None:
    """WEEKDAY(x): 0 is Monday."""
    when = moment(value)
    return when.weekday() if when else None


def day_of_week(value: Any) -> int | None:
    """DAYOFWEEK(x): 1 is Sunday."""
    when = moment(value)
    return when.isoweekday() % 7 + 1 if when else None


def day_of_year(value: Any) -> int | None:
    """DAYOFYEAR(x)."""
    when = moment(value)
    return when.timetuple().tm_yday if when else None


def timestamp_of(value: Any) -> str | None:
    """TIMESTAMP(x) and CAST(x AS DATETIME)."""
    return text(moment(value))
