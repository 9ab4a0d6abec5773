"""MySQL's date functions for the SQLite backend. Pure; times are text `YYYY-MM-DD HH:MM:SS[.ffffff]` in the session zone."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
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


def text(value: datetime | None) -> str | None:
    """Write a time as MySQL shows it."""
    if value is None:
        return None
    return value.isoformat(sep=" ", timespec="microseconds" if value.microsecond else "seconds")


def _add_months(start: datetime, months: int) -> datetime:
    index = start.year * 12 + start.month - 1 + months
    year, month = divmod(index, 12)
    return start.replace(year=year, month=month + 1, day=min(start.day, calendar.monthrange(year, month + 1)[1]))


@dataclass(frozen=True, slots=True)
class SessionTime:
    """MySQL's date functions in a session zone, given as its `offset` from UTC."""

    offset: timedelta

    def moment(self, value: Any) -> datetime | None:
        """Read a date or time in the session zone; None for NULL and for what is no date."""
        if value is None or isinstance(value, bytes):
            return None
        try:
            read = datetime.fromisoformat(str(value).strip())
        except ValueError:
            return None
        return read.astimezone(timezone(self.offset)).replace(tzinfo=None) if read.tzinfo else read

    def add(self, value: Any, amount: Any, unit: Any, sign: int = 1) -> str | None:
        """DATE_ADD and DATE_SUB: a date stays a date when the unit is a day or longer. Raises ValueError."""
        start, unit = self.moment(value), str(unit).upper()
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

    def difference(self, unit: Any, start: Any, end: Any) -> int | None:
        """TIMESTAMPDIFF: whole units from `start` to `end`, towards zero. Raises ValueError for an unknown unit."""
        first, last, unit = self.moment(start), self.moment(end), str(unit).upper()
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

    def date_format(self, value: Any, pattern: Any) -> str | None:
        """DATE_FORMAT with MySQL's specifiers. Raises ValueError for one it does not know."""
        when = self.moment(value)
        if when is None or pattern is None:
            return None
        plain = {
            "c": str(when.month),
            "e": str(when.day),
            "k": str(when.hour),
            "l": str(when.hour % 12 or 12),
            "%": "%",
        }

        def specifier(match: re.Match[str]) -> str:
            letter = match.group(1)
            if letter in plain:
                return plain[letter]
            if letter not in _FORMATS:
                raise ValueError("specifier")
            return when.strftime(_FORMATS[letter])

        return re.sub(r"%(.)", specifier, str(pattern), flags=re.DOTALL)

    def unix_timestamp(self, value: Any) -> int | float | None:
        """UNIX_TIMESTAMP(x): seconds since the epoch."""
        when = self.moment(value)
        if when is None:
            return None
        seconds = (when - self.offset - _EPOCH).total_seconds()
        return seconds if when.microsecond else int(seconds)

    def from_unixtime(self, value: Any) -> str | None:
        """FROM_UNIXTIME(x)."""
        try:
            return None if value is None else text(_EPOCH + self.offset + timedelta(seconds=float(value)))
        except (OverflowError, ValueError):
            return None

    def part(self, unit: Any, value: Any) -> int | None:
        """EXTRACT(unit FROM x) and YEAR(x), HOUR(x)... Raises ValueError for an unknown unit."""
        when, unit = self.moment(value), str(unit).upper()
        if unit not in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND"):
            raise ValueError("unit")
        if when is None:
            return None
        if unit == "QUARTER":
            return (when.month + 2) // 3
        return int(getattr(when, unit.lower()))

    def date_of(self, value: Any) -> str | None:
        """DATE(x)."""
        when = self.moment(value)
        return when.date().isoformat() if when else None

    def time_of(self, value: Any) -> str | None:
        """TIME(x)."""
        when = self.moment(value)
        return when.time().isoformat() if when else None

    def date_difference(self, first: Any, second: Any) -> int | None:
        """DATEDIFF(a, b) in days."""
        one, two = self.moment(first), self.moment(second)
        return None if one is None or two is None else (one.date() - two.date()).days

    def last_day(self, value: Any) -> str | None:
        """LAST_DAY(x)."""
        when = self.moment(value)
        return date(when.year, when.month, calendar.monthrange(when.year, when.month)[1]).isoformat() if when else None

    def weekday(self, value: Any) -> int | None:
        """WEEKDAY(x): 0 is Monday."""
        when = self.moment(value)
        return when.weekday() if when else None

    def day_of_week(self, value: Any) -> int | None:
        """DAYOFWEEK(x): 1 is Sunday."""
        when = self.moment(value)
        return when.isoweekday() % 7 + 1 if when else None

    def day_of_year(self, value: Any) -> int | None:
        """DAYOFYEAR(x)."""
        when = self.moment(value)
        return when.timetuple().tm_yday if when else None

    def timestamp_of(self, value: Any) -> str | None:
        """TIMESTAMP(x) and CAST(x AS DATETIME)."""
        return text(self.moment(value))
