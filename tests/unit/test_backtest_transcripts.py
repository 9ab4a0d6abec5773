"""Foreign transcripts: strict reading, classes of results, our rule on the real tracker, rules of other agents (R37-R45)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.backtest import transcripts
from service.backtest.classify import ResultClass, classify
from service.backtest.foreign import ForeignBacktest, RuleOutcome, backtest_transcripts
from service.backtest.rules import OTHERS, ours, rules_for
from service.backtest.transcripts import ForeignCall, Transcript, TranscriptError, read_transcripts
from service.cli.main import run
from tests.data import data_dir

AGAIN, ERROR, EMPTY, SAME, NEW = ResultClass


def calls(*results: str) -> tuple[ForeignCall, ...]:
    """One call a word: `a:x` is call `a` with result `x`."""
    return tuple(ForeignCall("t", *each.split(":")) for each in results)


def stop(rule: Any, *results: str) -> int | None:
    made = calls(*results)
    at: int | None = rule.stops_at(tuple(zip(made, classify(made), strict=True)))
    return at


def exchange(
    result: Any = "x", *, call_id: str = "c", role: str = "tool", arguments: str = "{}"
) -> list[dict[str, Any]]:
    function = {"name": "search", "arguments": arguments}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": role, "tool_call_id": call_id, "content": result},
    ]


@pytest.mark.parametrize(
    ("results", "classes"),
    [
        (["a:1", "b:2"], [NEW, NEW]),
        (["a:", "b:[]", "c:{}", "d:null", 'e:{"x": [""]}'.replace(": [", ":[")], None),
        (["a:Error no such flight", "a:1"], [ERROR, NEW]),
        (["a:1", "a:2"], [NEW, AGAIN]),
        (["a:1", "a:Error"], [NEW, AGAIN]),
        (["a:1", "b:1"], [NEW, SAME]),
        (["a:0", "b:false"], [NEW, NEW]),
    ],
)
def test_results_have_one_class(results: list[str], classes: list[ResultClass] | None) -> None:
    made = tuple(ForeignCall("t", *each.split(":", 1)) for each in results)
    assert list(classify(made)) == (classes or [EMPTY] * len(made))


def test_an_error_field_that_says_something_is_an_error() -> None:
    made = [
        ForeignCall("t", "a", '{"error": "down", "response": "x"}'),
        ForeignCall("t", "b", '{"error": "", "r": ""}'),
    ]
    assert classify(made) == (ERROR, EMPTY)


def test_r38_r45_our_rule_is_the_trackers() -> None:
    two = ours(2)
    assert stop(two, "a:1", "b:", "c:") == 2
    assert stop(two, "a:", "b:1", "c:", "d:2", "e:") is None  # what is new resets
    assert stop(two, "a:", "b:Error", "c:") == 2  # an error changes nothing
    assert stop(two, "a:1", "a:1", "a:1") == 2  # a scope that was checked is no gain, whatever it would bring
    assert stop(two, "a:Error", "a:Error", "a:Error") is None  # a failed call may be tried again
    assert stop(ours(2, errors_count=True), "a:Error", "b:Error") == 1


@given(
    made=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "1", "2", "Error"])), max_size=20),
    threshold=st.integers(1, 5),
)
def test_r37_the_stop_is_where_a_plain_count_says(made: list[tuple[str, str]], threshold: int) -> None:
    run = tuple(ForeignCall("t", *each) for each in made)
    classes, count, expected = classify(run), 0, None
    for index, found in enumerate(classes):
        count = count if found is ERROR else 0 if found is NEW else count + 1
        if count >= threshold:
            expected = index
            break
    assert ours(threshold).stops_at(tuple(zip(run, classes, strict=True))) == expected


def test_rules_of_other_agents() -> None:
    four, three, five, same, window, ten = OTHERS
    assert stop(four, "a:1", "a:1", "a:1", "a:1") == 3
    assert stop(four, "a:1", "a:1", "a:2", "a:1") is None
    assert stop(three, "b:1", "a:1", "a:2", "a:3") == 3
    assert stop(five, *["a:1"] * 4) is None
    assert stop(five, *["a:1"] * 5) == 4
    assert stop(same, "a:1", "b:1", "c:1") == 2
    assert stop(window, *["a:1", "b:1"] * 5) == 8
    assert stop(window, *["a:1", "b:1", "c:1"] * 6) is None
    assert stop(ten, *[f"c{each}:1" for each in range(9)]) is None
    assert stop(ten, *[f"c{each}:1" for each in range(12)]) == 9


def test_a_success_is_lost_only_when_calls_are_cut_off() -> None:
    runs = [Transcript("a", True, calls("a:1", "b:", "c:")), Transcript("b", True, calls("a:", "b:", "c:1"))]
    (outcome,) = backtest_transcripts(runs, [ours(2)]).outcomes
    assert (outcome.stopped, outcome.lost, outcome.useless_cut, outcome.other_cut) == (2, 1, 0, 1)


def of(result: ForeignBacktest, rule: str) -> RuleOutcome:
    return next(each for each in result.outcomes if each.rule == rule)


def test_the_known_figure_of_the_real_transcripts() -> None:
    result = backtest_transcripts(
        read_transcripts(data_dir() / "trajectories" / "tau_bench_airline_gpt4o_a.json"), rules_for(range(1, 7))
    )
    assert (result.runs, result.successes, result.calls, result.useless) == (100, 49, 577, 73)
    counting = of(result, "no gain 2, errors count")
    assert (counting.stopped, counting.lost, counting.useless_cut) == (11, 0, 18)
    table = {
        name: (of(result, name).stopped, of(result, name).lost) for name in ("no gain 1", "no gain 2", "no gain 3")
    }
    assert table == {"no gain 1": (34, 8), "no gain 2": (5, 0), "no gain 3": (3, 0)}
    assert of(result, "limit of 10 calls").lost == 5


def write(folder: Path, text: Any, name: str = "runs.json") -> Path:
    path = folder / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def test_both_forms_of_calls_and_all_flags_are_read(tmp_path: Path) -> None:
    legacy = [
        {"role": "assistant", "content": None, "function_call": {"name": "search", "arguments": "{}"}},
        {"role": "function", "name": "search", "content": [{"type": "text", "text": "x"}]},
    ]
    runs = [
        {"messages": exchange(arguments='{"b":1,"a":2}'), "success": True},
        {"traj": exchange() + exchange("y"), "reward": 0.5},
        {"answer_generation": {"train_messages": [[], legacy]}, "win": False},
    ]
    read = list(read_transcripts(write(tmp_path, runs)))
    assert [each.success for each in read] == [True, False, False]
    assert [[call.result for call in each.calls] for each in read] == [["x"], ["x", "y"], ["x"]]
    assert read[0].calls[0].arguments == '{"a":2,"b":1}'
    lines = "\n".join(json.dumps(each) for each in runs)
    assert [each.calls for each in read_transcripts(write(tmp_path, lines, "runs.jsonl"))] == [
        each.calls for each in read
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", r"runs\.json: no JSON \(line 1, column 2\)"),
        ("[" * 100_000, r"runs\.json: nested too deeply"),
        ("1" * 10_000, r"runs\.json: no JSON"),
        ('"SECRET"', r"runs\.json: must be an object with messages and a success flag"),
        ([{"messages": []}], r"runs\.json: run 1: has no success flag; one of success, win, reward is needed"),
        ([{"messages": [], "success": "SECRET"}], r"run 1: success: must be true or false"),
        ([{"messages": [], "reward": 7}], r"run 1: reward: must be a number from 0 to 1"),
        ([{"success": True}], r"run 1: answer_generation\.train_messages: must be a list of messages"),
        ([{"messages": "SECRET", "success": True}], r"run 1: messages: must be a list of messages"),
        ([{"messages": [{}] * 10_001, "success": True}], r"run 1: messages: more than 10000 messages"),
        ([{"messages": ["SECRET"], "success": True}], r"run 1: message 1: role: must be one of system, "),
        ([{"messages": [{"role": "SECRET"}], "success": True}], r"run 1: message 1: role: must be one of system, "),
        ([{"messages": exchange()[1:], "success": True}], r"message 1: answers no call of the message before it"),
        ([{"messages": exchange({"SECRET": 1}), "success": True}], r"message 2: content: must be text"),
        (
            [{"messages": [{"role": "assistant", "tool_calls": 5}], "success": True}],
            r"message 1: tool_calls: must be a list",
        ),
        (
            [{"messages": [{"role": "assistant", "tool_calls": ["SECRET"]}], "success": True}],
            r"message 1: tool_calls: each needs id and function",
        ),
        (
            [{"messages": [{"role": "assistant", "function_call": {"name": "x"}}], "success": True}],
            r"message 1: arguments: must be text",
        ),
    ],
)
def test_hostile_transcripts_are_refused_by_place_and_field(tmp_path: Path, text: Any, said: str) -> None:
    with pytest.raises(TranscriptError, match=said) as refused:
        list(read_transcripts(write(tmp_path, text)))
    assert "SECRET" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_size_is_bounded_and_lines_are_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "MAX_FILE_BYTES", 100)
    monkeypatch.setattr(transcripts, "MAX_LINE_BYTES", 1000)
    line = json.dumps({"messages": exchange(), "success": True})
    with pytest.raises(
        TranscriptError, match=r"runs\.json: larger than 0 MiB; write one run a line into a \.jsonl file"
    ):
        list(read_transcripts(write(tmp_path, f"[{line}]")))
    long = write(tmp_path, f"{line}\n\n{line}\n" + "x" * 2000, "runs.jsonl")
    reading = read_transcripts(long)
    assert next(reading).success
    assert next(reading).name == "runs.jsonl: line 3"
    with pytest.raises(TranscriptError, match=r"runs\.jsonl: line 4: longer than 0 MiB"):
        next(reading)


def test_the_command_names_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, [{"messages": exchange(), "success": True}], "good.json")
    write(tmp_path, "[", "bad.json")
    assert run(["backtest", "--format", "openai-messages", str(tmp_path), "--no-gain-threshold", "2..3", "--json"]) == 1
    shown = capsys.readouterr()
    body = json.loads(shown.out)
    assert (body["runs"], body["calls"]) == (1, 1)
    assert body["left_out"] == ["bad.json: no JSON (line 1, column 2)"]
    assert "left out: bad.json" in shown.err
    assert [each["rule"] for each in body["rules"]][:2] == ["no gain 2", "no gain 3"]


@pytest.mark.parametrize("text", ["0", "7..3", "x", "1...6", "51"])
def test_a_threshold_that_cannot_be_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    path = write(tmp_path, [])
    assert run(["backtest", "--format", "openai-messages", str(path), "--no-gain-threshold", text]) == 2
    assert "--no-gain-threshold: must be a number or a range such as 1..6, from 1 to 50" in capsys.readouterr().err
