"""Uploads: what may come in, under which name, and that file and index change together or not at all (R134)."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.uploads import (
    MAX_NAME_BYTES,
    MAX_UPLOADS,
    UPLOAD_THREADS,
    StoredUpload,
    TooManyUploads,
    UploadQueue,
    UploadRefused,
    UploadTooLarge,
    checked_content,
    safe_name,
    store_upload,
    target_of,
)
from tools.catalog import Catalog, build_catalog
from tools.rag import replace, schema
from tools.rag.folder import TEXT_SUFFIXES, KnowledgeError, list_folder
from tools.rag.index import index_folder
from tools.rag.search import search_index

BOUND = 64 * 1024


class Base:
    """A catalogue with one knowledge folder, and its index."""

    def __init__(self, tmp: Path) -> None:
        self.folder = tmp / "kb"
        self.folder.mkdir()
        self.catalog = build_catalog({"knowledge": [{"name": "kb", "path": "kb"}]}, tmp)
        self.index_dir = tmp / "index"
        self.index = schema.index_file(self.index_dir, "kb", self.folder)

    def upload(self, name: str, text: str | bytes) -> StoredUpload:
        data = text.encode() if isinstance(text, str) else text
        return store_upload(self.catalog, self.index_dir, name=name, data=data, max_bytes=BOUND)

    def sources(self, query: str) -> list[str]:
        return [hit.source for hit in search_index(self.index, "kb", query, time.monotonic() + 5)]

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def base(tmp_path: Path) -> Base:
    return Base(tmp_path)


PIECES = (
    *("..", ".", "/", "\\", "~", "-rf", ":", "C:", "%2e%2e", "／", "\0", "\n", " ", "\u202e", "\ud800", "e\u0301"),
    *("a", "故障", "x" * 300, "CON", "nul", "lpt1", ".md", ".txt", ".markdown", ".MD"),
)
HOSTILE = st.one_of(st.text(max_size=400), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))


def accepted(name: str) -> str | None:
    """The safe name; None when the name was refused in words that name the field."""
    try:
        return safe_name(name)
    except UploadRefused as refused:
        told = str(refused)
    assert told.startswith("file: ")
    return None


@given(HOSTILE, st.sampled_from(["", ".md", ".txt", ".MD"]))
@example("../../etc/passwd", ".md")
@example("..\\..\\boot", ".txt")
@example("aux", ".md")
@example(".upload-x", ".md")
def test_r134_no_name_leaves_its_folder(tmp_path_factory: pytest.TempPathFactory, name: str, suffix: str) -> None:
    folder = tmp_path_factory.getbasetemp()
    safe = accepted(name + suffix)
    if safe is None:
        return
    assert (folder / safe).parent == folder
    assert (folder / safe).resolve().parent == folder.resolve()
    assert os.path.basename(safe) == safe
    assert safe.isprintable()
    assert not safe.startswith((".", " "))
    assert Path(safe).suffix in TEXT_SUFFIXES
    assert len(safe.encode()) <= MAX_NAME_BYTES
    assert safe.split(".")[0].strip().upper() not in {"CON", "PRN", "AUX", "NUL", "COM1", "LPT1", "LPT9"}
    assert safe_name(safe) == safe


def test_r134_names_people_use_stay_as_they_are() -> None:
    for name in ("disk-full.md", "磁盘告警 处理.md", "v2.1 notes.txt", "Überlauf.markdown"):
        assert safe_name(name) == name
    assert safe_name("C:\\docs\\Disk.MD") == "Disk.md"


@given(HOSTILE)
def test_r134_what_is_accepted_is_what_the_index_lists(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.mktemp("kb")
    safe = accepted(name + ".md")
    if safe is None:
        return
    (folder / safe).write_text("text")
    assert [file.path for file in list_folder("kb", folder).files] == [safe]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "must not be empty"),
        (b" \n\t ", "must not be empty"),
        (b"\xef\xbb\xbf", "must not be empty"),
        (b"\x89PNG\r\n\x1a\n", "UTF-8"),
        (b"a\0b", "control characters"),
        (b"a\x1b[31m", "control characters"),
        (b"a\x0cb", "control characters"),
        ("磁盘".encode("gb18030"), "UTF-8"),
        ("text".encode("utf-16"), "UTF-8"),
    ],
)
def test_r134_content_must_be_text(data: bytes, reason: str) -> None:
    with pytest.raises(UploadRefused, match=reason):
        checked_content(data, BOUND)


def test_r134_the_bound_is_told() -> None:
    assert checked_content(b"x" * BOUND, BOUND)
    with pytest.raises(UploadTooLarge, match=f"at most {BOUND} bytes"):
        checked_content(b"x" * (BOUND + 1), BOUND)


def catalog_of(tmp_path: Path, *entries: dict[str, object]) -> Catalog:
    return build_catalog({"knowledge": list(entries)}, tmp_path)


STORE = {"name": "vectors", "store": "shop.store:open", "score": "cosine", "high": 0.8, "reference": 0.6}


def test_r134_the_folder_is_named_or_the_first(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path, STORE, {"name": "one", "path": "1"}, {"name": "two", "path": "2"})
    assert target_of(catalog, None).name == "one"
    assert target_of(catalog, "Two").name == "two"
    with pytest.raises(UploadRefused, match="vectors is a vector store and takes no uploads; must be one of one, two"):
        target_of(catalog, "vectors")
    with pytest.raises(UploadRefused, match="must be one of one, two"):
        target_of(catalog, "three")
    with pytest.raises(UploadRefused, match="names no folder"):
        target_of(catalog_of(tmp_path, STORE), None)


def test_r134_an_upload_is_searchable_at_once_and_replaces(base: Base) -> None:
    (base.folder / "other.md").write_text("# Redis eviction\n\nmaxmemory reached")
    first = base.upload("disk.md", "# Disk\n\ninodes exhausted on the volume\n\n## Later\n\nmore")
    assert (first.document_id, first.replaced) == ("kb/disk.md", False)
    assert first.chunks >= 1
    assert base.sources("inodes exhausted") == ["disk.md"]
    assert base.sources("redis eviction maxmemory") == ["other.md"]
    again = base.upload("some/where/disk.md", "# Disk\n\nsnapshot quota reached")
    assert again.replaced
    assert base.sources("snapshot quota") == ["disk.md"]
    assert base.sources("inodes exhausted") == []
    assert base.files() == ["disk.md", "other.md"]
    report = index_folder("kb", base.folder, base.index)
    assert (report.added, report.updated, report.removed) == (0, 0, 0)


@pytest.mark.parametrize(("folder", "new"), [(0o755, 0o644), (0o770, 0o660), (0o700, 0o600)])
def test_r134_whoever_may_read_the_folder_may_read_its_documents(base: Base, folder: int, new: int) -> None:
    before = os.umask(0o077)  # as the command line has it for its own files
    try:
        base.folder.chmod(folder)
        base.upload("new.md", "inodes exhausted")
        (base.folder / "old.md").write_text("quota")
        (base.folder / "old.md").chmod(0o664)
        base.upload("old.md", "quota reached")
    finally:
        os.umask(before)
    assert stat.S_IMODE((base.folder / "new.md").stat().st_mode) == new
    assert stat.S_IMODE((base.folder / "old.md").stat().st_mode) == 0o664


def test_r134_the_same_upload_twice_is_no_change(base: Base) -> None:
    first = base.upload("disk.md", "inodes exhausted")
    second = base.upload("disk.md", "inodes exhausted")
    assert (second.chunks, second.replaced) == (first.chunks, True)
    assert base.sources("inodes exhausted") == ["disk.md"]


def test_r134_secrets_are_masked_in_the_index(base: Base) -> None:
    base.upload("db.md", "inodes exhausted, then password: hunter2hunter2 helps")
    hits = search_index(base.index, "kb", "inodes exhausted", time.monotonic() + 5)
    assert "hunter2" not in hits[0].content


def full_disk_for_the_index(patch: pytest.MonkeyPatch) -> None:
    opened = schema.open_writer

    def bounded(name: str, path: Path) -> sqlite3.Connection:
        connection = opened(name, path)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    patch.setattr(schema, "open_writer", bounded)


def full_disk_for_the_file(patch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    patch.setattr(os, "fsync", refuse)


def fault_while_indexing(patch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("unexpected")

    patch.setattr(replace, "update_file", fail)


@pytest.mark.parametrize("fault", [full_disk_for_the_index, full_disk_for_the_file, fault_while_indexing])
@pytest.mark.parametrize("there", [True, False])
def test_r134_a_failed_upload_changes_nothing(base: Base, monkeypatch: pytest.MonkeyPatch, fault, there) -> None:
    big = "\n\n".join(f"# Part {n}\n\nsnapshot quota number{n} " + f"word{n} " * 150 for n in range(40))
    base.upload("keep.md", "redis maxmemory")
    if there:
        base.upload("disk.md", "inodes exhausted")
    with monkeypatch.context() as patch:
        fault(patch)
        with pytest.raises((KnowledgeError, RuntimeError)) as failed:
            base.upload("disk.md", big)
        assert str(base.folder) not in str(failed.value)
    assert base.sources("snapshot quota") == []
    assert base.sources("inodes exhausted") == (["disk.md"] if there else [])
    assert base.files() == (["disk.md", "keep.md"] if there else ["keep.md"])
    if there:
        assert (base.folder / "disk.md").read_text() == "inodes exhausted"
    # And whoever indexes next sees no difference.
    report = index_folder("kb", base.folder, base.index)
    assert (report.added, report.updated, report.removed) == (0, 0, 0)
    assert base.upload("disk.md", big).chunks > 1


def test_r134_a_link_is_replaced_never_followed(base: Base, tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("not ours")
    (base.folder / "link.md").symlink_to(outside)
    (base.folder / "dangling.md").symlink_to(tmp_path / "nowhere.md")
    assert base.upload("link.md", "inodes exhausted").replaced
    base.upload("dangling.md", "snapshot quota")
    assert outside.read_text() == "not ours"
    assert not (tmp_path / "nowhere.md").exists()
    assert not (base.folder / "link.md").is_symlink()
    assert base.sources("inodes exhausted") == ["link.md"]


def test_r134_a_failed_upload_leaves_a_link_as_it_was(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside.md").write_text("not ours")
    (base.folder / "link.md").symlink_to(tmp_path / "outside.md")
    fault_while_indexing(monkeypatch)
    with pytest.raises(RuntimeError):
        base.upload("link.md", "inodes exhausted")
    assert (base.folder / "link.md").is_symlink()
    assert (tmp_path / "outside.md").read_text() == "not ours"


def test_r134_a_folder_of_that_name_is_refused(base: Base) -> None:
    (base.folder / "disk.md").mkdir()
    with pytest.raises(KnowledgeError, match=r"file disk\.md: something that is no file"):
        base.upload("disk.md", "inodes exhausted")
    assert base.files() == ["disk.md"]


def test_r134_a_folder_that_is_missing_is_told_without_its_path(base: Base) -> None:
    base.folder.rmdir()
    with pytest.raises(KnowledgeError, match="knowledge kb: ") as failed:
        base.upload("disk.md", "inodes exhausted")
    assert str(base.folder) not in str(failed.value)


def test_r134_what_a_crash_left_is_removed_later(base: Base) -> None:
    old, new = (base.folder / f"{replace.SIDE_PREFIX}{name}.new" for name in ("a", "b"))
    old.write_text("inodes exhausted")
    new.write_text("snapshot quota")
    os.utime(old, (1_700_000_000, 1_700_000_000))
    base.upload("disk.md", "redis maxmemory")
    assert base.files() == [new.name, "disk.md"]
    assert base.sources("inodes snapshot quota") == []


def test_r134_a_new_file_survives_an_indexing_that_listed_before_it(
    base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base.folder / "gone.md").write_text("redis maxmemory")
    index_folder("kb", base.folder, base.index)
    (base.folder / "gone.md").unlink()
    opened = schema.open_writer

    def after_the_listing(name: str, path: Path) -> sqlite3.Connection:
        monkeypatch.setattr(schema, "open_writer", opened)
        base.upload("disk.md", "inodes exhausted")
        return opened(name, path)

    monkeypatch.setattr(schema, "open_writer", after_the_listing)
    report = index_folder("kb", base.folder, base.index)
    assert report.removed == 1
    assert base.sources("inodes exhausted") == ["disk.md"]
    assert base.sources("redis maxmemory") == []


def test_r134_uploads_of_one_name_take_turns_while_searches_go_on(base: Base) -> None:
    base.upload("disk.md", "inodes exhausted version0")
    stop, seen = threading.Event(), []

    def search() -> None:
        while not stop.is_set():
            seen.append(base.sources("inodes exhausted"))

    watcher = threading.Thread(target=search)
    watcher.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda n: base.upload("disk.md", f"inodes exhausted version{n}"), range(1, 13)))
    finally:
        stop.set()
        watcher.join()
    assert all(each.replaced and each.chunks == 1 for each in done)
    assert seen
    assert all(found == ["disk.md"] for found in seen)
    text = (base.folder / "disk.md").read_text()
    hits = search_index(base.index, "kb", "inodes exhausted", time.monotonic() + 5)
    assert [hit.content for hit in hits] == [text]
    assert base.files() == ["disk.md"]


async def test_r134_uploads_that_wait_are_few_and_hold_up_nothing_else() -> None:
    queue, go = UploadQueue(), threading.Event()

    def store() -> StoredUpload:
        go.wait(20)
        return StoredUpload("d", 1, replaced=False)

    asked = [asyncio.create_task(queue.run(store)) for _ in range(MAX_UPLOADS)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyUploads, match=f"at most {MAX_UPLOADS} uploads"):
        await queue.run(store)
    used = {each.name for each in threading.enumerate() if each.name.startswith("upload")}
    assert len(used) <= UPLOAD_THREADS
    assert not go.is_set()
    await asyncio.to_thread(go.set)  # the loop's own threads are free
    assert {each.chunks for each in await asyncio.gather(*asked)} == {1}
    assert (await queue.run(store)).chunks == 1
