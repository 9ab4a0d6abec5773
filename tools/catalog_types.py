"""Types that the catalogue's entries share: names, descriptions, zones, names of environment variables."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}$")]
Description = Annotated[str, StringConstraints(max_length=300)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")]
"""Name of an environment variable; its value is read when it is needed and shown nowhere (R127)."""


def _known_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("must be an IANA time zone, e.g. Asia/Shanghai") from None
    return value


ZoneName = Annotated[str, AfterValidator(_known_zone)]


class Entry(BaseModel):
    """Base of every entry: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
