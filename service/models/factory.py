"""Which model a name stands for: `offline`, or `openai:NAME` at an OpenAI-compatible endpoint."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pydantic import SecretStr

from nodes.ports import ModelClient
from service.models.profile import LOCAL, resolve

OFFLINE = "offline"
_LIVE = re.compile(r"openai:([A-Za-z0-9][A-Za-z0-9_.:/@\-]{0,127})")
_KEY = re.compile(r"[\x21-\x7e]{1,4096}")
_ALLOWED = "allowed: offline, or openai:NAME with NAME of letters, digits and _.:/@- (at most 128 characters)"


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Model configuration. `api_key` is shown nowhere; `profile` None means: guess from the endpoint."""

    model: str = OFFLINE
    base_url: str | None = None
    api_key: SecretStr | None = field(default=None, repr=False)
    profile: str | None = None
    key_name: str = "OPENAI_API_KEY"
    url_name: str = "OPENAI_BASE_URL"
    """Variables that key and address came from: what is wrong with one is said under its name."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> ModelSettings:
        """Read SUPERBIZ_MODEL, OPENAI_BASE_URL, OPENAI_API_KEY and SUPERBIZ_MODEL_PROFILE; empty means unset."""
        values = {name: environ.get(name, "").strip() for name in _VARIABLES}
        key = values["OPENAI_API_KEY"]
        return cls(
            model=values["SUPERBIZ_MODEL"] or OFFLINE,
            base_url=values["OPENAI_BASE_URL"] or None,
            api_key=SecretStr(key) if key else None,
            profile=values["SUPERBIZ_MODEL_PROFILE"] or None,
        )


_VARIABLES = ("SUPERBIZ_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY", "SUPERBIZ_MODEL_PROFILE")


class SettingsModelFactory:
    """`ModelFactory` from settings; clients are built once per name."""

    def __init__(
        self,
        settings: ModelSettings,
        offline: ModelClient,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._settings = settings
        self._offline = offline
        self._new_id = new_id
        self._clients: dict[str, ModelClient] = {}
        if settings.model != OFFLINE:
            self.warm()

    def warm(self) -> None:
        """Load the provider's SDK now: it reads files, which an event loop must not do later.

        Done at construction where the default is live. A server that lets a Run name a live model calls it at start;
        commands with the offline model are spared the two seconds.
        """
        from service.models.chat import build_chat

        # A throwaway: some modules load at the first construction only.
        build_chat("none", None, SecretStr("none"), LOCAL)

    def client(self, name: str | None) -> ModelClient:
        """Return the client of `name`, None meaning the configured default.

        Raises:
            ValueError: no such model, or the settings of a live one are unusable; names the setting, never its value.
        """
        wanted = name or self._settings.model
        if wanted == OFFLINE:
            return self._offline
        if wanted not in self._clients:
            self._clients[wanted] = self._build(wanted)
        return self._clients[wanted]

    def _build(self, name: str) -> ModelClient:
        match = _LIVE.fullmatch(name)
        if match is None:
            raise ValueError(f"SUPERBIZ_MODEL: unknown model; {_ALLOWED}")
        settings = self._settings
        key = _checked_key(settings.api_key, settings.key_name)
        base_url = _checked_url(settings.base_url, settings.url_name)
        profile = resolve(match[1], base_url, settings.profile)
        from service.models.chat import build_chat
        from service.models.client import ChatModelClient

        return ChatModelClient(name, build_chat(match[1], base_url, key, profile), profile, self._new_id)


def _checked_key(key: SecretStr | None, name: str) -> SecretStr:
    if key is None:
        raise ValueError(
            f"{name}: missing; a live model needs it (any word for a server that asks for none), "
            "or set SUPERBIZ_MODEL=offline"
        )
    if not _KEY.fullmatch(key.get_secret_value()):
        raise ValueError(f"{name}: not usable; allowed: visible ASCII characters without spaces")
    return key


def _checked_url(url: str | None, name: str) -> str | None:
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.username or parts.password or parts.query or parts.fragment or len(url) > 2048:
        raise ValueError(
            f"{name}: not usable; allowed: http:// or https:// with host and path, "
            "without user, password, query or fragment"
        )
    return url
