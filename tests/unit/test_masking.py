"""Secrets are masked before anything becomes an agent_result (R55)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import masking
from tools.masking import MASK, mask_text, mask_value


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("password=hunter2", "hunter2"),
        ('{"password": "hunter2"}', "hunter2"),
        ("DB_PASSWORD: 'hunter2'", "hunter2"),
        ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
        ("api_key = qwertyuiop", "qwertyuiop"),
        ("mysql://root:hunter2@db:3306/x", "hunter2"),
        ("token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
    ],
)
def test_r55_a_secret_is_masked(text: str, secret: str) -> None:
    masked = mask_text(text)
    assert secret not in masked
    assert MASK in masked


@pytest.mark.parametrize(
    "text", ["token: expired at 10:00", "password: missing", "credential is invalid", "tokens used 5"]
)
def test_r55_messages_about_secrets_stay_readable(text: str) -> None:
    assert mask_text(text) == text


def test_r55_a_secret_column_is_masked_whole() -> None:
    assert mask_value({"user": "a", "password": "x", "nested": [{"api_key": "y", "n": 1}]}) == {
        "user": "a",
        "password": MASK,
        "nested": [{"api_key": MASK, "n": 1}],
    }


@given(st.text(max_size=300))
def test_r55_masking_twice_is_masking_once(text: str) -> None:
    once = mask_text(text)
    assert mask_text(once) == once


@given(st.sampled_from(["password=", "token: ", '"secret": "', "pwd='"]), st.text(alphabet="ab1]\"' ", max_size=30))
def test_r55_masking_twice_is_masking_once_after_a_key(key: str, value: str) -> None:
    once = mask_text(key + value)
    assert mask_text(once) == once


KEYS = "password Pa\u017f\u017fWord api_key ap\u0130-Key pr\u0130vate_key to\u212aen client-secret pwd authorization"
OTHERS = [
    "Bearer",
    "bas\u0131c",
    "BAS\u0130C",
    "ba\u017fic",
    "sk-",
    "xoxb_",
    "A" * 18,
    "eyJ" + "a" * 9,
    "AKIA" + "0" * 16,
]
OTHERS += ["-----BEGIN RSA PRIVATE KEY-----", "http://u:p@h", "\n", "[masked]", "missing", "."]
WORDS = st.sampled_from([*KEYS.split(), *OTHERS, "=", ": ", "hunter2", "abc", "'q q'", " "])


@given(st.lists(WORDS, max_size=8).map("".join))
def test_r55_looking_for_words_first_changes_nothing(text: str) -> None:
    expected = text
    for _, pattern, replacement in masking._PATTERNS:
        expected = pattern.sub(replacement, expected)
    assert mask_text(text) == expected
