"""Markers planted wherever nothing may leave; none arrives where it must not (R33, R51-R55, R77-R79, R104-R106)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from pydantic import BaseModel, Field

from nodes.ports import ModelReply
from service.models.normalize import completion_message, reply_of
from service.models.profile import ProviderProfile
from service.store.journal import SqlJournal
from tests.fakes import (
    SUPPORTED,
    Answer,
    ProbeRequest,
    ProbeTool,
    ProbeToolCall,
    by_round,
    call,
    calls,
    draft,
    envelope,
    text,
)
from tests.loop import Loop, make_loop
from tests.stores import database
from tools.evidence_tool import CallContext, ToolOutcome

FALSE = draft("MARKER-FALSE-CONCLUSION", [("A1", "OBSERVATION", "MARKER-FALSE-STATEMENT", ["MARKER-WRONG-CALL"])])
MARKER = re.compile(r"MARKER[-_A-Z]*")


class SecretRequest(ProbeRequest):
    """A request with a parameter that is no part of the scope."""

    note: str = Field(default="", max_length=100)


class SecretToolCall(ProbeToolCall):
    input: SecretRequest


class SecretTool(ProbeTool):
    """Everything that is not whitelisted is marked."""

    async def run(self, request: BaseModel, context: CallContext) -> ToolOutcome:
        outcome = await super().run(request, context)
        return ToolOutcome(
            {"raw": "MARKER-RAW-PAYLOAD", "request": request.model_dump(mode="json")},
            {**outcome.agent_result, "internal": "MARKER-AGENT-RESULT", "dsn": {"password": "MARKER-NESTED"}},
            outcome.evidence_status,
            outcome.returned_count,
            outcome.truncated,
        )


def from_provider(tool_call_id: str, arguments: Any, name: str = "query_probe") -> ModelReply:
    """A provider's answer with text and reasoning beside its call, through the real adapter."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    message = {
        "content": "MARKER-BESIDE-CALL",
        "reasoning_content": "MARKER-REASONING",
        "tool_calls": [{"id": tool_call_id, "type": "function", "function": function}],
    }
    body = {"choices": [{"finish_reason": "tool_calls", "message": message}], "usage": None}
    return reply_of(completion_message(body, keep_reasoning=False), ProviderProfile("test"), [], lambda: "x")


def arguments(query: str, previous: tuple[str, str] | None = None, **more: Any) -> dict[str, Any]:
    made = envelope(query, previous)
    return {**made, "input": {**made["input"], "note": "MARKER-PARAMETER", **more}}


AGENT: list[Answer] = [
    from_provider("c1", arguments("found a")),
    from_provider("c2", arguments("found b", ("MARKER-WRONG-ID", "GAINED"))),
    from_provider("c3", arguments("found b", ("c1", "GAINED"), **{"MARKER-KEY": "MARKER-VALUE"})),
    from_provider("c4", arguments("invalid MARKER-INVALID", ("c1", "GAINED"))),
    from_provider("c5", arguments("found b", ("c1", "GAINED")), "MARKER_TOOL"),
    from_provider("c6", {**arguments("found b"), "MARKER-CONTROL": 1}),
    from_provider("c7", arguments("crash c", ("c1", "GAINED"))),
    from_provider("c8", arguments("violate d")),
]


async def ran(last: Answer, monkeypatch: pytest.MonkeyPatch, **context: Any) -> Loop:
    def marked(component: str, language: str) -> str:
        return f"MARKER-PROMPT {component}"

    for module in ("model_step", "repair_evidence", "guard_semantics"):
        monkeypatch.setattr(f"nodes.{module}.prompt", marked)
    tool = SecretTool(envelope=SecretToolCall)
    loop = make_loop(by_round([*AGENT, last], [FALSE], [SUPPORTED]), tool=tool)
    await loop.run(**context)
    return loop


ENDINGS: dict[str, Answer] = {
    "false draft": FALSE,
    "no draft": text("MARKER-OUTPUT, so it is the pool"),
    "no conclusion": draft(None, [("A1", "OBSERVATION", "MARKER-STATEMENT", ["MARKER-WRONG-CALL"])]),
    "model exception": lambda request: _failing(),
    "concluded": draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c1"])]),
}


def _failing() -> ModelReply:
    from nodes.ports import ModelCallFailed, ModelFailureKind

    raise ModelCallFailed(ModelFailureKind.AUTHENTICATION) from RuntimeError("MARKER-EXCEPTION-TEXT")


@pytest.mark.parametrize("ending", list(ENDINGS))
async def test_r52_r55_r104_no_marker_leaves_where_it_is_not_allowed(
    ending: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loop = await ran(ENDINGS[ending], monkeypatch, protocol_violation_threshold=9)
    answers = [m for m in loop.state["messages"] if isinstance(m, ToolMessage)]
    assert len(answers) == len(AGENT), "the script reached every planted place"
    assert not MARKER.findall(json.dumps([str(m.content) for m in answers]))
    assert not MARKER.findall(json.dumps(loop.outcome))
    assert not MARKER.findall(repr(await loop.record()))
    assert not MARKER.findall(json.dumps([await loop.events(), repr(await loop.journal.steps(loop.run_id))]))
    assert not MARKER.findall(str(loop.state["step"]))
    async with database("sqlite", tmp_path) as engine:
        journal = SqlJournal(engine, loop.clock, strict=True)
        for batch in loop.journal.batches:
            await journal.write(batch)
        stored = (await journal.trace(loop.run_id), await journal.steps(loop.run_id))
        assert not MARKER.findall(repr(stored))
        assert len(stored[0]) > 15


@pytest.mark.parametrize("ending", list(ENDINGS))
async def test_r52_r55_no_model_sees_what_is_not_whitelisted(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = await ran(ENDINGS[ending], monkeypatch, protocol_violation_threshold=9)
    hidden = {
        "MARKER-RAW-PAYLOAD",
        "MARKER-AGENT-RESULT",
        "MARKER-NESTED",
        "MARKER-EXCEPTION-TEXT",
        "MARKER-BESIDE-CALL",
        "MARKER-REASONING",
        "MARKER-OUTPUT",
    }
    for request in loop.model.requests:
        seen = "".join(repr(message) for message in request.messages)
        assert not hidden & set(MARKER.findall(seen)), request.component


async def test_r55_the_state_holds_no_raw_response_and_no_internal_field(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = await ran(ENDINGS["concluded"], monkeypatch, protocol_violation_threshold=9)
    assert loop.outcome["release_outcome"] == "CONCLUSION"
    for checkpoint in await loop.history():
        found = set(MARKER.findall(repr(checkpoint.values)))
        # What the model itself asked stands in its own messages; nothing of the tools or the prompt does.
        assert not found & {"MARKER-RAW-PAYLOAD", "MARKER-AGENT-RESULT", "MARKER-NESTED", "MARKER-PROMPT"}
        assert not found & {"MARKER-EXCEPTION-TEXT", "MARKER-BESIDE-CALL", "MARKER-REASONING"}


async def test_r67_r104_the_archive_holds_results_but_no_raw_response_and_no_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = await ran(ENDINGS["concluded"], monkeypatch, protocol_violation_threshold=9)
    archive = repr(await loop.journal.archive(loop.run_id))
    assert "line about found a" in archive
    assert not {"MARKER-RAW-PAYLOAD", "MARKER-PROMPT", "MARKER-REASONING"} & set(MARKER.findall(archive))


async def test_r55_r92_thresholds_counters_and_budgets_stay_with_the_operator() -> None:
    numbers = {"no_gain_threshold": 41, "protocol_violation_threshold": 43}
    budget = {"model_calls": 717, "tool_calls": 3, "tokens": 3_131_313, "observation_bytes": 5_151_515}
    agent = [
        call("c1", "found a"),
        calls(("c2", "query_probe", None)),
        call("c3", "none b", ("c1", "NO_GAIN")),
        call("c4", "none c"),
        call("c5", "none d"),
    ]
    loop = make_loop(by_round(agent))
    await loop.run(**numbers, budget=budget)
    assert loop.outcome["stop_reason"] == "BUDGET_LIMIT_REACHED"
    user = json.dumps([loop.outcome["fallback"], loop.outcome["published_result"]])
    model = json.dumps([str(message.content) for request in loop.model.requests for message in request.messages])
    for said in (user, model):
        assert not re.findall(r"\b(41|43|717|3131313|5151515)\b", said)
        assert not re.findall(
            r"threshold|consecutive|remaining|budget|token_count|no_gain_count", said, re.IGNORECASE
        ) or (said is user and re.findall(r"budget", said, re.IGNORECASE) == ["BUDGET"])
    assert "STOPPED_BUDGET" in user


async def test_r33_r41_r42_answers_hold_nothing_but_their_written_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = await ran(ENDINGS["concluded"], monkeypatch, protocol_violation_threshold=9)
    allowed = {
        "INVALID_PROGRESS_PROTOCOL": {
            "error_code",
            "repair_required",
            "violation_type",
            "missing_field",
            "expected_previous_tool_call_id",
            "allowed_information_gain",
        },
        "INVALID_TOOL_REQUEST": {"error_code", "field", "rule", "allowed", "previous_observation_applied"},
        "TOOL_NOT_AVAILABLE": {"error_code", "available_tools"},
        "BACKEND_ERROR": {"tool_call_id", "evidence_status", "error_code", "message"},
        "OBSERVATION_CONTRACT_VIOLATION": {"tool_call_id", "evidence_status", "error_code", "message"},
    }
    codes = [answer.get("error_code") for answer in loop.answers()]
    assert set(codes) == {None, *allowed}
    for answer in loop.answers():
        if answer.get("error_code"):
            assert set(answer) <= allowed[answer["error_code"]]
