from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nodes.ports import ModelReply, ModelRequest
from service.models.choice import model_settings
from service.models.factory import ModelSettings, SettingsModelFactory
from service.models.profile import (
    DEEPSEEK,
    KIMI,
    LOCAL,
    OPENAI,
    QWEN,
    ParallelToolCalls,
    ProviderProfile,
    StructuredOutput,
    Thinking,
    resolve,
)
from service.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-very-secret-value"


class Offline:
    name = "offline"
    semantic_guard_is_lexical = True

    async def complete(self, request: ModelRequest) -> ModelReply:
        raise NotImplementedError


def factory(**env: str) -> SettingsModelFactory:
    return SettingsModelFactory(ModelSettings.from_env(env), Offline())


@pytest.mark.parametrize("env", [{}, {"SUPERBIZ_MODEL": ""}, {"SUPERBIZ_MODEL": "offline"}, {"OPENAI_API_KEY": KEY}])
def test_the_default_is_offline(env: dict[str, str]) -> None:
    assert factory(**env).client(None).name == "offline"


def test_a_live_name_gives_a_client_of_that_name_once() -> None:
    models = factory(SUPERBIZ_MODEL="openai:gpt-x", OPENAI_API_KEY=KEY)
    client = models.client(None)
    assert client.name == "openai:gpt-x"
    assert models.client("openai:gpt-x") is client
    assert models.client("offline").name == "offline"
    assert not client.semantic_guard_is_lexical


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"SUPERBIZ_MODEL": "openai:m"}, "OPENAI_API_KEY"),
        ({"SUPERBIZ_MODEL": "openai:m", "OPENAI_API_KEY": "  "}, "OPENAI_API_KEY"),
        ({"SUPERBIZ_MODEL": "openai:m", "OPENAI_API_KEY": "sk-very secret"}, "OPENAI_API_KEY"),
        ({"SUPERBIZ_MODEL": "openai:m", "OPENAI_API_KEY": "sk-very\u2028secret"}, "OPENAI_API_KEY"),
        ({"SUPERBIZ_MODEL": "openai:"}, "SUPERBIZ_MODEL"),
        ({"SUPERBIZ_MODEL": "anthropic:secret-name"}, "offline, or openai:NAME"),
        ({"SUPERBIZ_MODEL": "openai:" + "secret" * 99}, "SUPERBIZ_MODEL"),
        ({"SUPERBIZ_MODEL": "openai:m", "OPENAI_BASE_URL": "ftp://secret.example"}, "OPENAI_BASE_URL"),
        ({"SUPERBIZ_MODEL": "openai:m", "OPENAI_BASE_URL": "https://user:secret@h/v1"}, "OPENAI_BASE_URL"),
        ({"SUPERBIZ_MODEL": "openai:m", "OPENAI_BASE_URL": "http://[secret"}, "OPENAI_BASE_URL"),
        ({"SUPERBIZ_MODEL": "openai:m", "OPENAI_BASE_URL": "http://h:99999secret"}, "OPENAI_BASE_URL"),
        ({"SUPERBIZ_MODEL": "openai:m", "SUPERBIZ_MODEL_PROFILE": "secret"}, "openai, deepseek, qwen, kimi, local"),
    ],
)
def test_unusable_settings_name_the_variable_and_no_value(env: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=r"allowed|missing") as refused:
        factory(**{"OPENAI_API_KEY": KEY, **env} if "OPENAI_API_KEY" not in said else env).client(None)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"api_key": "sk very secret"}, "SUPERBIZ_API_KEY: not usable"),
        ({"api_key": KEY, "base_url": "https://user:secret@h/v1"}, "SUPERBIZ_BASE_URL: not usable"),
        ({"base_url": "https://h/v1"}, "OPENAI_API_KEY: not usable"),
    ],
)
def test_what_is_unusable_is_named_by_where_it_came_from(given: dict[str, str], said: str) -> None:
    settings = load_settings(model="openai:m", **given)
    with pytest.raises(ValueError, match=said) as refused:
        SettingsModelFactory(model_settings(settings, {"OPENAI_API_KEY": "not a key"}), Offline()).client(None)
    assert "secret" not in str(refused.value)


def test_the_key_is_in_no_repr() -> None:
    settings = ModelSettings.from_env({"SUPERBIZ_MODEL": "openai:m", "OPENAI_API_KEY": KEY})
    client = SettingsModelFactory(settings, Offline()).client(None)
    for shown in (repr(settings), str(settings), repr(client), repr(vars(client)), repr(client._chat)):  # type: ignore[attr-defined]
        assert KEY not in shown


@pytest.mark.parametrize(
    ("model", "url", "profile"),
    [
        ("gpt-x", None, OPENAI),
        ("gpt-x", "https://api.openai.com/v1", OPENAI),
        ("d", "https://api.deepseek.com", DEEPSEEK),
        ("q", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", QWEN),
        ("k", "https://api.moonshot.cn/v1", KIMI),
        ("gpt-x", "http://127.0.0.1:8000/v1", LOCAL),
        ("x", "https://evil-openai.com/v1", LOCAL),
        ("x", "https://openai.com.evil.example/v1", LOCAL),
        ("moonshotai/kimi-k2", "http://gateway.internal/v1", KIMI),
        ("deepseek-v4", "http://gateway.internal/v1", DEEPSEEK),
        ("deepseek-v4", "https://api.openai.com/v1", OPENAI),
    ],
)
def test_the_profile_follows_host_then_family(model: str, url: str | None, profile: ProviderProfile) -> None:
    assert resolve(model, url) == profile


def test_an_override_wins_and_the_o_series_takes_no_parallel_parameter() -> None:
    assert resolve("m", "http://127.0.0.1/v1", "kimi") is KIMI
    assert resolve("o3-mini", None).parallel_tool_calls is ParallelToolCalls.OMIT


def test_a_qwen_that_always_thinks_is_not_told_to_stop() -> None:
    url = "https://dashscope.aliyuncs.com/compatible-mode/v1"
    assert resolve("qwen3-max", url).thinking is Thinking.OFF
    assert resolve("qwen3-235b-a22b-thinking-2507", url).thinking is Thinking.LEAVE
    assert resolve("qwq-plus", url).structured_output is StructuredOutput.PROMPT


def test_the_provider_s_sdk_is_not_loaded_for_the_offline_model() -> None:
    code = "import sys, service.models.factory; sys.exit('openai' in sys.modules or 'langchain_openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
