"""Fresh identifiers (R1)."""

from __future__ import annotations

import uuid


class Uuid4Source:
    """Random UUIDs."""

    def new_id(self) -> str:
        """Return a UUID4 string."""
        return str(uuid.uuid4())
