"""Which model client a Run gets: the offline model, recorded answers, or a live endpoint, by settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from nodes.ports import ModelClient
from service.models.factory import OFFLINE, ModelSettings, SettingsModelFactory
from service.models.recorded import read_recorded
from service.settings import PROVIDER_KEY, RECORDED_PREFIX, Settings, env_name

PROVIDER_URL = "OPENAI_BASE_URL"


class ConfiguredModels:
    """`ModelFactory` over `Settings`. Recorded answers can only be configured, never asked for by a Run: they name a file."""

    def __init__(self, settings: Settings, env: Mapping[str, str], offline: ModelClient) -> None:
        self._configured = settings.model
        self._live = SettingsModelFactory(model_settings(settings, env), offline)
        self._recorded: ModelClient | None = None

    def client(self, name: str | None) -> ModelClient:
        """Return the client of `name`, None meaning the configured one. Raises ValueError naming what is allowed."""
        if name is None and self._configured.startswith(RECORDED_PREFIX):
            if self._recorded is None:
                self._recorded = read_recorded(Path(self._configured.removeprefix(RECORDED_PREFIX)))
            return self._recorded
        return self._live.client(name)


def model_settings(settings: Settings, env: Mapping[str, str]) -> ModelSettings:
    """Join the settings with the provider SDK's own variables; SUPERBIZ_* win."""
    model = OFFLINE if settings.model.startswith(RECORDED_PREFIX) else settings.model
    key = settings.api_key or _secret(env.get(PROVIDER_KEY, ""))
    base_url = settings.base_url or env.get(PROVIDER_URL, "").strip() or None
    return ModelSettings(
        model,
        base_url,
        key,
        env.get("SUPERBIZ_MODEL_PROFILE", "").strip() or None,
        key_name=env_name("api_key") if settings.api_key else PROVIDER_KEY,
        url_name=env_name("base_url") if settings.base_url else PROVIDER_URL,
    )


def _secret(text: str) -> SecretStr | None:
    return SecretStr(text.strip()) if text.strip() else None
