"""Who may call: bearer tokens, compared in constant time; without tokens, this machine's own programs alone (R127, R134)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_address
from pathlib import Path

from service.settings import Settings, SettingsError

MIN_TOKEN_CHARS = 16
MIN_DISTINCT_CHARS = 8
MAX_TOKENS = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}")
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_ALLOWED = (
    f"NAME:TOKEN pairs; NAME of 1 to 64 letters, digits and _.- ; TOKEN of at least {MIN_TOKEN_CHARS} characters "
    f"({MIN_DISTINCT_CHARS} different ones) out of letters, digits and -._~+/="
)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Configured tokens as (name, digest): the tokens themselves are kept nowhere."""

    digests: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.digests)

    def owner(self, authorization: str | None) -> str | None:
        """Return the name of the token in an `Authorization` header, else None. Looks at every token, whatever comes."""
        scheme, _, token = (authorization or "").partition(" ")
        given = _digest(token.strip()) if scheme.lower() == "bearer" else _digest("")
        found: str | None = None
        for name, digest in self.digests:
            if compare_digest(digest, given):
                found = name
        return found


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def parse_tokens(pairs: Iterable[str], variable: str) -> Tokens:
    """Read NAME:TOKEN pairs. Raises SettingsError naming the variable and what is allowed, never a token."""
    tokens: dict[str, bytes] = {}
    for pair in pairs:
        name, colon, token = pair.partition(":")
        strong = len(token) >= MIN_TOKEN_CHARS and len(set(token)) >= MIN_DISTINCT_CHARS
        if not (colon and _NAME.fullmatch(name) and _TOKEN.fullmatch(token) and strong):
            raise SettingsError(f"{variable}: must hold {_ALLOWED}")
        if name in tokens or _digest(token) in tokens.values():
            raise SettingsError(f"{variable}: names and tokens must differ")
        tokens[name] = _digest(token)
    if not 0 < len(tokens) <= MAX_TOKENS:
        raise SettingsError(f"{variable}: must hold 1 to {MAX_TOKENS} {_ALLOWED}")
    return Tokens(tuple(tokens.items()))


def load_tokens(settings: Settings) -> Tokens:
    """Read the configured tokens; none where none are configured. Blocking. Raises SettingsError."""
    if settings.api_tokens is not None and settings.api_tokens_file is not None:
        raise SettingsError("SUPERBIZ_API_TOKENS: must not be set together with SUPERBIZ_API_TOKENS_FILE")
    if settings.api_tokens is not None:
        return parse_tokens(_entries(settings.api_tokens.get_secret_value()), "SUPERBIZ_API_TOKENS")
    if settings.api_tokens_file is None:
        return Tokens()
    return parse_tokens(_entries(_read(settings.api_tokens_file)), "SUPERBIZ_API_TOKENS_FILE")


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(1_000_000)
    except (OSError, UnicodeDecodeError):
        raise SettingsError("SUPERBIZ_API_TOKENS_FILE: the file cannot be read") from None


def _entries(text: str) -> list[str]:
    lines = (line.split("#", 1)[0] if line.lstrip().startswith("#") else line for line in text.splitlines())
    return [pair for line in lines for pair in re.split(r"[,\s]+", line) if pair]


def is_loopback(host: str) -> bool:
    """Say whether a host name or address means this machine. Pure."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """Return the host of a `Host` header, without its port. Pure."""
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.rpartition(":")[0] if header.count(":") == 1 else header
