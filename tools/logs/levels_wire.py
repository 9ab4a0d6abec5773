"""How levels are written in stores: every name and number that the matcher reads as one level. Pure."""

from __future__ import annotations

from tools.logs.levels import canonical_level, level_of_value, names_of
from tools.logs.match import value_matcher
from tools.logs.query import Term

LEVELS = ("FATAL", "ERROR", "WARN", "NOTICE", "INFO", "DEBUG", "TRACE")
_NUMBERS = (*range(8), *range(10, 70, 10))


def meant_levels(value: Term) -> tuple[str, ...]:
    """Return the canonical levels that `level:value` matches; empty when the value is no level."""
    named = canonical_level(value.parts[0]) if len(value.parts) == 1 else None
    if named is not None:
        return (named,)
    matches = value_matcher(value)
    return tuple(level for level in LEVELS if matches(level))


def spellings(levels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lower-case names of levels."""
    return tuple(name.lower() for level in levels for name in names_of(level))


def numbers(levels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the numbers that mean one of the levels (syslog severities and the family 10..60)."""
    return tuple(str(number) for number in _NUMBERS if level_of_value(number) in levels)
