"""What a failed attempt was, as a stable kind; nothing of the provider's text, the prompt or the exception survives."""

from __future__ import annotations

import math
import time
from email.utils import parsedate_to_datetime
from typing import Any

import openai

from nodes.ports import ModelCallFailed, ModelFailureKind
from service.models.transport import Exchange

_STATUS = {
    401: ModelFailureKind.AUTHENTICATION,
    403: ModelFailureKind.AUTHENTICATION,
    429: ModelFailureKind.RATE_LIMITED,
    502: ModelFailureKind.UNAVAILABLE,
    503: ModelFailureKind.UNAVAILABLE,
    504: ModelFailureKind.UNAVAILABLE,
}
_FILTER_CODES = frozenset(
    {"content_filter", "content_policy_violation", "data_inspection_failed", "datainspectionfailed"}
)


def retry_after_seconds(header: str | None, now: float) -> float | None:
    """Read a `Retry-After` header: seconds or an HTTP date. None when absent or meaningless; never negative."""
    if not header or len(header) > 64:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - now
        except (ValueError, OverflowError, TypeError, IndexError):
            return None
        return max(0.0, seconds)
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def failure_of_status(status: int, retry_after: float | None = None) -> ModelCallFailed:
    """Map an HTTP status other than 2xx. A redirect is no answer to a model call: malformed."""
    if status in _STATUS:
        kind = _STATUS[status]
    elif status >= 500:
        kind = ModelFailureKind.SERVER_ERROR
    elif status >= 400:
        kind = ModelFailureKind.REQUEST_REFUSED
    else:
        kind = ModelFailureKind.MALFORMED_RESPONSE
    return ModelCallFailed(kind, retry_after=retry_after)


def failure_of(error: Exception, exchange: Exchange, now: float | None = None) -> ModelCallFailed:
    """Map whatever one attempt raised.

    `exchange` says how far the answer came: a status that is an error decides alone; after a 2xx status something of
    the answer had arrived; without a status nothing had.
    """
    moment = time.time() if now is None else now
    status = exchange.status if exchange.status is not None else _status_of(error)
    if status is not None and not 200 <= status < 300:
        if status == 400 and _is_filter(error):
            return ModelCallFailed(ModelFailureKind.CONTENT_FILTERED)
        return failure_of_status(status, retry_after_seconds(exchange.retry_after or _header_of(error), moment))
    if exchange.too_large:
        return ModelCallFailed(ModelFailureKind.MALFORMED_RESPONSE, answered=True)
    answered = status is not None
    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return ModelCallFailed(ModelFailureKind.TIMEOUT, answered=answered)
    if isinstance(error, openai.APIConnectionError):
        return ModelCallFailed(ModelFailureKind.CONNECTION, answered=answered)
    # With nothing sent the request itself could not be built; with a status the body could not be read.
    kind = ModelFailureKind.MALFORMED_RESPONSE if answered else ModelFailureKind.REQUEST_REFUSED
    return ModelCallFailed(kind, answered=answered)


def _status_of(error: Exception) -> int | None:
    return error.status_code if isinstance(error, openai.APIStatusError) else None


def _header_of(error: Exception) -> str | None:
    if not isinstance(error, openai.APIStatusError):
        return None
    header: str | None = error.response.headers.get("retry-after")
    return header


def _is_filter(error: Exception) -> bool:
    body: Any = getattr(error, "body", None)
    words = {getattr(error, "code", None), getattr(error, "type", None)}
    if isinstance(body, dict):
        words |= {value for value in (body.get("code"), body.get("type")) if isinstance(value, str)}
    return any(isinstance(word, str) and word.lower() in _FILTER_CODES for word in words)
