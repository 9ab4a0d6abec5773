from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.rag.chunks import MAX_CONTENT_CHARS, MAX_TITLE_CHARS, split_document
from tools.rag.cutting import cut_markdown
from tools.rag.markdown import fences, front_matter, heading_path, sections
from tools.rag.tokenize import MAX_TERM_CHARS, index_terms, query_terms

MARKDOWN = st.lists(
    st.sampled_from(
        ["# Title", "## Part", "text text", "```logs", "```", "~~~", "# not a heading", "", "---", "=====", "> quote",
         "- item", "磁盘使用率过高", "    indented", "title: x", "x" * 700]
    )
    | st.text(max_size=40),
    max_size=60,
).map("\n".join)  # fmt: skip


def test_identifiers_are_indexed_whole_and_in_parts() -> None:
    assert index_terms("CrashLoopBackOff") == ["crashloopbackoff", "crash", "loop", "back", "off"]
    assert index_terms("mapper_parsing_exception") == ["mapperparsingexcept", "mapper", "pars", "except"]
    assert index_terms("HTTPServer") == ["httpserver", "http", "server"]


def test_an_identifier_ranks_by_its_parts_and_is_judged_whole_too() -> None:
    terms = query_terms("CrashLoopBackOff")
    assert terms.judged == ("crashloopbackoff", "crash", "loop", "back", "off")
    assert terms.ranked == ("crash", "loop", "back", "off")


def test_words_are_lower_cased_and_stemmed() -> None:
    assert index_terms("Restarting restarts RESTARTED") == ["restart", "restart", "restart"]


def test_chinese_is_cut_into_words_beside_english() -> None:
    terms = index_terms("订单服务 OOMKilled 内存溢出")
    assert {"订单", "服务", "内存", "溢出", "oom", "kill"} <= set(terms)


def test_full_width_letters_are_the_same_words() -> None:
    assert index_terms("ＯＯＭ　５０３") == index_terms("OOM 503")


def test_stop_words_do_not_judge_a_question_but_a_question_of_stop_words_keeps_them() -> None:
    assert query_terms("why is the 订单 服务 的 pod slow, 为什么?").judged == ("订单", "服务", "pod", "slow")
    assert query_terms("what is this").judged == ("what", "is", "this")


@given(st.text(max_size=500))
def test_terms_are_plain_words_that_sqlite_can_quote(text: str) -> None:
    terms = query_terms(text)
    assert set(terms.ranked) <= set(terms.judged)
    for term in (*index_terms(text), *terms.judged):
        assert 0 < len(term) <= MAX_TERM_CHARS * 4
        assert '"' not in term
        assert "\0" not in term
        assert not re.search(r"\s", term)
        term.encode()


def test_headings_inside_fences_do_not_split() -> None:
    body = "# Real\n\ntext\n\n```bash\n# comment\nls\n```\n\n~~~\n## also not\n```\n~~~\n\n## Second\n\nmore"
    assert [section.path for section in sections(body)] == [("Real",), ("Real", "Second")]


def test_underlined_headings_are_headings_but_rules_tables_and_lists_are_not() -> None:
    body = "Top\n===\n\ntext\n\nSub\n---\n\nmore\n\n- item\n---\n\n| a |\n|---|\n| b |"
    assert [section.path for section in sections(body)] == [("Top",), ("Top", "Sub")]


def test_front_matter_is_stripped_and_gives_the_title() -> None:
    text = '---\ntitle: "Disk full"\naliases: [secret-alias]\n---\n\n# Other heading\n\nBody.'
    (chunk,) = split_document(text, "file")
    assert chunk.title == "Disk full"
    assert "secret-alias" not in chunk.content
    assert chunk.content.startswith("# Other heading")


def test_a_rule_at_the_start_is_no_front_matter() -> None:
    assert front_matter("---\n\nJust text.\n\n---\nmore") == ("", "---\n\nJust text.\n\n---\nmore")


def test_a_heading_that_repeats_the_title_is_not_named_twice() -> None:
    assert heading_path("Kube Pod Crash Looping", ("KubePodCrashLooping", "Meaning")) == (
        "Kube Pod Crash Looping > Meaning"
    )


def test_a_small_runbook_stays_one_piece() -> None:
    text = "# A\n\n" + "\n\n".join(f"## Part {n}\n\ntext {n}" for n in range(8))
    assert len(text) < MAX_CONTENT_CHARS
    chunks = split_document(text, "a")
    assert [chunk.content for chunk in chunks] == [text]
    assert chunks[0].title == "A"


def test_long_files_split_at_headings_with_the_path_as_title() -> None:
    text = "# Disk\n\n## Meaning\n\n" + "full disk. " * 60 + "\n\n## Fix\n\n" + "remove logs. " * 60
    chunks = split_document(text, "disk")
    assert [(chunk.title, chunk.slug) for chunk in chunks] == [("Disk > Meaning", "meaning"), ("Disk > Fix", "fix")]


def test_the_checks_of_a_runbook_are_in_every_piece_of_it() -> None:
    checks = "```logs\ntopic: app\nquery: ERROR\n```", "```mysql\nSELECT 1\n```"
    text = "# Runbook\n\n## Symptoms\n\n" + "orders fail. " * 70 + "\n\n## Checks\n\n" + "\n\n".join(checks)
    text += "\n\n## Background\n\n" + "\n\n".join("a paragraph of background. " * 12 for _ in range(8))
    chunks = split_document(text, "runbook")
    assert len(chunks) > 3
    for chunk in chunks:
        assert all(check in chunk.content for check in checks)
        assert len(chunk.content) <= MAX_CONTENT_CHARS
    assert "SELECT" not in chunks[0].text, "checks that were added are shown, not searched"


def test_fences_stay_whole_where_they_fit() -> None:
    fence = "```sql\n" + "\n".join(f"select {n};" for n in range(60)) + "\n```"
    text = "# T\n\n" + "word " * 200 + "\n\n" + fence + "\n\n" + "tail " * 200
    assert sum(fence in chunk.content for chunk in split_document(text, "t")) == 1


def test_a_text_file_has_no_headings() -> None:
    text = "# a comment\n" + "line of text\n" * 200
    chunks = split_document(text, "notes", markdown=False)
    assert {chunk.title for chunk in chunks} == {"notes"}
    assert len(chunks) > 1


@given(MARKDOWN)
def test_any_text_splits_into_bounded_pieces_with_unique_names(text: str) -> None:
    chunks = split_document(text, "name")
    assert len({chunk.slug for chunk in chunks}) == len(chunks)
    for chunk in chunks:
        assert 0 < len(chunk.content) <= MAX_CONTENT_CHARS
        assert len(chunk.title) <= MAX_TITLE_CHARS
        assert chunk.content.startswith(chunk.text)


@given(MARKDOWN)
def test_no_word_of_the_body_is_lost(text: str) -> None:
    _, body = front_matter(text.replace("\r\n", "\n").replace("\r", "\n"))
    kept = "\n".join(f"{chunk.title}\n{chunk.text}" for chunk in split_document(text, "name"))
    for word in ("text", "磁盘使用率过高", "indented", "item"):
        headings = re.findall(rf"(?m)^ {{0,3}}#+[ \t].*{word}", body)
        if word in body and not headings and "x" * 700 not in body:
            assert word in kept or re.search(rf"(?m)^.*{word}.*\n *(=+|-{{3,}})[ \t]*$", body)


@given(MARKDOWN)
def test_fences_lie_in_order_inside_the_text(text: str) -> None:
    end = 0
    for fence in fences(text):
        assert end <= fence.start < fence.end <= len(text)
        assert text[fence.start : fence.end] == fence.text
        end = fence.end


@pytest.mark.parametrize("language", ["logs", "mysql"])
def test_a_check_is_never_cut_in_half(language: str) -> None:
    text = f"before\n\n```{language}\nSELECT a FROM t\nWHERE b = 1\n```\nafter"
    for chars in range(len(text)):
        cut = cut_markdown(text, chars)
        assert len(cut) <= chars
        assert "WHERE b = 1\n```" in cut or "SELECT" not in cut


@pytest.mark.parametrize(
    "line",
    [
        f"# {'[' * 500_000}",
        f"# {'{#' * 250_000}",
        f"# a{' ' * 500_000}b",
        f"# a{' #' * 250_000} b",
        f"{'![' * 250_000}\n===",
        f"---\ntitle: a{' ' * 500_000}b\n---\ntext",
        f"---\ntitle{' ' * 500_000}x\n---\ntext",
        f"# {'<' * 500_000}",
    ],
    ids=["brackets", "attributes", "blanks", "closing-marks", "underlined", "front-matter", "key", "tags"],
)
def test_r134_a_hostile_heading_costs_no_more_than_any_other_line(line: str) -> None:
    # With an expression that is quadratic in a line this would take hours.
    chunks = split_document(f"{line}\nrestart the service\n", "name.md")
    assert any("restart" in chunk.text for chunk in chunks)
    assert all(len(chunk.title) <= MAX_TITLE_CHARS for chunk in chunks)
