"""Several knowledge backends as one: folders and vector stores side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

from tools.contract import RelevanceLevel, ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.rag.backend import RagBackend
from tools.rag.request import RagRequest


class JoinedBackend:
    """Asks all backends at once and merges place by place, HIGH first: scores of different kinds do not compare."""

    def __init__(self, backends: Sequence[RagBackend]) -> None:
        self._backends = tuple(backends)

    async def search(self, request: RagRequest, deadline_seconds: float) -> Any:
        """Search (see RagBackend). A failed backend matters only when the others found nothing."""
        asked = (_asked(backend, request, deadline_seconds) for backend in self._backends)
        answers = await asyncio.gather(*asked)
        raws = [answer for answer in answers if not isinstance(answer, ToolFailure)]
        failures = [answer for answer in answers if isinstance(answer, ToolFailure)]
        if failures and not any(raw["documents"] for raw in raws):
            raise ToolFailure(ToolErrorCode.PARTIAL_RESULT) if raws else failures[0]
        return _merged(raws, request.top_k)


async def _asked(backend: RagBackend, request: RagRequest, deadline_seconds: float) -> Any:
    try:
        return await backend.search(request, deadline_seconds)
    except ToolFailure as failure:
        return failure


def _merged(raws: Sequence[Any], top_k: int) -> dict[str, Any]:
    places = zip_longest(*(raw["documents"] for raw in raws))
    documents = chain.from_iterable(sorted(filter(None, place), key=_is_reference) for place in places)
    shown = list(documents)[:top_k]
    levels = [document["relevance_level"] for document in sorted(shown, key=_is_reference)]
    return {
        "documents": shown,
        "relevance_level": levels[0] if levels else None,
        "total": sum(raw["total"] for raw in raws),
    }


def _is_reference(document: dict[str, Any]) -> bool:
    return bool(document["relevance_level"] != RelevanceLevel.HIGH.value)
