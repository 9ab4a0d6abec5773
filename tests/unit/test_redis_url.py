"""What SUPERBIZ_REDIS_URL may say (R127: secrets stay out of every text)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.canonical.redis_url import RedisAddress, RedisUrlError, parse_redis_url


def address(**changes: object) -> RedisAddress:
    values: dict[str, object] = {
        "host": "h", "port": 6379, "path": "", "db": 0, "username": None, "password": None, "tls": None,
    }  # fmt: skip
    return RedisAddress(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", address()),
        ("redis://h/", address()),
        ("redis://h:7000/3", address(port=7000, db=3)),
        ("redis://[::1]:7000", address(host="::1", port=7000)),
        ("redis://:p%40ss%3A%2F@h", address(password="p@ss:/")),
        ("redis://%E7%94%A8:x@h", address(username="用", password="x")),
        ("rediss://u:p@h/1", address(db=1, username="u", password="p", tls={})),
        (
            "rediss://h?ssl_ca_certs=/etc/ca%20x.pem&ssl_certfile=c.pem&ssl_keyfile=k.pem&ssl_password=s%26",
            address(
                tls={
                    "ssl_ca_certs": "/etc/ca x.pem",
                    "ssl_certfile": "c.pem",
                    "ssl_keyfile": "k.pem",
                    "ssl_password": "s&",
                }
            ),
        ),
        ("unix:///run/redis.sock", address(host="", path="/run/redis.sock")),
        ("unix://u:p@/run/r%20x.sock?db=2", address(host="", path="/run/r x.sock", db=2, username="u", password="p")),
    ],
)
def test_a_url_names_server_account_and_tls(url: str, expected: RedisAddress) -> None:
    assert parse_redis_url(url) == expected


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "allowed schemes"),
        ("h:6379", "allowed schemes"),
        ("http://u:hunter2@h", "redis, rediss, unix"),
        ("redis://", "a host is needed"),
        ("redis://:hunter2@", "a host is needed"),
        ("redis://u@h", "a user needs a password"),
        ("redis://h:hunter2", "not a URL"),
        ("redis://h:99999", "not a URL"),
        ("redis://[::1", "not a URL"),
        ("redis://h/hunter2", "the database is a number"),
        ("redis://h/-1", "the database is a number"),
        ("redis://h/1/2", "the database is a number"),
        ("redis://u:p@h#hunter2", "%23"),
        ("redis://u:p@h/0#", "%23"),
        ("redis://u:hunter2#x@h", "%23"),
        ("redis://u:hunter2 @h", "no spaces"),
        ("redis://h\n", "control characters"),
        ("redis://h?retry_on_timeout=true", "allowed with redis are none"),
        ("redis://h?ssl_ca_certs=x", "allowed with redis are none"),
        ("rediss://h?ssl_cert_reqs=none", "allowed with rediss are ssl_ca_certs"),
        ("rediss://h?ssl_check_hostname=false", "allowed with rediss are ssl_ca_certs"),
        ("rediss://h?decode_responses=true", "allowed with rediss are ssl_ca_certs"),
        ("rediss://h?ssl_ca_certs=", "with a value"),
        ("rediss://h?ssl_ca_certs=a&ssl_ca_certs=b", "each once"),
        ("rediss://h?ssl_keyfile=hunter2", "needs ssl_certfile"),
        ("unix://", "unix:///path"),
        ("unix://run/redis.sock", "unix:///path"),
        ("unix:///r.sock?db=x", "the database is a number"),
        ("redis://h/" + "1" * 3000, "at most 2000"),
    ],
)
def test_what_a_url_may_not_say_is_refused_without_its_text(url: str, says: str) -> None:
    with pytest.raises(RedisUrlError) as caught:
        parse_redis_url(url)
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_secrets_are_not_in_the_repr() -> None:
    shown = repr(parse_redis_url("rediss://hunter2:hunter3@h?ssl_certfile=c&ssl_password=hunter4"))
    assert "hunter" not in shown


@given(st.text(max_size=80) | st.from_regex(r"(redis|rediss|unix)://[ -~]{0,60}", fullmatch=True))
def test_any_text_is_an_address_or_one_kind_of_error(url: str) -> None:
    try:
        parsed = parse_redis_url(url)
    except RedisUrlError:
        return
    assert bool(parsed.host) != bool(parsed.path)
    assert 0 < parsed.port <= 65535


@given(password=st.text(min_size=1, max_size=30), user=st.text(min_size=1, max_size=30))
def test_any_password_can_be_written(user: str, password: str) -> None:
    from urllib.parse import quote

    try:
        written = f"redis://{quote(user, safe='')}:{quote(password, safe='')}@h"
    except UnicodeEncodeError:
        return
    parsed = parse_redis_url(written)
    assert (parsed.username, parsed.password) == (user, password)
