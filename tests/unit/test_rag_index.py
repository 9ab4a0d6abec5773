from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data import ROOT
from tools.catalog import Catalog, build_catalog
from tools.rag import index, schema, search
from tools.rag.folder import MAX_FILE_BYTES, KnowledgeError
from tools.rag.index import IndexReport, index_catalog, index_folder
from tools.rag.score import MAX_FILES
from tools.rag.search import MAX_ID_CHARS, IndexMissingError, document_id, search_index

OLD = 1_700_000_000


class Base:
    """A knowledge folder and its index in a temporary place."""

    def __init__(self, tmp: Path) -> None:
        self.folder = tmp / "kb"
        self.path = tmp / "index" / "kb.db"
        self.folder.mkdir()

    def write(self, path: str, text: str | bytes, modified: int | None = OLD) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        if modified is not None:
            os.utime(file, (modified, modified))
        return file

    def index(self) -> IndexReport:
        return index_folder("kb", self.folder, self.path)

    def sources(self, query: str) -> list[str]:
        return [hit.source for hit in search_index(self.path, "kb", query, time.monotonic() + 5)]


@pytest.fixture
def base(tmp_path: Path) -> Base:
    return Base(tmp_path)


def counts(report: IndexReport) -> tuple[int, int, int, int, int]:
    return report.added, report.updated, report.removed, report.unchanged, report.skipped


def catalog(base: Path, *folders: str) -> Catalog:
    return build_catalog({"knowledge": [{"name": name, "path": name} for name in folders]}, base)


def test_only_what_changed_is_indexed_again(base: Base) -> None:
    base.write("a.md", "# Alpha\n\nkafka lag")
    base.write("sub/b.txt", "redis latency")
    assert counts(base.index()) == (2, 0, 0, 0, 0)
    assert counts(base.index()) == (0, 0, 0, 2, 0)
    base.write("a.md", "# Alpha\n\netcd quorum", OLD + 5)
    base.write("c.markdown", "nginx down")
    (base.folder / "sub/b.txt").unlink()
    assert counts(base.index()) == (1, 1, 1, 0, 0)
    assert base.sources("etcd quorum") == ["a.md"]
    assert base.sources("nginx") == ["c.markdown"]
    assert base.sources("kafka lag") == base.sources("redis latency") == []


def test_touched_but_equal_content_is_unchanged_by_its_hash(base: Base) -> None:
    base.write("a.md", "kafka lag")
    base.index()
    base.write("a.md", "kafka lag", OLD + 100)
    assert counts(base.index()) == (0, 0, 0, 1, 0)


def test_a_change_within_the_clock_step_and_of_equal_size_is_seen(base: Base) -> None:
    file = base.write("a.md", "kafka", modified=None)
    base.index()
    status = file.stat()
    file.write_text("redis")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert counts(base.index()) == (0, 1, 0, 0, 0)
    assert base.sources("redis") == ["a.md"]


def test_an_index_grown_step_by_step_answers_like_a_fresh_one(base: Base, tmp_path: Path) -> None:
    words = ["kafka lag finance", "redis latency slowlog", "disk full inode", "etcd quorum lost", "pod crash loop"]
    for number, text in enumerate(words):
        base.write(f"{number}.md", f"# Doc {number}\n\n{text} {words[(number + 1) % 5]}")
        base.index()
    base.write("1.md", "# Doc 1\n\nredis replaced", OLD + 9)
    (base.folder / "3.md").unlink()
    base.index()
    fresh = tmp_path / "fresh.db"
    index_folder("kb", base.folder, fresh)
    for query in [*words, "doc", "replaced"]:
        deadline = time.monotonic() + 5
        assert search_index(base.path, "kb", query, deadline) == search_index(fresh, "kb", query, deadline)


def test_document_ids_survive_reindexing_and_name_no_absolute_path(base: Base) -> None:
    base.write("team a/磁盘.md", "# 磁盘\n\n" + "磁盘使用率过高。" * 200 + "\n\n## 清理 日志\n\n" + "删除日志。" * 100)
    base.index()
    before = {hit.document_id for hit in search_index(base.path, "kb", "磁盘 日志", time.monotonic() + 5)}
    shutil.rmtree(base.path.parent)
    base.write("a.md", "first in order")
    base.index()
    after = {hit.document_id for hit in search_index(base.path, "kb", "磁盘 日志", time.monotonic() + 5)}
    assert before == after
    assert all(entry.startswith("kb/team-a/磁盘.md~") and str(base.folder) not in entry for entry in after)


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_ids_are_bounded_safe_and_distinct(first: str, second: str) -> None:
    ids = [document_id("kb", path, "start") for path in (first, second)]
    assert all(len(entry) <= MAX_ID_CHARS and entry.isprintable() and " " not in entry for entry in ids)
    assert (ids[0] == ids[1]) == (first == second)


def test_binary_huge_and_foreign_files_are_skipped_and_reported(base: Base) -> None:
    base.write("good.md", "kafka lag")
    base.write("image.md", b"\x89PNG\0\0\0")
    base.write("noise.txt", b"caf\xe9 \xff\xff")
    base.write("huge.md", b"x" * (MAX_FILE_BYTES + 1))
    base.write("picture.png", b"\x89PNG")
    base.write(".git/config.md", "hidden")
    (base.folder.parent / "outside.md").write_text("secret plans")
    (base.folder / "link.md").symlink_to(base.folder.parent / "outside.md")
    (base.folder / "loop.md").symlink_to(base.folder / "loop.md")
    (base.folder / "dir").symlink_to(base.folder.parent)
    (base.folder / "folder.md").mkdir()
    os.mkfifo(base.folder / "pipe.md")
    report = base.index()
    assert counts(report) == (1, 0, 0, 0, 6)
    assert {file.path: file.reason for file in report.skipped_files} == {
        "huge.md": "larger than 2 MiB",
        "image.md": "binary content",
        "link.md": "link to a file outside the folder",
        "loop.md": "file cannot be read",
        "noise.txt": "not text in UTF-8, UTF-16 or GB18030",
        "pipe.md": "not a regular file",
    }
    assert base.sources("secret plans") == []


def test_a_file_that_turns_unreadable_is_no_longer_found(base: Base) -> None:
    base.write("a.md", "kafka lag")
    base.index()
    base.write("a.md", b"\0\0", OLD + 1)
    assert counts(base.index()) == (0, 0, 1, 0, 1)
    assert base.sources("kafka") == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_chinese_text_is_read_in_its_usual_encodings(base: Base, encoding: str) -> None:
    base.write("a.md", "# 磁盘告警\n\n磁盘写不进去了".encode(encoding))
    base.index()
    assert base.sources("磁盘 告警") == ["a.md"]


def test_secrets_do_not_enter_the_index(base: Base) -> None:
    base.write("a.md", "# Access\n\npassword: hunter2secret\n\n" + "filler text. " * 200)
    base.index()
    assert b"hunter2secret" not in base.path.read_bytes()


def test_an_unreadable_folder_is_a_bounded_error_without_its_place(base: Base) -> None:
    base.write("a.md", "kafka lag")
    base.index()
    shutil.rmtree(base.folder)
    with pytest.raises(KnowledgeError) as error:
        base.index()
    assert str(error.value) == "knowledge kb: path: folder not found; must be a folder of Markdown or text files"
    assert base.sources("kafka") == ["a.md"], "the old index stands"


def test_a_failed_indexing_leaves_the_old_index_searchable(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    base.write("a.md", "kafka lag")
    base.index()
    base.write("a.md", "redis latency", OLD + 1)
    base.write("b.md", "disk full")
    calls = iter(range(9))

    def fail_at_second(path: str, text: str) -> object:
        if next(calls) == 1:
            raise sqlite3.OperationalError("disk I/O error")
        return index.split_document(text, path)

    with monkeypatch.context() as patch:
        patch.setattr(index, "_chunks", fail_at_second)
        with pytest.raises(KnowledgeError, match="cannot be written"):
            base.index()
    assert base.sources("kafka") == ["a.md"]
    assert base.sources("redis") == base.sources("disk") == []
    assert counts(base.index()) == (1, 1, 0, 0, 0)


def test_one_bad_folder_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "a.md").write_text("kafka lag")
    report = index_catalog(catalog(tmp_path, "good", "missing"), tmp_path / "index")
    assert report.added == 1
    assert report.problems == ("knowledge missing: path: folder not found; must be a folder of Markdown or text files",)


def test_progress_counts_all_files_of_all_folders(tmp_path: Path) -> None:
    for name, files in (("one", 3), ("two", 2)):
        (tmp_path / name).mkdir()
        for number in range(files):
            (tmp_path / name / f"{number}.md").write_text("text")
    seen: list[tuple[int, int]] = []
    index_catalog(catalog(tmp_path, "one", "two"), tmp_path / "index", lambda done, total: seen.append((done, total)))
    assert seen == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


def test_a_damaged_index_is_built_anew(base: Base) -> None:
    base.write("a.md", "kafka lag")
    base.path.parent.mkdir()
    base.path.write_bytes(b"this is no database, it only looks like a file of one " * 100)
    with pytest.raises(sqlite3.DatabaseError):
        base.sources("kafka")
    assert counts(base.index()) == (1, 0, 0, 0, 0)
    assert base.sources("kafka") == ["a.md"]


def test_an_index_of_other_rules_is_not_searched_but_rebuilt(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    base.write("a.md", "kafka lag")
    base.index()
    monkeypatch.setattr(schema, "INDEX_RULES", "2 other")
    with pytest.raises(IndexMissingError):
        base.sources("kafka")
    assert counts(base.index()) == (1, 0, 0, 0, 0)
    assert base.sources("kafka") == ["a.md"]


def test_an_index_folder_that_cannot_be_made_is_a_bounded_error(base: Base) -> None:
    base.write("a.md", "kafka lag")
    base.path.parent.write_text("a file where the folder should be")
    with pytest.raises(KnowledgeError, match="check the index folder's permissions") as error:
        base.index()
    assert str(base.folder.parent) not in str(error.value)


def test_missing_fts5_is_said_plainly() -> None:
    assert "FTS5" in schema._reason(sqlite3.OperationalError("no such module: fts5"))


HOSTILE = st.text(max_size=500) | st.lists(
    st.sampled_from(
        ['"', "'", "*", "(", ")", "AND", "OR", "NOT", "NEAR(", "^", ":", "-", "title:", "\0", "😀", "{", "kafka"]
    ),
    max_size=60,
).map(" ".join)  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Base:
    base = Base(tmp_path_factory.mktemp("small"))
    base.write("a.md", "# Kafka\n\nkafka lag 消费者 堆积")
    base.index()
    return base


@settings(max_examples=200)
@given(query=HOSTILE)
def test_no_query_raises(small: Base, query: str) -> None:
    for hit in search_index(small.path, "kb", query, time.monotonic() + 5):
        assert 0 <= hit.score <= 1


@pytest.mark.parametrize(
    "query", ["磁盘使用率过高" * 71, '"kafka" AND (NOT "', "\0" * 500, "a b " * 125, "👩‍👩‍👧" * 60]
)
def test_long_and_odd_queries_do_not_raise(small: Base, query: str) -> None:
    search_index(small.path, "kb", query[:500], time.monotonic() + 5)


def test_operators_are_words(small: Base) -> None:
    assert small.sources('kafka" NOT "lag') == ["a.md"]


def test_a_deadline_interrupts_a_search(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        base.write(f"{number}.md", "kafka lag " * 100)
    base.index()
    with pytest.raises(TimeoutError):
        search_index(base.path, "kb", "kafka lag", time.monotonic() - 1)
    opened = schema.open_reader

    def open_late(path: Path) -> sqlite3.Connection | None:
        time.sleep(0.3)
        return opened(path)

    monkeypatch.setattr(schema, "open_reader", open_late)
    monkeypatch.setattr(search, "_PROGRESS_STEPS", 1)
    with pytest.raises(TimeoutError):
        search_index(base.path, "kb", "kafka lag", time.monotonic() + 0.2)


def test_searches_go_on_and_see_whole_states_while_files_are_indexed(base: Base) -> None:
    """Every state of the folder holds one generation in all files; a search must never see two."""
    files = 20
    stop = threading.Event()
    failures: list[object] = []
    searched = [0]

    def write(generation: int) -> None:
        for number in range(files):
            base.write(f"{number}.md", f"# Doc\n\ngeneration gen{generation}x", OLD + generation)

    def look() -> None:
        try:
            while not stop.is_set():
                hits = search_index(base.path, "kb", "generation", time.monotonic() + 5)
                if len(hits) != MAX_FILES or len({hit.content for hit in hits}) != 1:
                    failures.append([hit.content for hit in hits])
                searched[0] += 1
        except Exception as error:
            failures.append(error)

    write(0)
    base.index()
    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for generation in range(1, 12):
        write(generation)
        assert counts(base.index()) == (0, files, 0, 0, 0)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert searched[0] > 10


_INDEX_IN_A_PROCESS = """
import sys
from pathlib import Path
from tools.rag.index import index_folder
print(index_folder("kb", Path(sys.argv[1]), Path(sys.argv[2])).added)
"""


def test_two_processes_index_at_once(base: Base) -> None:
    for number in range(60):
        base.write(f"{number}.md", f"# Doc {number}\n\nkafka lag {number}")
    command = [sys.executable, "-c", _INDEX_IN_A_PROCESS, str(base.folder), str(base.path)]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    added = [int(process.communicate(timeout=60)[0]) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sorted(added) == [0, 0, 60], "one does the work, the others find it done"
    assert counts(base.index()) == (0, 0, 0, 60, 0)
    assert len(base.sources("kafka")) == MAX_FILES


def test_indexing_is_quick(base: Base) -> None:
    for number in range(400):
        base.write(f"{number}.md", f"# Doc {number}\n\n" + "the service answers slowly, 数据库连接池耗尽. " * 40)
    started = time.perf_counter()
    base.index()
    assert time.perf_counter() - started < 10
    started = time.perf_counter()
    base.index()
    assert time.perf_counter() - started < 1
