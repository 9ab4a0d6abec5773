"""Retry matrix of model calls (R118), pure. The loop that uses it is the nodes'."""

from __future__ import annotations

from graph.contract import Component
from nodes.ports import ModelCallFailed, ModelFailureKind

MAX_ATTEMPTS = 2
"""Attempts of the components that may repeat a call at all (R118)."""

_TECHNICAL = frozenset(
    {
        ModelFailureKind.TIMEOUT,
        ModelFailureKind.CONNECTION,
        ModelFailureKind.RATE_LIMITED,
        ModelFailureKind.UNAVAILABLE,
        ModelFailureKind.SERVER_ERROR,
    }
)
_UNPARSABLE = frozenset({ModelFailureKind.MALFORMED_RESPONSE, ModelFailureKind.OUTPUT_TRUNCATED})
"""A node that cannot parse the text of a reply raises MALFORMED_RESPONSE itself, to be judged here as well."""

_NOTHING_ARRIVED = frozenset({ModelFailureKind.CONNECTION, ModelFailureKind.RATE_LIMITED, ModelFailureKind.UNAVAILABLE})
_RETRIED: dict[Component, frozenset[ModelFailureKind]] = {
    Component.INTENT_ROUTER: _TECHNICAL | _UNPARSABLE,
    Component.SEMANTIC_GUARD: _TECHNICAL | _UNPARSABLE,
    Component.DIAGNOSIS_AGENT: _NOTHING_ARRIVED,
}
_DEFAULT_DELAY: dict[ModelFailureKind, float] = {
    ModelFailureKind.RATE_LIMITED: 2.0,
    ModelFailureKind.UNAVAILABLE: 1.0,
    ModelFailureKind.SERVER_ERROR: 1.0,
    ModelFailureKind.CONNECTION: 0.5,
}


def retry_allowed(component: Component, failure: ModelCallFailed, attempt: int) -> bool:
    """Say whether `component` may try again after its `attempt`-th attempt (from 1) failed so.

    The Diagnosis Agent only where nothing of an answer had arrived.
    """
    if attempt >= MAX_ATTEMPTS or failure.kind not in _RETRIED.get(component, frozenset()):
        return False
    return not (component is Component.DIAGNOSIS_AGENT and failure.answered)


def retry_delay(failure: ModelCallFailed, remaining_seconds: float) -> float | None:
    """Seconds to wait before the next attempt: the provider's wish, else a fixed short pause.

    None when the wait would use up what remains of the time budget: then there is no second attempt.
    """
    delay = failure.retry_after if failure.retry_after is not None else _DEFAULT_DELAY.get(failure.kind, 0.0)
    return delay if 0 <= delay < remaining_seconds else None
