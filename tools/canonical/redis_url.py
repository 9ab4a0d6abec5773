"""Reads `SUPERBIZ_REDIS_URL`: which server, who asks, how TLS is checked. Pure.

    redis://[[user]:password@]host[:port][/db]
    rediss://…?ssl_ca_certs=FILE&ssl_certfile=FILE&ssl_keyfile=FILE
    unix://[[user]:password@]/path/of/socket[?db=N]

User and password may be percent-encoded. Behaviour of the client (retries, timeouts, pool, decoding) is no matter of the
URL, and a server's certificate and name are always checked: options that would change either are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

SCHEMES = ("redis", "rediss", "unix")
DEFAULT_PORT = 6379
MAX_URL_CHARS = 2000
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password")
"""What a `rediss` URL may say: file of the CA, of the client's certificate and of its key, password of that key."""

_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_DATABASE = re.compile(r"^[0-9]{1,5}$")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")


class RedisUrlError(ValueError):
    """The URL cannot be used; the message names the part and what is allowed, never a value."""


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A server and how to reach it. `path` is set for a socket file, `host` and `port` otherwise.

    `tls` is None without TLS; else it holds TLS_OPTIONS that were given. Secrets stay out of `repr`.
    """

    host: str
    port: int
    path: str
    db: int
    username: str | None = field(repr=False)
    password: str | None = field(repr=False)
    tls: dict[str, str] | None = field(repr=False)

    def files(self) -> dict[str, str]:
        """Return the TLS files that must be readable, by option."""
        return {name: value for name, value in (self.tls or {}).items() if name in _TLS_FILES}


def parse_redis_url(url: str) -> RedisAddress:
    """Read a URL. Raises RedisUrlError."""
    if len(url) > MAX_URL_CHARS or _UNPRINTABLE.search(url):
        raise RedisUrlError(f"at most {MAX_URL_CHARS} characters, no spaces or control characters")
    if "#" in url:
        raise RedisUrlError("'#' must be written %23")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise RedisUrlError("not a URL; host or port cannot be read") from None
    if parts.scheme not in SCHEMES:
        raise RedisUrlError(f"allowed schemes are {', '.join(SCHEMES)}")
    host, path = _place(parts)
    options = _options(parts)
    username, password = unquote(parts.username or "") or None, unquote(parts.password or "") or None
    if username is not None and password is None:
        raise RedisUrlError("a user needs a password")
    tls = {name: options[name] for name in TLS_OPTIONS if name in options} if parts.scheme == "rediss" else None
    return RedisAddress(host, port or DEFAULT_PORT, path, _database(parts, options), username, password, tls)


def _place(parts: SplitResult) -> tuple[str, str]:
    if parts.scheme == "unix":
        path = unquote(parts.path)
        if parts.hostname or not path.strip("/"):
            raise RedisUrlError("unix: the absolute path of a socket is needed, as unix:///path")
        return "", path
    if not parts.hostname:
        raise RedisUrlError("a host is needed")
    return parts.hostname, ""


def _options(parts: SplitResult) -> dict[str, str]:
    allowed = {"redis": (), "rediss": TLS_OPTIONS, "unix": ("db",)}[parts.scheme]
    pairs: list[tuple[str, Any]] = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(pairs)
    if len(options) != len(pairs) or not options.keys() <= set(allowed) or not all(options.values()):
        known = ", ".join(allowed) or "none"
        raise RedisUrlError(f"options after '?': allowed with {parts.scheme} are {known}, each once and with a value")
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise RedisUrlError("ssl_keyfile needs ssl_certfile")
    return options


def _database(parts: SplitResult, options: dict[str, str]) -> int:
    text = options.get("db", "") if parts.scheme == "unix" else parts.path.removeprefix("/")
    if text and not _DATABASE.match(text):
        raise RedisUrlError("the database is a number, as redis://host/0")
    return int(text or 0)
