from __future__ import annotations

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage

from graph.channels import append_items, append_messages

CALL = {"name": "query_logs", "args": {"input": {}}, "id": "c1", "type": "tool_call"}
QUESTION = HumanMessage("why?", id="q")
ASKED = AIMessage("", id="a", tool_calls=[CALL])
ANSWER = ToolMessage("{}", tool_call_id="c1", id="answer-c1")


def test_messages_are_appended_replaced_and_removed_by_their_ids() -> None:
    other = ToolMessage("edited", tool_call_id="c1", id="answer-c1")
    assert append_messages([QUESTION], [[ASKED], ANSWER]) == [QUESTION, ASKED, ANSWER]
    assert append_messages([QUESTION, ASKED, ANSWER], [[other]]) == [QUESTION, ASKED, other]
    assert append_messages([QUESTION, ASKED], [[RemoveMessage(id="a"), RemoveMessage(id="unknown")]]) == [QUESTION]


def test_how_writes_are_batched_makes_no_difference() -> None:
    one_by_one = append_messages(append_messages(append_messages(None, [[QUESTION]]), [[ASKED]]), [[ANSWER]])
    assert one_by_one == append_messages(None, [[QUESTION], [ASKED], [ANSWER]])
    assert append_items(append_items(None, [[1], 2]), [[3]]) == append_items(None, [[1], 2, [3]]) == [1, 2, 3]


def test_r3_a_snapshot_of_plain_data_becomes_messages() -> None:
    """So a server reads the state of a fork for Studio's page."""
    plain = [each.model_dump() for each in (QUESTION, ASKED)]
    found = append_messages(plain, [[ANSWER.model_dump()]])  # type: ignore[arg-type]
    assert [(type(each), each.id) for each in found] == [(type(each), each.id) for each in (QUESTION, ASKED, ANSWER)]
    assert isinstance(found[1], AIMessage)
    assert found[1].tool_calls == ASKED.tool_calls
