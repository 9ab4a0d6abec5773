from __future__ import annotations

import math

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.ports import ModelFailureKind as K
from service.models.failures import failure_of, failure_of_status, retry_after_seconds
from service.models.transport import Exchange


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0), ("0.5", 0.5), ("0", 0.0), (None, None), ("", None), ("-3", None), ("nan", None), ("inf", None),
        ("soon", None), ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0), ("Thu, 01 Jan 1970 00:00:05 GMT", 0.0),
        ("Thu, 99 Jan 1970 00:00:05 GMT", None), ("1" * 100, None),
    ],
)  # fmt: skip
def test_r118_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, now=10.0) == seconds


@given(st.text(max_size=80))
def test_retry_after_is_never_negative_nor_endless(header: str) -> None:
    seconds = retry_after_seconds(header, now=1e9)
    assert seconds is None or (seconds >= 0 and math.isfinite(seconds))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, K.REQUEST_REFUSED), (401, K.AUTHENTICATION), (402, K.REQUEST_REFUSED), (403, K.AUTHENTICATION),
        (404, K.REQUEST_REFUSED), (408, K.REQUEST_REFUSED), (422, K.REQUEST_REFUSED), (429, K.RATE_LIMITED),
        (500, K.SERVER_ERROR), (501, K.SERVER_ERROR), (502, K.UNAVAILABLE), (503, K.UNAVAILABLE), (504, K.UNAVAILABLE),
        (529, K.SERVER_ERROR), (301, K.MALFORMED_RESPONSE), (307, K.MALFORMED_RESPONSE),
    ],
)  # fmt: skip
def test_each_status_has_its_kind(status: int, kind: K) -> None:
    assert failure_of_status(status).kind is kind
    assert failure_of(ValueError("x"), Exchange(status=status)).kind is kind


def test_without_a_status_nothing_had_arrived() -> None:
    assert not failure_of(TimeoutError(), Exchange()).answered
    assert failure_of(TimeoutError(), Exchange()).kind is K.TIMEOUT
    assert failure_of(TimeoutError(), Exchange(status=200)).answered
    assert failure_of(ValueError("prompt text"), Exchange()).kind is K.REQUEST_REFUSED
    assert failure_of(ValueError("x"), Exchange(status=200)).kind is K.MALFORMED_RESPONSE


def test_the_failure_s_text_is_its_kind() -> None:
    failure = failure_of(openai.OpenAIError("provider says sk-secret"), Exchange(status=429, retry_after="3"))
    assert str(failure) == "RATE_LIMITED"
    assert failure.retry_after == 3.0
    assert failure.__cause__ is None
    assert failure.__context__ is None
