"""Text that every store takes: PostgreSQL refuses NUL, UTF-8 knows no lone surrogate. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def storable_text(text: str) -> str:
    """Replace what databases refuse in text (lone surrogates, NUL) by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


def storable_update(update: Mapping[str, Any]) -> dict[str, Any]:
    """Clean the texts that a node gives to the state: a checkpoint keeps those as columns, everything else as bytes."""
    return {name: storable_text(value) if isinstance(value, str) else value for name, value in update.items()}
