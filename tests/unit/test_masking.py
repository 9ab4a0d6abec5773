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


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("passphrase=hunter2", "hunter2"),
        ("db pw=hunter2", "hunter2"),
        ("DB_PW: hunter2", "hunter2"),
        ("MYSQL_PASS=hunter2", "hunter2"),
        ("Set-Cookie: session=hunter2; Path=/; HttpOnly", "hunter2"),
        ('{"cookie": "theme=dark; sid=hunter2"}', "hunter2"),
        ("mysql://u:p@hunter2@db:3306/x", "hunter2"),
        ("mysql://u:p/hunter2@db:3306/x", "hunter2"),
        (
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\nhunter2\n-----END PGP PRIVATE KEY BLOCK-----",
            "hunter2",
        ),
        (f"-----BEGIN RSA PRIVATE KEY-----\n{'A' * 30_000}hunter2", "hunter2"),
        ('{"password":123456}', "123456"),
        ('{"secret":{"x":"hunter2"}}', "hunter2"),
        ('{"secret":{"x":{"y":"a", "z":"hunter2"}}}', "hunter2"),
        ('{"secret":{"x":{"y":{"z":"hunter2"}}}}', "hunter2"),
        ('{"tokens": ["a", "hunter2"]}', "hunter2"),
        ('message="{\\"password\\":\\"hunter2\\"}"', "hunter2"),
        (r'{"password":"a\"hunter2"}', "hunter2"),
        (f'secret="{"x" * 300}hunter2"', "hunter2"),
        ('password="hunter2', "hunter2"),
        (f"{'a' * 60}_password=hunter2", "hunter2"),
    ],
)
def test_r55_secrets_of_other_forms_are_masked(text: str, secret: str) -> None:
    masked = mask_text(text)
    assert secret not in masked
    assert MASK in masked
    assert mask_text(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "http://gateway:8080/users/me@example.org",
        "cookie: expired",
        "npw: 3 npwd=4",
        "pass: 12 fail: 3",
        "redis://h1:6379,h2:6379 mail me@example.org",
        "bypass=true",
        "PUBLIC KEY BLOCK",
    ],
)
def test_r55_what_holds_no_secret_stays_readable(text: str) -> None:
    assert mask_text(text) == text


def test_r55_several_addresses_keep_their_hosts() -> None:
    masked = mask_text("mysql://u:a@h1/x?v@1,mysql://u:b@c@h2/y")
    assert masked == f"mysql://u:{MASK}@h1/x?v@1,mysql://u:{MASK}@h2/y"


def test_r55_everything_under_a_secret_name_is_masked_and_counts_of_tokens_are_none() -> None:
    assert mask_value({"password": 123456, "secret": {"x": "y"}, "tls.secret.crt": "z", "token": ["a", {"b": 1}]}) == {
        "password": MASK,
        "secret": MASK,
        "tls.secret.crt": MASK,
        "token": [MASK, MASK],
    }
    counted = {"total_tokens": 7, "tokens": {"prompt": 3}, "token": None, "secret": True}
    assert mask_value(counted) == counted
