"""The RAG result: from a raw response to `agent_result`, to the model observation (R51-R55). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ConfigDict, Field, ValidationError

from tools.contract import MAX_OBSERVATION_BYTES, ContractModel, EvidenceStatus, RelevanceLevel, Scope
from tools.evidence_tool import ObservationContractViolation
from tools.masking import mask_text
from tools.rag.chunks import MAX_CONTENT_CHARS, MAX_TITLE_CHARS
from tools.rag.cutting import cut_markdown
from tools.rag.request import MAX_TOP_K

MAX_SOURCE_CHARS = 160
LEAST_CONTENT_CHARS = 200
"""Characters every document keeps before the better ranked ones get more."""
_LONGEST_ID = "x" * 128
_STOP_PAIR = {"stop_required": True, "reason": "INFORMATION_SATURATED"}


class RagDocument(ContractModel):
    """One document of an `agent_result` (R129). `score` is 0 to 1 and stays out of the model's sight (R51)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    document_id: str = Field(min_length=1, max_length=256)
    title: str
    source: str
    content: str = Field(max_length=MAX_CONTENT_CHARS)
    score: float = Field(ge=0, le=1)
    relevance_level: RelevanceLevel = Field(strict=False)


class RagAgentResult(ContractModel):
    """The canonical, bounded and masked RAG result (R129). `total` counts what reached a level, returned or not."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    documents: list[RagDocument] = Field(max_length=MAX_TOP_K)
    relevance_level: RelevanceLevel | None = Field(strict=False)
    total: int = Field(ge=0)
    truncated: bool


def agent_result(raw: Any, scope: Scope) -> RagAgentResult:
    """Normalize, mask and bound a backend's raw response (R53, R55). Raises ObservationContractViolation.

    Both `relevanceLevel` and `relevance_level` are read; only the latter leaves. The result's level is the best of its
    documents' levels, and a level the backend gives for the whole must agree with it.
    """
    response = _mapping(raw)
    given = response.get("documents")
    if not isinstance(given, list):
        raise ObservationContractViolation("documents must be a list")
    documents = [_document(_mapping(item)) for item in given[:MAX_TOP_K]]
    best = _best([document.relevance_level for document in documents])
    stated = _level(response)
    if stated is not None and stated is not _best([_required_level(_mapping(item)) for item in given]):
        raise ObservationContractViolation("relevance_level disagrees with the documents")
    total = response.get("total", len(given))
    if not isinstance(total, int) or isinstance(total, bool) or total < 0:
        raise ObservationContractViolation("total must be a count")
    cut = len(given) > MAX_TOP_K or any(
        document.content != mask_text(item["content"]) for document, item in zip(documents, given, strict=False)
    )
    fitted = fit_documents(documents, scope)
    return RagAgentResult(
        documents=fitted,
        relevance_level=best,
        total=max(total, len(given)),
        truncated=cut or fitted != documents,
    )


def read_agent_result(value: Mapping[str, Any]) -> RagAgentResult:
    """Read a stored `agent_result`. Raises ObservationContractViolation."""
    try:
        return RagAgentResult.model_validate(dict(value))
    except ValidationError:
        raise ObservationContractViolation("agent_result does not fit the RAG contract") from None


def evidence_status(result: RagAgentResult) -> EvidenceStatus:
    """EVIDENCE_FOUND when any document is left, else NO_EVIDENCE (R54)."""
    return EvidenceStatus.EVIDENCE_FOUND if result.documents else EvidenceStatus.NO_EVIDENCE


def observe(tool_call_id: str, scope: Scope, result: RagAgentResult) -> dict[str, Any]:
    """Serialize the whitelist of R51; at most 8 KiB also with the stop pair. Raises ObservationContractViolation."""
    documents = fit_documents(result.documents, scope)
    observation = _observation(tool_call_id, scope, documents, result.truncated or documents != result.documents)
    if _size(observation | _STOP_PAIR) > MAX_OBSERVATION_BYTES:
        raise ObservationContractViolation("observation larger than 8 KiB")
    return observation


def fit_documents(documents: Sequence[RagDocument], scope: Scope) -> list[RagDocument]:
    """Shorten contents so that the observation stays within 8 KiB: every document keeps some, the best keep most."""
    kept = list(documents)
    while kept:
        least = [_shortened(document, LEAST_CONTENT_CHARS) for document in kept]
        if _room(least, scope) >= 0:
            break
        least = [_shortened(document, 0) for document in kept]
        if _room(least, scope) >= 0:
            break
        kept.pop()
    else:
        return []
    for place, document in enumerate(kept):
        without = [*least[:place], _shortened(document, 0), *least[place + 1 :]]
        least[place] = _longest(document, _room(without, scope), least[place])
    return least


def _longest(document: RagDocument, room: int, least: RagDocument) -> RagDocument:
    """Return the document with as much content as fits `room` bytes of JSON, found by bisection."""
    low, high = len(least.content), len(document.content)
    if _size(document.content) - 2 <= room:
        return document
    while low < high:
        middle = (low + high + 1) // 2
        if _size(document.content[:middle]) - 2 <= room:
            low = middle
        else:
            high = middle - 1
    shortened = _shortened(document, low)
    return shortened if _size(shortened.content) - 2 <= room else least


def _shortened(document: RagDocument, chars: int) -> RagDocument:
    return document.model_copy(update={"content": cut_markdown(document.content, chars)})


def _room(documents: Sequence[RagDocument], scope: Scope) -> int:
    observation = _observation(_LONGEST_ID, scope, documents, False) | _STOP_PAIR
    return MAX_OBSERVATION_BYTES - _size(observation)


def _observation(tool_call_id: str, scope: Scope, documents: Sequence[RagDocument], truncated: bool) -> dict[str, Any]:
    level = _best([document.relevance_level for document in documents])
    return {
        "tool_call_id": tool_call_id,
        "scope": scope.normalized,
        "evidence_status": (EvidenceStatus.EVIDENCE_FOUND if documents else EvidenceStatus.NO_EVIDENCE).value,
        **({"relevance_level": level.value} if level else {}),
        "documents": [
            {
                "document_id": document.document_id,
                "title": document.title,
                "source": document.source,
                "content": document.content,
                "relevance_level": document.relevance_level.value,
            }
            for document in documents
        ],
        "truncated": truncated,
    }


def _document(item: Mapping[str, Any]) -> RagDocument:
    texts = {key: item.get(key) for key in ("document_id", "title", "source", "content")}
    score = item.get("score")
    if not all(isinstance(text, str) for text in texts.values()) or isinstance(score, bool):
        raise ObservationContractViolation("document fields must be text")
    masked = {key: mask_text(str(text)) for key, text in texts.items()}
    try:
        return RagDocument(
            document_id=masked["document_id"],
            title=masked["title"][:MAX_TITLE_CHARS],
            source=masked["source"] if len(masked["source"]) <= MAX_SOURCE_CHARS else _tail(masked["source"]),
            content=cut_markdown(masked["content"], MAX_CONTENT_CHARS),
            score=score,  # type: ignore[arg-type]  # checked by the model
            relevance_level=_required_level(item),
        )
    except ValidationError:
        raise ObservationContractViolation("document does not fit the RAG contract") from None


def _tail(source: str) -> str:
    return "…" + source[-MAX_SOURCE_CHARS + 1 :]


def _level(item: Mapping[str, Any]) -> RelevanceLevel | None:
    """Read a level under either name; absent and null are the same (R53)."""
    stated = [item[key] for key in ("relevance_level", "relevanceLevel") if item.get(key) is not None]
    if any(value not in list(RelevanceLevel) for value in stated) or len({str(value) for value in stated}) > 1:
        raise ObservationContractViolation("relevance_level must be HIGH or REFERENCE, the same under both names")
    return RelevanceLevel(stated[0]) if stated else None


def _required_level(item: Mapping[str, Any]) -> RelevanceLevel:
    level = _level(item)
    if level is None:
        raise ObservationContractViolation("document without relevance_level")
    return level


def _best(levels: Sequence[RelevanceLevel]) -> RelevanceLevel | None:
    if not levels:
        return None
    return RelevanceLevel.HIGH if RelevanceLevel.HIGH in levels else RelevanceLevel.REFERENCE


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ObservationContractViolation("an object was expected")
    return value


def _size(value: Any) -> int:
    try:
        return len(json.dumps(value, ensure_ascii=False).encode())
    except (ValueError, TypeError):
        raise ObservationContractViolation("not JSON data") from None
