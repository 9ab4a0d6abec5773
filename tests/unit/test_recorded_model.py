from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graph.contract import Component
from nodes.ports import ModelCallFailed, ModelFailureKind, ModelReply, ModelRequest, TokenUsage
from service.models.choice import ConfiguredModels
from service.models.recorded import RecordedAnswersError, read_recorded
from service.offline.client import OfflineClient
from service.settings import Settings


async def ask(path: Path, round_: int, component: Component = Component.DIAGNOSIS_AGENT) -> ModelReply:
    return await read_recorded(path).complete(ModelRequest(component, round_, []))


def write(folder: Path, answers: Any) -> Path:
    path = folder / "answers.json"
    path.write_text(json.dumps(answers), encoding="utf-8")
    return path


async def test_answers_are_keyed_by_component_and_round_not_by_order(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "answers": {
                "DIAGNOSIS_AGENT/2": {"text": "二", "usage": [3, 4]},
                "DIAGNOSIS_AGENT/1": {"tool_calls": [{"id": "c1", "name": "query_logs", "arguments": {"input": {}}}]},
                "SEMANTIC_GUARD/1": {"text": "s"},
            }
        },
    )
    for _ in range(2):
        second = await ask(path, 2)
        assert (second.text, second.calls, second.usage) == ("二", (), TokenUsage(3, 4))
        first = await ask(path, 1)
        assert [(call.tool_call_id, call.tool_name, call.arguments) for call in first.calls] == [
            ("c1", "query_logs", {"input": {}})
        ]
        assert first.message.tool_calls[0]["id"] == "c1"
        assert (await ask(path, 1, Component.SEMANTIC_GUARD)).text == "s"


async def test_arguments_that_are_no_object_did_not_parse(tmp_path: Path) -> None:
    path = write(
        tmp_path, {"answers": {"DIAGNOSIS_AGENT/1": {"tool_calls": [{"id": "c", "name": "n", "arguments": "x"}]}}}
    )
    reply = await ask(path, 1)
    assert reply.calls[0].arguments is None
    assert reply.message.invalid_tool_calls[0]["id"] == "c"
    assert reply.message.tool_calls == []


async def test_failures_and_missing_rounds(tmp_path: Path) -> None:
    path = write(tmp_path, {"answers": {"DIAGNOSIS_AGENT/1": {"failure": "RATE_LIMITED"}}})
    for round_, kind in ((1, ModelFailureKind.RATE_LIMITED), (2, ModelFailureKind.UNAVAILABLE)):
        with pytest.raises(ModelCallFailed) as caught:
            await ask(path, round_)
        assert caught.value.kind is kind
    path = write(tmp_path, {"answers": {}, "default": {"text": "d", "usage": None}})
    reply = await ask(path, 7)
    assert (reply.text, reply.usage) == ("d", None)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "not UTF-8 JSON"),
        (b"\xff\xfe", "not UTF-8 JSON"),
        (b"[" * 100_000, "not UTF-8 JSON"),
        (b"[]", "must be"),
        (b'{"answers": {"A/1": {"txt": "SECRET-MARK"}}}', "answers.A/1.txt"),
        (b'{"answers": {"A/1": {"failure": "SECRET-MARK"}}}', "answers.A/1.failure"),
    ],
)
def test_a_bad_file_is_one_bounded_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "answers.json"
    path.write_bytes(content)
    with pytest.raises(RecordedAnswersError) as caught:
        read_recorded(path)
    message = str(caught.value)
    assert said in message
    assert len(message) < 400
    assert "\n" not in message
    assert "SECRET-MARK" not in message


def test_only_the_configuration_may_name_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, {"answers": {}})
    models = ConfiguredModels(Settings(model=f"scripted:{path}"), {}, OfflineClient())
    assert models.client(None).name == "recorded"
    assert models.client("offline").name == "offline"
    with pytest.raises(ValueError, match="allowed: offline"):
        models.client(f"scripted:{path}")
