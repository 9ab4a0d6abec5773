from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.offline.bound_tools import listed
from service.offline.phrases import excerpt, quote
from service.offline.reading import read_lines
from service.offline.terms import read_question
from service.offline.transcript import Exchange
from service.offline.trouble import longest_seconds, severity, telling

QUESTION = read_question("why does billing-api fail?")


def exchange(
    events: list[dict[str, object]], patterns: list[dict[str, object]] | None = None, total: int = 0
) -> Exchange:
    answer = {
        "evidence_status": "EVIDENCE_FOUND",
        "events": events,
        "patterns": patterns or [],
        "total": total or len(events),
    }
    return Exchange("c1", "logs", {"topic": "t"}, answer)


def test_questions_are_split_into_names_words_and_kinds() -> None:
    question = read_question("Why is the `stock` topic of order-sync-7 slow in EU1?")
    assert set(question.names) == {"stock", "order-sync-7", "eu1"}
    assert question.kinds == ("topic",)
    assert question.about_time
    assert read_question("支付服务响应时间为什么变慢").about_time
    assert "支付" in read_question("支付服务为什么报错").words


def test_levels_and_words_of_trouble_rank_lines() -> None:
    assert severity("ERROR", "x") > severity("WARN", "x") > severity("INFO", "x") == 0
    assert severity("", "cannot open socket: connection refused") >= 3
    assert severity("", "订单写入失败") >= 3
    assert severity("", 'status ok, "error": null, retries=0') == 0
    assert severity("", "0 errors, no failures") == 0


def test_stack_frames_tell_nothing() -> None:
    assert telling("", '  File "/a/b.py", line 3, in run_error', QUESTION) == 0
    assert telling("", "\tat com.example.ErrorHandler.fail(ErrorHandler.java:3)", QUESTION) == 0


def test_durations_are_read_with_their_units() -> None:
    assert longest_seconds("query took 1500ms") == 1.5
    assert longest_seconds("done in 3 s after 2 minutes") == 120
    assert longest_seconds('"response_time_ms": 6000') == 6
    assert longest_seconds("耗时 250 毫秒") == 0.25
    assert longest_seconds("pulled 12s ago, port 8080") == 0


def test_equal_lines_are_one_line_with_a_count() -> None:
    events: list[dict[str, object]] = [
        {"message": f"order {n} failed: card refused by bank", "level": "ERROR", "timestamp": f"t{n}"}
        for n in (1, 2, 3)
    ]
    (line,) = read_lines(exchange(events), QUESTION)
    assert (line.count, line.first, line.last) == (3, "t1", "t3")


def test_a_patterns_count_goes_to_its_event_and_others_stand_alone() -> None:
    events: list[dict[str, object]] = [{"message": "order 7 failed: card refused by bank", "level": "ERROR"}]
    patterns: list[dict[str, object]] = [
        {"template": "order 0 failed: card refused by bank", "count": 90, "first": "a", "last": "b"},
        {"template": "disk full on volume <*> cannot write", "count": 1, "first": "c", "last": "c"},
    ]
    lines = read_lines(exchange(events, patterns, total=91), QUESTION)
    assert {(line.text, line.count, line.is_event) for line in lines} == {
        ("order 7 failed: card refused by bank", 90, True),
        ("disk full on volume <*> cannot write", 1, False),
    }


def test_listed_names_come_from_lines_with_a_dash() -> None:
    named = listed(
        "Topics:\n- a-logs: logs of a\n- b (times in UTC): with detail\n  - orders (id, status)\nOther - no.\n- c"
    )
    assert [(item.name, item.description) for item in named] == [
        ("a-logs", "logs of a"),
        ("b", "with detail"),
        ("c", ""),
    ]
    assert named[1].detail == ("- orders (id, status)",)


def test_quotes_take_the_line_that_names_the_cause() -> None:
    text = "Request failed\n  File \"x.py\", line 2\n    raise E\nValueError: could not parse 'x' because it is empty"
    assert quote(text) == "`ValueError: could not parse 'x' because it is empty`"


def test_a_cut_quote_never_ends_inside_a_number() -> None:
    text = "failed " + "word " * 20 + "1234567890 tail"
    for limit in range(40, 115):
        piece = excerpt(text, limit)
        assert not piece[-1].isdigit() or piece.endswith("1234567890")


@given(st.text(max_size=400), st.integers(min_value=40, max_value=200))
def test_r89_a_quote_is_verbatim_bounded_and_without_backticks(text: str, limit: int) -> None:
    piece = excerpt(text, limit)
    assert piece in text
    assert len(piece) <= limit
    assert "`" not in piece
    assert "\n" not in piece


def test_placeholders_of_a_pattern_are_neither_words_nor_quoted() -> None:
    patterns: list[dict[str, object]] = [
        {"template": "order <num> failed: card refused by <ip>", "count": 90, "values": {"min": "1", "max": "7"}},
        {"template": "<other patterns>", "count": 10},
    ]
    (line,) = read_lines(exchange([], patterns, total=100), QUESTION)
    assert line.skeleton == frozenset({"order", "failed", "card", "refused", "by"})
    assert quote(line.text) == "`failed: card refused by`"
