"""Settings: defaults of the decisions, bounds, cross checks, secrets (R2, R67, R117, R127, R141)."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.settings import Settings, SettingsError, load_settings, missing_secrets, require_secrets
from tools.catalog import Catalog, DatasourceEntry


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"SUPERBIZ_{name.upper()}", raising=False)


def catalog(*dsn_envs: str) -> Catalog:
    sources = tuple(
        DatasourceEntry(name=f"db{index}", dsn_env=name, tables={"t": ["c"]}) for index, name in enumerate(dsn_envs)
    )
    return Catalog(base=Path("."), datasources=sources)


def test_r2_r67_r117_defaults_are_the_decided_values() -> None:
    settings = load_settings()
    assert (settings.no_gain_threshold, settings.protocol_violation_threshold) == (3, 2)
    assert (settings.budget_model_calls, settings.budget_tool_calls, settings.budget_tokens) == (24, 16, 400_000)
    assert (settings.budget_observation_bytes, settings.budget_wall_seconds) == (128 * 1024, 240)
    assert (settings.reserve_model_calls, settings.reserve_tokens, settings.reserve_seconds) == (3, 60_000, 45)
    assert (settings.run_timeout_seconds, settings.canonical_ttl_seconds, settings.archive_days) == (300, 3600, 30)
    assert (settings.model, settings.language, settings.is_live) == ("offline", "zh", False)
    assert settings.resolved_database_url().endswith("/.superbiz/superbiz.db")


def test_the_environment_sets_values_and_overrides_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERBIZ_NO_GAIN_THRESHOLD", "5")
    monkeypatch.setenv("SUPERBIZ_LANGUAGE", "en")
    monkeypatch.setenv("SUPERBIZ_MODEL", "")
    settings = load_settings(language="zh")
    assert (settings.no_gain_threshold, settings.language, settings.model) == (5, "zh", "offline")


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("SUPERBIZ_NO_GAIN_THRESHOLD", "0", "greater than or equal to 1"),
        ("SUPERBIZ_PROTOCOL_VIOLATION_THRESHOLD", "1", "greater than or equal to 2"),
        ("SUPERBIZ_NO_GAIN_THRESHOLD", "many", "valid integer"),
        ("SUPERBIZ_LANGUAGE", "fr", "'zh' or 'en'"),
        ("SUPERBIZ_CANONICAL_TTL_SECONDS", "300", "SUPERBIZ_RUN_TIMEOUT_SECONDS must be less than"),
        ("SUPERBIZ_RUN_TIMEOUT_SECONDS", "3600", "less than SUPERBIZ_CANONICAL_TTL_SECONDS"),
        ("SUPERBIZ_BUDGET_WALL_SECONDS", "300", "less than SUPERBIZ_RUN_TIMEOUT_SECONDS"),
        ("SUPERBIZ_RESERVE_MODEL_CALLS", "24", "less than SUPERBIZ_BUDGET_MODEL_CALLS"),
        ("SUPERBIZ_RESERVE_TOKENS", "400000", "less than SUPERBIZ_BUDGET_TOKENS"),
        ("SUPERBIZ_RESERVE_SECONDS", "240", "less than SUPERBIZ_BUDGET_WALL_SECONDS"),
        ("SUPERBIZ_RUN_TIMEOUT_SECONDS", "nan", "SUPERBIZ_RUN_TIMEOUT_SECONDS"),
        ("SUPERBIZ_CANONICAL_TTL_SECONDS", "inf", "SUPERBIZ_CANONICAL_TTL_SECONDS"),
        ("SUPERBIZ_MODEL", "a model", "openai:NAME"),
        ("SUPERBIZ_BASE_URL", "file:///etc/passwd", "http:// or https://"),
        ("SUPERBIZ_REDIS_URL", "http://u:hunter2@h", "redis, rediss, unix"),
        ("SUPERBIZ_REDIS_URL", "redis://u:hunter2@h/0?ssl_cert_reqs=none", "allowed with redis are none"),
        ("SUPERBIZ_DATABASE_URL", "sqlite://", "needs a file"),
        ("SUPERBIZ_DATABASE_URL", "mssql://u:hunter2@h/d", "allowed schemes"),
        ("SUPERBIZ_DATABASE_URL", "hunter2", "not a database URL"),
    ],
)
def test_r67_r117_r141_bad_values_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    message = str(caught.value)
    assert variable in message
    assert expected in message
    assert "hunter2" not in message
    assert "\n" not in message
    assert caught.value.__cause__ is None


def test_r141_run_timeout_just_below_the_ttl_is_accepted() -> None:
    assert load_settings(canonical_ttl_seconds=301).canonical_ttl_seconds == 301


def test_several_contradictions_are_reported_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(reserve_tokens=400_000, reserve_model_calls=24)
    assert "SUPERBIZ_RESERVE_TOKENS" in str(caught.value)
    assert "SUPERBIZ_RESERVE_MODEL_CALLS" in str(caught.value)


def test_r127_live_mode_without_its_secrets_is_refused() -> None:
    live = load_settings(model="openai:some-model")
    assert missing_secrets(live, catalog(), {}) == ("SUPERBIZ_API_KEY",)
    with pytest.raises(SettingsError, match="SUPERBIZ_API_KEY, ORDERS_DSN"):
        require_secrets(live, catalog("ORDERS_DSN"), {"ORDERS_DSN": " "})
    blank = load_settings(model="openai:some-model", api_key=" ")
    assert missing_secrets(blank, catalog(), {}) == ("SUPERBIZ_API_KEY",)


def test_r127_offline_mode_needs_only_what_the_catalogue_names() -> None:
    offline = load_settings()
    require_secrets(offline, catalog(), {})
    require_secrets(offline, catalog("ORDERS_DSN"), {"ORDERS_DSN": "x"})
    assert missing_secrets(offline, catalog("ORDERS_DSN", "ORDERS_DSN"), {}) == ("ORDERS_DSN",)


def test_r127_secrets_do_not_show() -> None:
    settings = load_settings(
        api_key="hunter2", database_url="postgresql://u:hunter2@h/d", redis_url="redis://:hunter2@h"
    )
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings.model_dump())
    assert "hunter2" not in settings.model_dump_json()
    assert settings.resolved_database_url() == "postgresql://u:hunter2@h/d"
