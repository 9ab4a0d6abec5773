"""What really goes to the provider, and how its quirks come back, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call, tool_call
from langgraph.graph import END, START, StateGraph
from pydantic import SecretStr

from graph.contract import Component
from nodes.ports import ModelReply, ModelRequest, TokenUsage
from release.contract import MAX_DRAFT_BYTES, DiagnosisDraft, SemanticJudgement
from service.models.chat import build_chat
from service.models.client import ChatModelClient
from service.models.factory import ModelSettings, SettingsModelFactory
from service.models.profile import DEEPSEEK, KIMI, LOCAL, OPENAI, PROFILES, QWEN, ParallelToolCalls, ProviderProfile
from tests.no_network import block_network
from tests.stand_in_tools import FIELDS, TOOLS
from tests.stub_model_server import StubServer, answer, call, completion, http, stub_server


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with block_network():
        yield


ASK: list[BaseMessage] = [SystemMessage("rules"), HumanMessage("why?")]


async def ask(
    server: StubServer,
    profile: ProviderProfile = OPENAI,
    messages: Sequence[BaseMessage] = ASK,
    *,
    tools: Any = TOOLS,
    output: Any = None,
    language: str = "en",
    model: str = "stub",
) -> ModelReply:
    ids = count(1)
    chat = build_chat(model, server.url, SecretStr("key"), profile)
    client = ChatModelClient("openai:stub", chat, profile, lambda: f"fresh-{next(ids)}")
    return await client.complete(
        ModelRequest(Component.DIAGNOSIS_AGENT, 1, messages, tools, output, timeout_seconds=5, language=language)
    )


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda p: p.name)
async def test_r22_the_tools_array_holds_every_concrete_field_of_input(profile: ProviderProfile) -> None:
    async with stub_server(answer("x")) as server:
        await ask(server, profile)
    tools = server.requests[0]["tools"]
    assert [tool["function"]["name"] for tool in tools] == [tool.name for tool in TOOLS]
    for tool in tools:
        parameters = tool["function"]["parameters"]
        assert set(parameters["properties"]) == {"previous_observation", "input"}
        assert set(parameters["properties"]["input"]["properties"]) == FIELDS[tool["function"]["name"]]
        assert parameters["properties"]["input"]["additionalProperties"] is False
        assert tool["function"].get("strict", False) is profile.strict_tools


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda p: p.name)
async def test_r29_parallel_tool_calls_is_sent_as_the_profile_says(profile: ProviderProfile) -> None:
    async with stub_server(answer("x")) as server:
        await ask(server, profile)
        await ask(server, profile, tools=())
    expected = False if profile.parallel_tool_calls is ParallelToolCalls.REQUEST else None
    assert server.requests[0].get("parallel_tool_calls") is expected
    assert ("parallel_tool_calls" in server.requests[0]) is (expected is False)
    assert "parallel_tool_calls" not in server.requests[1]
    assert "tools" not in server.requests[1]


async def test_r29_openai_is_asked_for_one_call_at_a_time() -> None:
    async with stub_server(answer("x")) as server:
        await ask(server, OPENAI)
    assert server.requests[0]["parallel_tool_calls"] is False


@pytest.mark.parametrize("model", ["gpt-6", "gpt-5-pro", "codex-mini", "o3-mini"])
async def test_only_chat_completions_and_never_a_stream(model: str) -> None:
    async with stub_server(answer("x")) as server:
        reply = await ask(server, OPENAI, model=model)
    sent = server.requests[0]
    assert reply.text == "x"
    assert sent["stream"] is False
    assert "messages" in sent
    assert not {"input", "temperature", "n", "max_tokens"} & set(sent)
    assert server.headers[0]["connection"] == "close"


async def test_r77_the_draft_schema_is_sent_beside_the_tools() -> None:
    async with stub_server(answer("{}")) as server:
        await ask(server, OPENAI, output=DiagnosisDraft)
    sent = server.requests[0]
    assert sent["response_format"]["type"] == "json_schema"
    assert set(sent["response_format"]["json_schema"]["schema"]["properties"]) == set(DiagnosisDraft.model_fields)
    assert len(sent["tools"]) == 3
    assert sent["messages"][0] == {"role": "system", "content": "rules"}


@pytest.mark.parametrize("profile", [DEEPSEEK, QWEN, KIMI, LOCAL], ids=lambda p: p.name)
async def test_r77_elsewhere_the_contract_joins_the_first_system_message(profile: ProviderProfile) -> None:
    async with stub_server(answer("{}")) as server:
        await ask(server, profile, output=DiagnosisDraft, language="zh")
        await ask(server, profile, [HumanMessage("q")], tools=(), output=SemanticJudgement)
    with_tools, alone = server.requests
    assert "response_format" not in with_tools
    assert [m["role"] for m in with_tools["messages"]] == ["system", "user"]
    assert with_tools["messages"][0]["content"].startswith("rules\n\n## 输出格式")
    assert '"missing_info"' in with_tools["messages"][0]["content"]
    assert alone["messages"][0]["role"] == "system"
    json_mode = {"type": "json_object"} if profile is not LOCAL else None
    assert alone.get("response_format") == json_mode


async def test_r77_the_text_is_handed_over_raw() -> None:
    text = '```json\n{"conclusion": null}\n```'
    async with stub_server(answer(text)) as server:
        assert (await ask(server, output=DiagnosisDraft)).text == text


async def test_r55_reasoning_goes_back_where_demanded_and_nowhere_else() -> None:
    thinking = answer("beside", [call("c1", "query_logs", "{}")], reasoning_content="my thoughts")
    for profile in PROFILES.values():
        async with stub_server(thinking, answer("end", reasoning_content="more")) as server:
            reply = await ask(server, profile)
            history = [*ASK, reply.message, ToolMessage("{}", tool_call_id=reply.calls[0].tool_call_id)]
            final = await ask(server, profile, history)
        assert final.text == "end"
        turn = server.requests[1]["messages"][2]
        assert turn["content"] is None
        assert turn.get("reasoning_content") == ("my thoughts" if profile in (DEEPSEEK, KIMI) else None)
        assert "more" not in repr(final)
        assert "beside" not in json.dumps(server.requests[1])


async def test_deepseek_gets_the_field_even_for_a_turn_without_reasoning() -> None:
    old = AIMessage("", tool_calls=[tool_call(name="query_logs", args={}, id="c1")])
    async with stub_server(answer("end")) as server:
        await ask(server, DEEPSEEK, [*ASK, old, ToolMessage("{}", tool_call_id="c1"), AIMessage("plain")])
    assert server.requests[0]["messages"][2]["reasoning_content"] == ""
    assert "reasoning_content" not in server.requests[0]["messages"][4]


async def test_qwen_is_told_not_to_think_since_nothing_is_streamed() -> None:
    async with stub_server(answer("end")) as server:
        await ask(server, QWEN)
        await ask(server, LOCAL)
    assert server.requests[0]["enable_thinking"] is False
    assert "enable_thinking" not in server.requests[1]


async def test_kimi_s_repeated_ids_become_unique_and_stay_paired() -> None:
    history = list(ASK)
    async with stub_server(answer(None, [call("search:0", "search_knowledge", "{}")])) as server:
        for _ in range(3):
            reply = await ask(server, KIMI, history)
            history += [reply.message, ToolMessage("{}", tool_call_id=reply.calls[0].tool_call_id)]
        await ask(server, KIMI, history)
    sent = server.requests[3]["messages"]
    called = [c["id"] for m in sent for c in m.get("tool_calls", [])]
    answered = [m["tool_call_id"] for m in sent if m["role"] == "tool"]
    assert called == answered == [f"functions.search_knowledge:{n}" for n in range(3)]


async def test_r72_repeated_ids_are_left_to_the_harness_by_default() -> None:
    async with stub_server(answer(None, [call("search:0", "query_logs", "{}")])) as server:
        assert [(await ask(server, QWEN)).calls[0].tool_call_id for _ in range(2)] == ["search:0", "search:0"]


async def test_every_argument_quirk_comes_back_as_it_is_and_the_history_stays_valid() -> None:
    calls = [
        call("c0", "query_logs", '{"input":{}}'),
        call("c1", "query_logs", ""),
        call("c2", "query_logs", None),
        call("c3", "query_logs", [{"a": 1}]),
        call("c4", "query_logs", "{broken"),
        call("c5", "query_logs", '{"a":1,"a":2}'),
        call("c6", "query_logs", json.dumps({"a": "x" * 2**20})),
        call(None, "query_logs", "null"),
        {"id": "c8", "type": "function", "function": {"name": "query_logs"}},
    ]
    async with stub_server(answer("beside", calls), answer("end")) as server:
        reply = await ask(server, OPENAI)
        history = [*ASK, reply.message, *(ToolMessage("{}", tool_call_id=c.tool_call_id) for c in reply.calls)]
        await ask(server, OPENAI, history)
    assert [c.arguments for c in reply.calls] == [{"input": {}}, *[None] * 8]
    assert [c.tool_call_id for c in reply.calls] == ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "", "c8"]
    assert len(reply.message.model_dump_json()) < 5000
    turn, *answers = server.requests[1]["messages"][2:]
    assert [c["id"] for c in turn["tool_calls"]] == [m["tool_call_id"] for m in answers]
    assert all(isinstance(json.loads(c["function"]["arguments"]), dict) for c in turn["tool_calls"])


async def test_a_foreign_history_with_invalid_calls_is_sent_validly() -> None:
    foreign = AIMessage(
        "",
        tool_calls=[tool_call(name="query_logs", args={}, id="a")],
        invalid_tool_calls=[invalid_tool_call(name=None, args="{broken", id="b", error="e")],
    )
    tools = [ToolMessage("{}", tool_call_id="a"), ToolMessage("{}", tool_call_id="b")]
    async with stub_server(answer("end")) as server:
        await ask(server, OPENAI, [*ASK, foreign, *tools])
    sent = server.requests[0]["messages"]
    assert [(c["id"], c["function"]["arguments"]) for c in sent[2]["tool_calls"]] == [("a", "{}"), ("b", "{}")]
    assert [m["tool_call_id"] for m in sent[3:]] == ["a", "b"]


async def test_twenty_calls_keep_their_order() -> None:
    calls = [call(f"c{n}", "query_logs", "{" if n % 3 else "{}") for n in range(20)]
    async with stub_server(answer(None, calls)) as server:
        reply = await ask(server, OPENAI)
        first = await ask(server, LOCAL)
    assert [c.tool_call_id for c in reply.calls] == [f"c{n}" for n in range(20)]
    assert [c.arguments is None for c in reply.calls] == [n % 3 != 0 for n in range(20)]
    assert (len(first.calls), first.dropped_calls) == (1, 19)


async def test_r22_nulls_of_strict_mode_are_absent_for_the_harness() -> None:
    arguments = json.dumps({"previous_observation": None, "input": {"query": "q", "top_k": None}})
    async with stub_server(answer(None, [call("c1", "search_knowledge", arguments)])) as server:
        strict, plain = await ask(server, OPENAI), await ask(server, QWEN)
    assert strict.calls[0].arguments == {"previous_observation": None, "input": {"query": "q"}}
    assert plain.calls[0].arguments == {"previous_observation": None, "input": {"query": "q", "top_k": None}}
    envelope = TOOLS[0].envelope.model_validate_json(json.dumps(strict.calls[0].arguments))
    assert envelope.previous_observation is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 3}, {"prompt_tokens": -1, "completion_tokens": 1}])
async def test_r116_usage_that_is_missing_partial_or_negative_is_unknown(usage: Any) -> None:
    async with stub_server(answer("x", usage=usage)) as server:
        assert (await ask(server)).usage is None


async def test_r112_usage_is_read() -> None:
    async with stub_server(answer("x")) as server:
        assert (await ask(server)).usage == TokenUsage(11, 7)


async def test_r79_a_text_too_large_arrives_bounded_and_recognizable() -> None:
    async with stub_server(answer("查" * 2**20)) as server:
        reply = await ask(server, tools=())
    assert MAX_DRAFT_BYTES < len(reply.text.encode()) <= MAX_DRAFT_BYTES + 4
    assert reply.message.content == reply.text


async def test_a_completion_under_a_wrong_content_type_is_still_one() -> None:
    body = json.dumps(completion("x")).encode()
    async with stub_server(http(body, 200, "text/plain"), http(body, 200, "application/json; charset=utf-8")) as server:
        assert [(await ask(server)).text for _ in range(2)] == ["x", "x"]


async def test_an_empty_answer_is_empty_text() -> None:
    async with stub_server(answer(None), answer(""), answer(None, [])) as server:
        assert [(await ask(server)).text for _ in range(3)] == ["", "", ""]


async def test_drafts_do_not_reach_langgraph_s_message_stream() -> None:
    class State(TypedDict):
        seen: str

    async with stub_server(answer("unreleased draft")) as server:

        async def node(state: State) -> State:
            return {"seen": str(len((await ask(server)).text))}

        builder = StateGraph(State)
        builder.add_node("node", node)
        builder.add_edge(START, "node")
        builder.add_edge("node", END)
        events = [event async for event in builder.compile().astream({"seen": ""}, stream_mode=["messages", "values"])]
    assert [mode for mode, _ in events] == ["values", "values"]
    assert "unreleased" not in repr(events)
    assert server.requests[0]["stream"] is False


async def test_the_configured_endpoint_is_used_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_BASE", "http://192.0.2.1/v1")
    monkeypatch.setenv("OPENAI_PROXY", "http://192.0.2.1:3128")
    monkeypatch.setenv("OPENAI_ORG_ID", "someone")
    async with stub_server(answer("x")) as server:
        settings = ModelSettings.from_env(
            {"SUPERBIZ_MODEL": "openai:my/model:7b", "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-1"}
        )
        client = SettingsModelFactory(settings, offline=None).client(None)  # type: ignore[arg-type]
        reply = await client.complete(ModelRequest(Component.SYSTEM_CHAT, 1, ASK))
    assert reply.text == "x"
    assert server.requests[0]["model"] == "my/model:7b"
    assert server.headers[0]["authorization"] == "Bearer sk-1"
