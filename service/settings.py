"""Settings from the environment, prefix `SUPERBIZ_`: the one place that holds values an operator may change (R155).

Every command reads them first: what only some values need (SQLAlchemy, LangGraph) is imported where such a value is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, StringConstraints, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from graph.budget import BudgetLimits
from graph.context import DiagnosisContext
from tools.canonical.redis_url import parse_redis_url
from tools.catalog import Catalog
from tools.rag.folder import MAX_FILE_BYTES

PREFIX = "SUPERBIZ_"
OFFLINE = "offline"
RECORDED_PREFIX = "scripted:"
DATABASE_FILE = "superbiz.db"
PROVIDER_KEY = "OPENAI_API_KEY"
"""The provider SDK's own variable, read where SUPERBIZ_API_KEY is not set."""
_MAX_MESSAGE_CHARS = 300
_MODEL = rf"^({OFFLINE}|openai:[A-Za-z0-9][A-Za-z0-9_.:/@\-]{{0,127}}|{RECORDED_PREFIX}[^\x00-\x1f]{{1,1000}})$"
_PATTERNS = {
    "model": f"must be {OFFLINE}, openai:NAME or {RECORDED_PREFIX}FILE (of recorded answers)",
    "base_url": "must be an http:// or https:// URL",
    "host_url": "must be an http:// or https:// URL",
}


class SettingsError(Exception):
    """The settings cannot be used; one bounded line names each variable and what is allowed, never a value."""


def env_name(field: str) -> str:
    """Return the environment variable of a settings field."""
    return PREFIX + field.upper()


class Settings(BaseSettings):
    """Everything that may be configured, with its bounds. Use `load_settings`, whose errors are made for people."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", hide_input_in_errors=True
    )

    catalog: Path = Field(default=Path("superbiz.toml"), description="Catalogue of topics, datasources, knowledge.")
    home: Path = Field(default=Path(".superbiz"), description="Folder of the database and the knowledge index.")
    database_url: SecretStr | None = Field(default=None, description="Default: an SQLite file in the home folder.")
    redis_url: SecretStr | None = Field(default=None, description="Canonical store; default: the database.")
    model: Annotated[str, StringConstraints(pattern=_MODEL)] = Field(
        default=OFFLINE, description="offline, or openai:NAME for an OpenAI-compatible endpoint."
    )
    api_key: SecretStr | None = Field(default=None, description="Key of the model's provider; needed in live mode.")
    base_url: str | None = Field(default=None, pattern=r"^https?://\S{1,500}$", description="Endpoint of the provider.")
    language: Literal["zh", "en"] = Field(default="zh", description="Language of prompts, reports and fixed texts.")

    no_gain_threshold: int = Field(
        default=3, ge=1, le=50, description="Results in a row without gain until collection stops (R2)."
    )
    protocol_violation_threshold: int = Field(
        default=2,
        ge=2,
        le=50,
        description="Protocol violations in a row until collection stops; the first may be repaired (R2).",
    )

    budget_model_calls: int = Field(
        default=24, ge=1, le=1000, description="Model calls of one run, all components together (R117)."
    )
    budget_tool_calls: int = Field(default=16, ge=1, le=1000, description="Tool calls of one run (R117).")
    budget_tokens: int = Field(
        default=400_000, ge=1, le=1_000_000_000, description="Tokens of one run, input and output (R117)."
    )
    budget_observation_bytes: int = Field(
        default=131_072, ge=8192, le=1_000_000_000, description="Bytes of results shown to the model in one run (R117)."
    )
    budget_wall_seconds: float = Field(
        default=240.0, gt=0, le=86_400, description="Wall time of one run until collection stops (R117)."
    )
    reserve_model_calls: int = Field(
        default=3, ge=0, description="Part of the model calls that only the guards may use (R117)."
    )
    reserve_tokens: int = Field(
        default=60_000, ge=0, description="Part of the tokens that only the guards may use (R117)."
    )
    reserve_seconds: float = Field(
        default=45.0, ge=0, description="Part of the time that only the guards may use (R117)."
    )

    run_timeout_seconds: float = Field(
        default=300.0, gt=0, le=86_400, description="Time after which a run is timed out (R67)."
    )
    lease_seconds: float = Field(
        default=60.0,
        ge=1,
        le=3_600,
        description="Time after which another process takes up a run whose own has died (R3).",
    )
    model_timeout_seconds: float = Field(
        default=120.0, gt=0, le=3_600, description="Time of one attempt of a model call."
    )
    canonical_ttl_seconds: float = Field(
        default=3600.0, gt=0, le=31_536_000, description="How long the full record of a query lives (R67)."
    )
    archive_days: float = Field(
        default=30.0, gt=0, le=3650, description="How long evidence, export and forks of a run can be read (R67)."
    )

    trace_fields: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="What may leave in a LangSmith trace beside names, times and counts; comma-separated, see below.",
    )

    api_tokens: SecretStr | None = Field(
        default=None, description="NAME:TOKEN pairs, separated by commas: who may call the service (R134)."
    )
    api_tokens_file: Path | None = Field(default=None, description="Instead: a file of NAME:TOKEN pairs, one a line.")
    max_runs: int = Field(default=64, ge=1, le=10_000, description="Runs at once in one process of the service.")
    max_executing: int = Field(
        default=8, ge=1, le=1000, description="How many of them execute at once; the others wait for their turn."
    )
    max_request_bytes: int = Field(
        default=65_536, ge=1024, le=16_777_216, description="Body of one request to the service, uploads aside."
    )
    max_upload_bytes: int = Field(
        default=1_048_576, ge=1024, le=MAX_FILE_BYTES, description="One uploaded document (R134)."
    )
    alert_quiet_minutes: float = Field(
        default=60.0,
        ge=0,
        le=10_080,
        description="How long an alert that still fires is answered with the run that diagnosed it.",
    )
    heartbeat_seconds: float = Field(
        default=15.0, gt=0, le=3600, description="Silence after which an event stream gets a comment (R132)."
    )
    host_url: str | None = Field(
        default=None,
        pattern=r"^https?://\S{1,500}$",
        description="On Aegra: its own address, where questions to `/api` are begun, e.g. http://127.0.0.1:2026.",
    )
    stop_seconds: float = Field(
        default=10.0, ge=0, le=600, description="Time a stopping service gives steps in flight before it cuts them off."
    )

    @field_validator("trace_fields", mode="before")
    @classmethod
    def _known_trace_fields(cls, value: Any) -> Any:
        names = tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else tuple(value)
        if not names:
            return ()
        from service.trace_privacy import FIELDS

        if not set(names) <= set(FIELDS):
            raise ValueError(f"allowed, separated by commas: {', '.join(FIELDS)}")
        return names

    @field_validator("catalog", "home")
    @classmethod
    def _expand_home(cls, value: Path) -> Path:
        return value.expanduser()

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            from service.store.engine import DatabaseUrlError, database_url

            try:
                database_url(value.get_secret_value())
            except DatabaseUrlError as error:
                raise ValueError(str(error).removeprefix(f"{env_name('database_url')}: ")) from None
        return value

    @field_validator("redis_url")
    @classmethod
    def _known_redis(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            parse_redis_url(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Settings:
        """Refuse values that contradict each other (R67, R117, R141)."""
        faults = [
            f"{env_name(low)} must be less than {env_name(high)}"
            for low, high in (
                ("run_timeout_seconds", "canonical_ttl_seconds"),
                ("budget_wall_seconds", "run_timeout_seconds"),
                ("reserve_model_calls", "budget_model_calls"),
                ("reserve_tokens", "budget_tokens"),
                ("reserve_seconds", "budget_wall_seconds"),
            )
            if getattr(self, low) >= getattr(self, high)
        ]
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def is_live(self) -> bool:
        """True when a real model is configured; secrets are then required (R127)."""
        return self.model != OFFLINE and not self.model.startswith(RECORDED_PREFIX)

    def budget(self) -> BudgetLimits:
        """Return the configured totals of one Run (R117)."""
        return BudgetLimits(
            model_calls=self.budget_model_calls,
            tool_calls=self.budget_tool_calls,
            tokens=self.budget_tokens,
            observation_bytes=self.budget_observation_bytes,
            wall_seconds=self.budget_wall_seconds,
            reserve_model_calls=self.reserve_model_calls,
            reserve_tokens=self.reserve_tokens,
            reserve_seconds=self.reserve_seconds,
        )

    def context(self, **overrides: Any) -> DiagnosisContext:
        """Return the context of a Run: configured values, then `overrides` that are not None. Raises SettingsError."""
        values: dict[str, Any] = {
            "language": self.language,
            "no_gain_threshold": self.no_gain_threshold,
            "protocol_violation_threshold": self.protocol_violation_threshold,
            "budget": self.budget(),
        }
        values |= {name: value for name, value in overrides.items() if value is not None}
        try:
            return DiagnosisContext.model_validate(values)
        except ValidationError as error:
            raise SettingsError(_explain(error, context=True)) from None

    def resolved_database_url(self) -> str:
        """Return the database URL in clear, for the engine alone."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        from service.store.engine import sqlite_url

        return sqlite_url(self.home / DATABASE_FILE)


def load_settings(**overrides: Any) -> Settings:
    """Read the environment; `overrides` (e.g. from the command line) win. Raises SettingsError."""
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise SettingsError(_explain(error)) from None


def missing_secrets(settings: Settings, catalog: Catalog, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Name the variables whose secrets this configuration needs and does not have. Pure."""
    key = _is_set(settings.api_key) or bool(environ.get(PROVIDER_KEY, "").strip())
    names = [env_name("api_key")] if settings.is_live and not key else []
    names += [
        source.dsn_env
        for source in catalog.datasources
        if source.dsn_env is not None and not environ.get(source.dsn_env, "").strip()
    ]
    names += [name for topic in catalog.topics for name in topic.secret_names if not environ.get(name, "").strip()]
    return tuple(dict.fromkeys(names))


def require_secrets(settings: Settings, catalog: Catalog, environ: Mapping[str, str]) -> None:
    """Refuse to start without the secrets the configuration needs (R127). Raises SettingsError naming the variables."""
    missing = missing_secrets(settings, catalog, environ)
    if missing:
        raise SettingsError(
            f"not set: {', '.join(missing)}; needed by the configured model, datasources and log topics"
        )


def _is_set(secret: SecretStr | None) -> bool:
    return secret is not None and bool(secret.get_secret_value().strip())


def _explain(error: ValidationError, *, context: bool = False) -> str:
    """Turn a validation error into one line without values."""
    lines = []
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        name = str(fault["loc"][0]) if fault["loc"] else ""
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "string_pattern_mismatch":
            message = _PATTERNS.get(name, message)
        known = env_name(name) if name in Settings.model_fields and not context else name[:64]
        lines.append(f"{known}: {message[:_MAX_MESSAGE_CHARS]}" if known else message)
    return "; ".join(lines)[: 4 * _MAX_MESSAGE_CHARS]
