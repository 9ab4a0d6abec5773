"""Who a host's routes let in, and what filter they get (R127, R134)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langgraph_sdk import Auth

from nodes.ports import LOCAL_CALLER
from service.host import auth as handlers
from service.http.auth import Tokens, parse_tokens
from tests.data import ROOT

TOKEN = "ada-0123456789abcdef"
LOCAL: dict[str, Any] = {"client": ("127.0.0.1", 4711)}
HOST = {b"host": b"127.0.0.1:2024"}


@pytest.fixture(params=[True, False])
def tokens(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    found = parse_tokens([f"ada:{TOKEN}"], "SUPERBIZ_API_TOKENS") if request.param else Tokens()
    monkeypatch.setattr(handlers, "_tokens", lambda: found)
    return bool(request.param)


async def called(headers: dict[Any, Any], scope: dict[str, Any] | None = None) -> str | None:
    """Who is let in; None for a refusal."""
    try:
        user = await (
            handlers.authenticate(headers) if scope is None else handlers.authenticate(headers=headers, scope=scope)
        )
    except Auth.exceptions.HTTPException as refused:
        return None if refused.status_code == 401 else f"{refused.status_code}"
    return user["identity"]


@pytest.mark.parametrize(
    "headers", [{"Authorization": f"Bearer {TOKEN}"}, {b"authorization": f"bearer {TOKEN}".encode(), **HOST}]
)
async def test_r127_a_token_says_who_calls_in_both_hosts_forms(tokens: bool, headers: dict[Any, Any]) -> None:
    # Aegra passes text and no scope: without tokens it gets nobody in.
    assert await called(headers) == ("ada" if tokens else None)


@pytest.mark.parametrize(
    ("headers", "scope", "is_local"),
    [
        (HOST, LOCAL, True),
        ({**HOST, b"origin": b"https://smith.langchain.com", b"sec-fetch-site": b"cross-site"}, LOCAL, True),
        ({**HOST, b"origin": b"http://127.0.0.1:2024"}, LOCAL, True),
        ({**HOST, b"origin": b"https://evil.example"}, LOCAL, False),
        ({**HOST, b"sec-fetch-site": b"cross-site"}, LOCAL, False),
        ({b"host": b"evil.example"}, LOCAL, False),
        ({}, LOCAL, False),
        (HOST, {"client": ("192.0.2.1", 4711)}, False),
        (HOST, {}, False),
        (HOST, None, False),
    ],
)
async def test_r127_without_tokens_only_this_machine_and_studios_page_may_call(
    tokens: bool, headers: dict[Any, Any], scope: dict[str, Any] | None, is_local: bool
) -> None:
    assert await called(headers, scope) == (LOCAL_CALLER if is_local and not tokens else None)


@pytest.mark.parametrize("resource", ["threads", "crons"])
@pytest.mark.parametrize("metadata", [None, {}, {"owner": "bob", "a": 1}])
async def test_r134_whatever_owner_is_sent_the_caller_owns(resource: str, metadata: dict[str, Any] | None) -> None:
    handler = handlers.own_threads if resource == "threads" else handlers.own_crons
    for action in ("create", "update", "create_run", "read", "search", "delete"):
        value: dict[str, Any] = {"metadata": metadata if metadata is None else dict(metadata)}
        context: Any = SimpleNamespace(user=SimpleNamespace(identity="ada"), resource=resource, action=action)
        assert await handler(ctx=context, value=value) == {"owner": "ada"}
        if action in {"create", "update", "create_run"}:
            assert value["metadata"]["owner"] == "ada"


async def test_what_has_no_handler_is_refused() -> None:
    context: Any = SimpleNamespace(user=SimpleNamespace(identity="ada"), resource="later", action="read")
    assert await handlers.refuse_what_is_not_named(ctx=context, value={}) is False
    assert await handlers.own_part_of_the_store(ctx=context, value={}) is False


def test_loading_the_entry_needs_no_setting_and_opens_nothing(tmp_path: Path) -> None:
    """Aegra serves everybody when authentication cannot be loaded: a bad setting must not be what decides that."""
    code = "import service.langgraph_entry as e; print(sorted(e.__all__))"
    env = {"SUPERBIZ_API_TOKENS": "bad", "SUPERBIZ_CATALOG": "none.toml", "PATH": "", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "['app', 'auth', 'chat', 'diagnosis']"
    assert not list(tmp_path.iterdir())


def test_langgraph_dockerfile_ships_what_the_configuration_names(tmp_path: Path) -> None:
    pytest.importorskip("langgraph_cli")
    command = [sys.executable, "-m", "langgraph_cli", "dockerfile", "-c", str(ROOT / "langgraph.json"), "Dockerfile"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, env={"PATH": "", "HOME": str(tmp_path)})
    text = (tmp_path / "Dockerfile").read_text()
    config = json.loads((ROOT / "langgraph.json").read_text())
    assert text.startswith(f"FROM langchain/langgraph-api:{config['python_version']}\n")
    (added,) = [line.split() for line in text.splitlines() if line.startswith("ADD ")]
    root = added[2]
    assert added[1:] == [".", f"/deps/{ROOT.name}"]
    assert "uv pip install" in text
    assert "-e ." in text
    for variable, names in (
        ("LANGSERVE_GRAPHS", ["chat", "diagnosis"]),
        ("LANGGRAPH_HTTP", ["app"]),
        ("LANGGRAPH_AUTH", ["path"]),
    ):
        (line,) = [line for line in text.splitlines() if line.startswith(f"ENV {variable}=")]
        named = json.loads(line.partition("=")[2].strip("'"))
        for name in names:
            path, _, attribute = named[name].partition(":")
            assert (ROOT / Path(path).relative_to(root)).is_file()
            assert attribute in {"auth", "app", "chat", "diagnosis"}
    assert json.loads(text.split("ENV LANGGRAPH_AUTH='")[1].split("'")[0])["disable_studio_auth"] is True
    # What a checkout may hold and an image must not.
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv", ".superbiz", ".langgraph_api"} <= set(ignored)
