"""Patterns: what stays, what varies, values, secrets, bounds; and cutting text."""

from __future__ import annotations

import csv
import json
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import data_dir
from tools.logs.excerpt import GAP, condense, cut_line
from tools.logs.pattern_list import bounded, response_patterns
from tools.logs.patterns import PatternGrouper
from tools.logs.request import LogPattern, PatternValues, QueryLogsResponse
from tools.logs.result import MAX_PATTERNS, PATTERN_BYTES, make_agent_result
from tools.placeholders import ANY, OTHER, verbatim_pieces


def grouped(*messages: str) -> list[tuple[str, int]]:
    return [(pattern.template, pattern.count) for pattern in grouper(*messages).grouping.patterns]


def grouper(*messages: str) -> PatternGrouper:
    made = PatternGrouper()
    made.add(messages)
    return made


def values(*messages: str) -> tuple[str, str] | None:
    (pattern,) = grouper(*messages).grouping.patterns
    return pattern.values


def test_a_lone_event_shows_its_line() -> None:
    line = "Restart Count: 0 on 10.0.0.7 id 0x7f98a189 at 9.01"
    assert grouped(line) == [(line, 1)]


def test_the_same_number_stays_and_a_varying_one_is_named() -> None:
    assert grouped(*(f"call to db:3306 completed in {n}.01 seconds" for n in (5, 9, 10))) == [
        ("call to db:3306 completed in <num> seconds", 3)
    ]


@pytest.mark.parametrize(
    ("messages", "template"),
    [
        (["took 5 ms", "took 9.5 ms"], "took <num> ms"),
        (["from 10.0.0.1 ok", "from 10.0.0.2 ok"], "from <ip> ok"),
        (["at 0x7f98a ok", "at 0x7f98b ok"], "at <hex> ok"),
        (["req 321da3d1-2435-4987 ok", "req 12345678 ok"], "req <hex> ok"),
        (["at 10.0.0.1 ok", "at 7 ok"], "at <*> ok"),
        (["job of user_1 is done", "job of user_2 is done"], "job of user_<num> is done"),
        (["VM i-1 is paused (event)", "VM i-2 is started (event)"], None),
        (["7 GET of it took 5 ms", "7 POST of it took 5 ms"], None),
        (["in file /var/lib/a.log now", "in file /srv/b now"], "in file <*> now"),
        (["lost an1 an17 of all", "lost bn782 cn3 of all"], "lost <*> <*> of all"),
        (["failed for host=a.b.c here", "failed for host=x.y.z here"], "failed for host=<*> here"),
        (["the red one is done", "the blue one is done"], None),
        (["a b red d e f", "a b blue d e f"], "a b <*> d e f"),
    ],
)
def test_what_varies_is_named_by_its_kind(messages: list[str], template: str | None) -> None:
    found = grouped(*messages)
    assert found == ([(template, 2)] if template else [(message, 1) for message in messages])


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (["took 9.01 seconds", "took 10.5 seconds", "took 2 seconds"], ("2", "10.5")),
        (["took 007 ms", "took 12 ms"], ("007", "12")),
        (["took 5 ms", "took 5 ms"], None),
        (["a=1 b=2", "a=3 b=4"], None),
        (["job 1 took 2.5 s", "job 2 took 3.5 s"], ("2.5", "3.5")),
        (["user_1 is in now", "user_2 is in now"], None),
        (["peer 10.0.0.1:41 x", "peer 10.0.0.2:42 x"], None),
        (["at 10:37:01 up", "at 10:37:02 up"], None),
    ],
)
def test_values_tell_the_range_of_the_one_measured_number(
    messages: list[str], expected: tuple[str, str] | None
) -> None:
    assert values(*messages) == expected


def test_few_values_of_a_key_tell_kinds_apart_and_many_are_a_parameter() -> None:
    few = [f"login failure on tty user={name}" for name in ("root", "guest") for _ in range(3)]
    assert [count for _, count in grouped(*few)] == [3, 3]
    many = [f"login failure on tty user={name}" for name in ("ann", "ben", "cid", "dan", "eve") for _ in range(3)]
    assert grouped(*many) == [("login failure on tty user=<*>", 15)]


def test_patterns_do_not_depend_on_when_they_are_asked_for() -> None:
    messages = [f"took {n} ms for {n % 3} of \udc80 in 7.5 s" for n in range(40)]
    once, often = PatternGrouper(), PatternGrouper()
    once.add(messages)
    for message in messages:
        often.add([message])
        assert often.grouping.patterns
    assert once.grouping == often.grouping
    assert once.grouping.patterns[0].values is None
    assert [pattern.template for pattern in once.grouping.patterns] == ["took <num> ms for <num> of \udc80 in 7.5 s"]


def test_a_pattern_has_the_times_and_the_rank_of_its_messages() -> None:
    made = PatternGrouper()
    assert made.add(["took 5 ms", "other"], [7.0, None], [1, 0]) == [0, 1]
    assert made.add(["took 9 ms", "took 5 ms"], [3.0, None], [0, 4]) == [0, 0]
    told = [(found.template, found.count, found.first, found.last, found.rank) for found in made.grouping.patterns]
    assert told == [("took <num> ms", 3, 3.0, 7.0, 4), ("other", 1, None, None, 0)]


TOKENS = st.sampled_from(
    [
        "took",
        "5",
        "6.5",
        "10.0.0.1",
        "10.0.0.2",
        "x1",
        "x2",
        "abc",
        "0xff",
        "12345678",
        "a=7",
        "(8)",
        "a=b",
        "/x/y",
        "/z/1",
    ]
)


@given(st.lists(st.lists(TOKENS, min_size=1, max_size=7).map(" ".join), min_size=1, max_size=20))
def test_fixed_pieces_of_a_template_stand_in_every_line_of_it(messages: list[str]) -> None:
    made = PatternGrouper()
    shapes = made.add(messages)
    patterns, places = made.grouping.patterns, made.grouping.places
    assert sum(pattern.count for pattern in patterns) == len(messages)
    for message, shape in zip(messages, shapes, strict=True):
        pattern = patterns[places[shape]]
        assert all(piece.strip() in message for piece in verbatim_pieces(pattern.template))
        if pattern.count == 1:
            assert pattern.template == message
        if pattern.values:
            assert float(pattern.values[0]) < float(pattern.values[1])


TOKEN = "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"


@pytest.mark.parametrize("secret", [TOKEN, "password=hunter1", "Bearer abc1defghijk", "sk-" + "abcdefghij1234567890"])
def test_r55_a_secret_whose_digits_vary_is_masked(secret: str) -> None:
    other = secret.replace("1", "2")
    (pattern,) = response_patterns(
        grouper(f"use {secret} in 5 ms now", f"use {other} in 9 ms now").grouping.patterns, lambda _: None
    )
    assert pattern.template.startswith("use ")
    assert pattern.template.endswith("in <num> ms now")
    assert "[masked]" in pattern.template
    assert not any(part in pattern.template for part in ("hunter", "abc", "eyJ", "sub"))
    assert pattern.values is None


ITEMS = st.lists(
    st.builds(
        LogPattern,
        template=st.lists(st.sampled_from(["error", "in", "pay", "cart", "<num>", "of"]), min_size=1, max_size=8).map(" ".join)
        | st.text(max_size=300),
        count=st.integers(1, 1000),
        first=st.none() | st.just("2026-03-01T03:00:00.000+00:00"),
        values=st.none() | st.just(PatternValues(min="1", max="2.5")),
    ),
    max_size=60,
)  # fmt: skip


@given(ITEMS)
def test_r51_counts_of_patterns_add_up_however_few_fit(items: list[LogPattern]) -> None:
    total = sum(item.count for item in items)
    response = QueryLogsResponse(topic="a", query="", total=total, returned=0, patterns=items)
    shown = make_agent_result(response, ())["patterns"]
    assert sum(item["count"] for item in shown) == total
    assert len(shown) <= MAX_PATTERNS
    assert len(json.dumps(shown, ensure_ascii=False).encode("utf-8", "replace")) <= PATTERN_BYTES
    assert [item["template"] for item in shown].count(OTHER) <= 1
    assert OTHER not in [item["template"] for item in shown[:-1]]


def test_templates_that_differ_in_one_token_are_joined_before_any_is_left_out() -> None:
    services = [f"{name}-service" for name in ("pay", "cart", "user", "auth", "order", "stock")]
    problems = ["query failed: duplicate key of table", "query failed: syntax error near word", "Ready: True"]
    items = [
        LogPattern(template=f"[ERROR] {name} - {problem}", count=10, first=f"2026-03-01T03:0{at}:00+00:00")
        for problem in problems[:2]
        for at, name in enumerate(services)
    ]
    assert bounded(items, lambda listed: len(listed) <= 12) == items
    joined = bounded(items, lambda listed: len(listed) <= 4)
    assert [(item.template, item.count) for item in joined] == [
        (f"[ERROR] {ANY} - {problem}", 60) for problem in problems[:2]
    ]
    assert joined[0].first == "2026-03-01T03:00:00+00:00"
    short = [LogPattern(template=f"{name}: True", count=1) for name in services]
    assert [(item.template, item.count) for item in bounded(short, lambda listed: len(listed) <= 3)] == [
        ("pay-service: True", 1), ("cart-service: True", 1), (OTHER, 4)
    ]  # fmt: skip


GROUPED = {"Apache": 1.0, "Hadoop": 0.99, "OpenSSH": 0.99, "Zookeeper": 0.99}
"""Share of lines of the labelled samples whose group is exactly the labelled one."""


@pytest.mark.parametrize("name", GROUPED)
def test_grouping_of_labelled_samples(name: str) -> None:
    path = data_dir() / "logs" / f"{name}_2k.log_structured.csv"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    made = PatternGrouper()
    ours: defaultdict[int, set[int]] = defaultdict(set)
    theirs: defaultdict[str, set[int]] = defaultdict(set)
    shapes = made.add([row["Content"] for row in rows])
    for index, row in enumerate(rows):
        ours[made.grouping.places[shapes[index]]].add(index)
        theirs[row["EventId"]].add(index)
    exact = {frozenset(group) for group in theirs.values()}
    assert sum(len(group) for group in ours.values() if frozenset(group) in exact) / len(rows) >= GROUPED[name]


@given(st.text(max_size=300), st.integers(8, 200))
def test_cut_text_is_the_beginning_and_ends_with_a_mark(text: str, limit: int) -> None:
    shown = cut_line(text, limit)
    assert len(shown) <= limit
    if shown != text:
        assert shown.endswith(GAP)
        assert text.startswith(shown[:-1])
        left = text[len(shown) - 1 :]
        assert not (shown[-2:-1].isdigit() and left[:1].isdigit()) or set(shown[:-1]) <= set("0123456789.")


@given(st.lists(st.sampled_from(["alpha", "beta 12", "caused by x", "  at frame"]), min_size=1, max_size=60), st.booleans(),
       st.integers(80, 300))  # fmt: skip
def test_condensed_lines_are_whole_or_beginnings(words: list[str], lines: bool, limit: int) -> None:
    text = ("\n" if lines else " ").join(words)
    shown = condense(text, limit, ["needle"])
    assert len(shown) <= limit
    for line in shown.split("\n"):
        assert line == GAP or line in text or text.find(line.removesuffix(GAP)) >= 0


def test_a_searched_word_beyond_the_bound_is_shown_in_whole_words() -> None:
    text = "request refused " + "filler word " * 100 + "because needle broke the machine " + "and so on " * 100
    shown = condense(text, 200, ["needle"])
    head, around = shown.split("\n")
    assert head.startswith("request refused filler")
    assert head.endswith(GAP)
    assert around.startswith(GAP)
    assert around.strip(GAP) in text
    assert "because needle broke" in around
    assert condense(text, 200, ["refused", "needle"]) == cut_line(text, 200)


def test_a_trace_keeps_its_first_line_and_its_last_exception() -> None:
    frames = "\n".join(f'  File "app.py", line {n}, in f\n    call_{n}()' for n in range(60))
    text = f"ERROR in app: request failed\nTraceback (most recent call last):\n{frames}\nValueError: no host 'memcom'"
    assert condense(text, 150) == f"ERROR in app: request failed\n{GAP}\nValueError: no host 'memcom'"
