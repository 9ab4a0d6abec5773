"""Keys of log topics in the catalogue, and the check for missing secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.settings import load_settings, missing_secrets
from tools.catalog import CatalogError, build_catalog
from tools.logs.endpoint import headers, problems
from tools.logs.tool import build_logs_tool

ELASTIC = {"backend": "elasticsearch", "url": "https://search:9200", "index": "logs-*"}
LOKI = {"backend": "loki", "url": "http://loki:3100/", "selector": '{app="shop"}'}


def build(**keys: Any) -> Any:
    return build_catalog({"topic": [{"name": "app"} | keys]}, Path())


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"backend": "splunk"}, r"topic\.0\.backend: .*'files', 'elasticsearch' or 'loki'"),
        ({"backend": "elasticsearch", "index": "a"}, "needs url"),
        ({"backend": "elasticsearch", "url": "http://h"}, "needs index"),
        ({"backend": "loki", "url": "http://h"}, "needs selector"),
        (LOKI | {"index": "a"}, "index does not apply to backend loki"),
        (ELASTIC | {"tenant_env": "A"}, "tenant_env does not apply to backend elasticsearch"),
        ({"path": "a.log", "url": "http://h"}, "url does not apply to backend files"),
        (LOKI | {"url": "ftp://h"}, r"topic\.0\.url: .*http or https"),
        (LOKI | {"url": "h:3100"}, r"topic\.0\.url"),
        (LOKI | {"url": "http://h:port"}, r"topic\.0\.url"),
        (LOKI | {"url": "http://h?org=1"}, r"topic\.0\.url: .*without \? and #"),
        (LOKI | {"url": "http://u:hunter2@h"}, r"topic\.0\.url: .*must hold no credentials; .*token_env"),
        (LOKI | {"selector": "app=shop"}, r"topic\.0\.selector: .*must be a LogQL stream selector"),
        (LOKI | {"selector": '{app="shop"} |= "x"'}, r"topic\.0\.selector"),
        (LOKI | {"selector": '{app!="shop"}'}, r"topic\.0\.selector: .*not empty"),
        (LOKI | {"selector": '{app=~".*"}'}, r"topic\.0\.selector: .*not empty"),
        (ELASTIC | {"index": "../_cat"}, r"topic\.0\.index"),
        (ELASTIC | {"index": "_all"}, r"topic\.0\.index"),
        (ELASTIC | {"index": "logs/_delete_by_query"}, r"topic\.0\.index"),
        (ELASTIC | {"max_events": 100}, r"topic\.0\.max_events"),
        (ELASTIC | {"token_env": "lower"}, r"topic\.0\.token_env"),
        (ELASTIC | {"token_env": "A", "api_key_env": "B"}, "at most one of token_env"),
        (ELASTIC | {"user_env": "A"}, "user_env and password_env go together"),
        (ELASTIC | {"level_field": "-"}, "level_field must be the name of a document field"),
        (LOKI | {"service_field": "service.name"}, "service_field must be the name of a stream label"),
        (LOKI | {"ca_file": "ca.pem"}, "ca_file needs a url that begins with https"),
    ],
)
def test_errors_name_the_key(keys: dict[str, Any], told: str) -> None:
    with pytest.raises(CatalogError, match=told) as caught:
        build(**keys)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "keys",
    [
        ELASTIC,
        ELASTIC
        | {"index": "logs-app-*,other:logs-*,-logs-old", "ca_file": "ca.pem", "search_fields": ["message", "error.*"]},
        LOKI,
        LOKI | {"selector": ' {app=~"shop|pay", env!="dev", note=`a}b`,} ', "level_field": "-", "service_field": "app"},
        {"path": "a.log"},
    ],
)
def test_what_is_allowed_builds_a_tool(keys: dict[str, Any]) -> None:
    tool = build_logs_tool(build(**keys), {})
    assert tool is not None
    assert "loki:3100" not in tool.description
    assert "search:9200" not in tool.description


def test_r127_missing_secrets_are_named_before_the_first_call() -> None:
    catalog = build(**LOKI, tenant_env="LOKI_TENANT", token_env="LOKI_TOKEN")
    settings = load_settings()
    assert missing_secrets(settings, catalog, {}) == ("LOKI_TENANT", "LOKI_TOKEN")
    assert problems(catalog, {"LOKI_TENANT": "a"}) == ("topic app: LOKI_TOKEN is not set",)
    assert problems(catalog, {"LOKI_TENANT": "a", "LOKI_TOKEN": "b\nc"}) == (
        "topic app: LOKI_TOKEN must be printable ASCII text",
    )
    env = {"LOKI_TENANT": "a", "LOKI_TOKEN": "b"}
    assert problems(catalog, env) == ()
    assert missing_secrets(settings, catalog, env) == ()
    assert headers(catalog.topics[0], env) == {"X-Scope-OrgID": "a", "Authorization": "Bearer b"}


def test_basic_credentials_may_be_any_text() -> None:
    catalog = build(**ELASTIC, user_env="U", password_env="P")
    assert headers(catalog.topics[0], {"U": "elastic", "P": "pässword"}) == {
        "Authorization": "Basic ZWxhc3RpYzpww6Rzc3dvcmQ="
    }
    assert problems(catalog, {"U": "a:b", "P": "c"}) == ("topic app: U must not hold a colon",)
