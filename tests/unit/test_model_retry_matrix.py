from __future__ import annotations

import pytest

from graph.contract import Component
from nodes.model_call import retry_allowed, retry_delay
from nodes.ports import ModelCallFailed
from nodes.ports import ModelFailureKind as K

RETRIED = {
    Component.INTENT_ROUTER: {
        K.TIMEOUT, K.CONNECTION, K.RATE_LIMITED, K.UNAVAILABLE, K.SERVER_ERROR,
        K.MALFORMED_RESPONSE, K.OUTPUT_TRUNCATED,
    },
    Component.DIAGNOSIS_AGENT: {K.CONNECTION, K.RATE_LIMITED, K.UNAVAILABLE},
}  # fmt: skip
RETRIED[Component.SEMANTIC_GUARD] = RETRIED[Component.INTENT_ROUTER]


@pytest.mark.parametrize("component", Component)
@pytest.mark.parametrize("kind", K)
def test_r118_the_matrix(component: Component, kind: K) -> None:
    failure = ModelCallFailed(kind)
    assert retry_allowed(component, failure, 1) is (kind in RETRIED.get(component, set()))
    assert not retry_allowed(component, failure, 2)


@pytest.mark.parametrize("kind", K)
def test_r118_the_diagnosis_agent_never_repeats_what_was_answered(kind: K) -> None:
    assert not retry_allowed(Component.DIAGNOSIS_AGENT, ModelCallFailed(kind, answered=True), 1)


def test_r118_the_router_repeats_a_connection_lost_in_the_answer() -> None:
    assert retry_allowed(Component.INTENT_ROUTER, ModelCallFailed(K.CONNECTION, answered=True), 1)


@pytest.mark.parametrize(
    ("retry_after", "remaining", "expected"),
    [(7.0, 30.0, 7.0), (7.0, 7.0, None), (0.0, 1.0, 0.0), (1e9, 240.0, None), (None, 60.0, 2.0), (None, 0.0, None)],
)
def test_r118_the_wait_fits_the_time_budget(
    retry_after: float | None, remaining: float, expected: float | None
) -> None:
    assert retry_delay(ModelCallFailed(K.RATE_LIMITED, retry_after=retry_after), remaining) == expected
