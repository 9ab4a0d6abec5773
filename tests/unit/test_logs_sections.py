"""The section an indented line belongs to, in text without times."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tools.catalog import TopicEntry
from tools.logs.backend import Lookback, ParsedQuery
from tools.logs.backend_files import FilesBackend
from tools.logs.request import LogEvent
from tools.logs.sections import MAX_SECTION_CHARS, Sections, section_text

POD = """Name: web
Containers:
  app:
    State:  Waiting
      Reason:  CrashLoopBackOff

    Ready:  False
  sidecar:
    Ready:  True
Events:
  Normal  Pulled
"""


def found(folder: Path, query: str = "", text: str = POD) -> list[LogEvent]:
    (folder / "a.txt").write_text(text)
    entry = TopicEntry(name="app", path="a.txt")
    backend = FilesBackend(folder)
    return asyncio.run(backend.query(entry, ParsedQuery.of(query), Lookback(30, None, 1.8e9), 50, 10.0)).events


def sections(folder: Path, query: str = "", text: str = POD) -> list[tuple[str, str]]:
    return [(event.message.split(" ")[0], event.attributes.get("section", "")) for event in found(folder, query, text)]


def test_lines_without_times_come_in_file_order_with_their_section(tmp_path: Path) -> None:
    assert sections(tmp_path) == [
        ("Name:", ""),
        ("Containers:", ""),
        ("app:", "Containers"),
        ("State:", "Containers / app"),
        ("Reason:", "Containers / app / State: Waiting"),
        ("Ready:", "Containers / app"),
        ("sidecar:", "Containers"),
        ("Ready:", "Containers / sidecar"),
        ("Events:", ""),
        ("Normal", "Events"),
    ]


def test_a_searched_line_tells_its_section_too(tmp_path: Path) -> None:
    assert sections(tmp_path, "ready") == [("Ready:", "Containers / app"), ("Ready:", "Containers / sidecar")]


def test_items_of_a_list_belong_to_the_line_before_the_list(tmp_path: Path) -> None:
    text = "spec:\n  containers:\n  - name: app\n    image: x\n  - name: side\n    image: y\n  policy: z\n"
    assert sections(tmp_path, "image OR policy", text) == [
        ("image:", "spec / containers / name: app"),
        ("image:", "spec / containers / name: side"),
        ("policy:", "spec"),
    ]


def test_lines_with_a_time_have_no_section(tmp_path: Path) -> None:
    text = "Pods:\n  web: up\n2026-03-01 03:00:00 INFO start\n  going on\n2026-03-01 03:01:00 INFO end\n"
    assert [event.attributes for event in found(tmp_path, "", text)] == [{}, {}, {}, {"section": "Pods"}]


def test_a_secret_in_a_heading_is_masked_before_it_is_cut(tmp_path: Path) -> None:
    heading = "x" * 52 + " AKIA" + "ABCDEFGHIJKLMNOP"
    ((_, section),) = sections(tmp_path, "inner", f"{heading}\n  inner\n")
    assert section.startswith("xxx")
    assert "AKIA" not in section


def reference(lines: list[str], index: int) -> list[str]:
    """Say it the long way: every line above that is less indented than all lines between it and this one."""

    def depth(line: str) -> int:
        return len(line) - len(line.lstrip()) + line.lstrip().startswith("- ")

    above, least = [], depth(lines[index])
    for line in reversed(lines[:index]):
        if line.strip() and depth(line) < least:
            above.insert(0, line.strip())
            least = depth(line)
    return above


LINES = st.lists(
    st.builds(lambda depth, dash, name: " " * depth + dash + name, st.integers(0, 5), st.sampled_from(["", "- "]),
              st.sampled_from(["a", "b:", "c: d"])) | st.just(""),
    min_size=1, max_size=25,
)  # fmt: skip


@given(LINES, st.randoms(use_true_random=False))
def test_sections_agree_with_the_rule_in_any_order_of_asking(lines: list[str], random: object) -> None:
    data = "\n".join(lines).encode()
    starts = [sum(len(line) + 1 for line in lines[:index]) for index in range(len(lines))]
    asked = Sections(data)
    order = [index for index, line in enumerate(lines) if line.strip()]
    random.shuffle(order)  # type: ignore[attr-defined]
    for index in order:
        assert [heading.decode() for heading in asked.above(starts[index])] == reference(lines, index)


@given(st.lists(st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")), max_size=30).map(tuple))
def test_section_text_is_bounded(headings: tuple[bytes, ...]) -> None:
    assert len(section_text(headings)) <= MAX_SECTION_CHARS
