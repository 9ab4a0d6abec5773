"""Where a topic's server is and how to sign in: addresses from the catalogue, secrets from the environment (R127)."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path

from tools.catalog import Catalog, TopicEntry
from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure

_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


def headers(topic: TopicEntry, env: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that sign in and name the tenant.

    Raises ToolFailure with BACKEND_UNAVAILABLE when a variable is missing or cannot be a header (see `problem`).
    """
    if problem(topic, env) is not None:
        raise ToolFailure(ToolErrorCode.BACKEND_UNAVAILABLE)
    found: dict[str, str] = {}
    if topic.tenant_env:
        found["X-Scope-OrgID"] = _value(topic.tenant_env, env)
    if topic.token_env:
        found["Authorization"] = f"Bearer {_value(topic.token_env, env)}"
    elif topic.api_key_env:
        found["Authorization"] = f"ApiKey {_value(topic.api_key_env, env)}"
    elif topic.user_env and topic.password_env:
        pair = f"{_value(topic.user_env, env)}:{_value(topic.password_env, env)}"
        found["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return found


def _value(name: str, env: Mapping[str, str]) -> str:
    return env.get(name, "").strip()


def problem(topic: TopicEntry, env: Mapping[str, str]) -> str | None:
    """Say which variable keeps the topic from being asked; its name, never its content. Pure."""
    for name in topic.secret_names:
        value = _value(name, env)
        if not value:
            return f"{name} is not set"
        plain = name in (topic.user_env, topic.password_env)  # they travel encoded
        if not plain and _HEADER_VALUE.fullmatch(value) is None:
            return f"{name} must be printable ASCII text"
        if name == topic.user_env and ":" in value:
            return f"{name} must not hold a colon"
    return None


def problems(catalog: Catalog, env: Mapping[str, str]) -> tuple[str, ...]:
    """Say what keeps topics from being asked, one bounded line each; connects to nothing."""
    found = ((topic, problem(topic, env)) for topic in catalog.topics)
    return tuple(f"topic {topic.name}: {text}" for topic, text in found if text)


def ca_file(topic: TopicEntry, base: Path) -> str | None:
    """Return the path of the topic's certificate authority; relative ones lie beside the catalogue."""
    return None if topic.ca_file is None else str(base / topic.ca_file)
