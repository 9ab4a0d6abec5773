"""The schema that reaches the provider for the real tools, read from the HTTP request itself (R22, R138)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from pydantic import SecretStr

from graph.contract import Component
from nodes.ports import ModelRequest
from service.models.chat import build_chat
from service.models.client import ChatModelClient
from service.models.profile import PROFILES, ProviderProfile
from service.registry import Site, build_tools
from tests.data import ROOT
from tests.stub_model_server import answer, stub_server
from tools.catalog import load_catalog

FIELDS = {
    "search_runbooks": {"query": "string", "top_k": "integer"},
    "query_logs": {"topic": "string", "query": "string", "lookback_minutes": "integer", "limit": "integer"},
    "query_mysql": {"datasource": "string", "sql": "string", "params": "array"},
}


def types_of(schema: dict[str, Any]) -> set[str]:
    """Types a field admits, whether written plainly or as alternatives."""
    return {schema["type"]} if "type" in schema else {kind for each in schema["anyOf"] for kind in types_of(each)}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda p: p.name)
async def test_r22_the_tools_array_of_the_request_holds_every_concrete_field(
    profile: ProviderProfile, tmp_path: Path
) -> None:
    catalog = load_catalog(ROOT / "examples" / "shop" / "superbiz.toml")
    tools = tuple(build_tools(Site(catalog, tmp_path, os.environ)).values())
    async with stub_server(answer("x")) as server:
        client = ChatModelClient("openai:m", build_chat("m", server.url, SecretStr("k"), profile), profile, str)
        await client.complete(
            ModelRequest(Component.DIAGNOSIS_AGENT, 1, [HumanMessage("q")], tools, timeout_seconds=5, language="en")
        )
    sent = {each["function"]["name"]: each["function"]["parameters"] for each in server.requests[0]["tools"]}
    assert set(sent) == set(FIELDS)
    for name, parameters in sent.items():
        fields = parameters["properties"]["input"]["properties"]
        assert set(fields) == set(FIELDS[name])
        for field, kind in FIELDS[name].items():
            assert kind in types_of(fields[field]), (name, field)
        assert all(field.get("description") for field in fields.values())
        assert set(parameters["properties"]) == {"previous_observation", "input"}
        assert "$ref" not in str(parameters)
