"""Log files as machines leave them: colours, marks, holes, other encodings and compressions, links that lead back."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log_files import NOW, ask, messages, write
from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.logs.encoding import guess
from tools.logs.files import topic_files
from tools.logs.unpack import unpack

STAMP = "2026-03-01 03:00:00"


def refused(folder: Path, query: str, path: str = "app.log", **topic: str) -> ToolErrorCode:
    with pytest.raises(ToolFailure) as failure:
        ask(folder, query, path=path, **topic)
    return failure.value.code


@pytest.mark.parametrize(
    "line",
    [
        f"\x1b[90m{STAMP}\x1b[0;39m \x1b[31mERROR\x1b[0;39m \x1b[35m4711\x1b[0;39m --- [main] \x1b[36mc.s.Pay\x1b[0;39m : boom",
        f"\x1b[31m{STAMP} ERROR boom\x1b[0m",
        f"[\x1b[32m{STAMP}\x1b[39m] ERROR boom",
        f"\x1b[2m{STAMP.replace(' ', 'T')}.123456Z\x1b[0m \x1b[31mERROR\x1b[0m \x1b[2mshop::pay\x1b[0m: boom",
    ],
)
def test_colours_before_and_around_the_time(tmp_path: Path, line: str) -> None:
    write(tmp_path, f"{line}\n  at frame\n{line.replace('boom', 'bang')}\n")
    response = ask(tmp_path, "boom")
    assert response.total == 1
    assert response.events[0].timestamp is not None
    assert response.events[0].timestamp.startswith("2026-03-01T03:00:00")
    assert response.events[0].level == "ERROR"
    assert messages(response)[0].endswith("boom\nat frame") or messages(response)[0].endswith("boom\n  at frame")
    assert "2026" not in messages(response)[0]


def test_a_word_split_by_colours_is_found(tmp_path: Path) -> None:
    write(tmp_path, f"{STAMP} plain\n{STAMP} pay\x1b[31mment\x1b[0m refused\n")
    assert messages(ask(tmp_path, "payment")) == ["payment refused"]


def test_colours_in_a_large_sorted_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.logs.scan.BISECT_FROM_BYTES", 1024)
    lines = [
        f"\x1b[90m2026-03-01 02:{at // 60:02}:{at % 60:02}\x1b[0m INFO pay\x1b[1mment\x1b[0m {at}" for at in range(3600)
    ]
    write(tmp_path, "\n".join(lines))
    response = ask(tmp_path, "payment", minutes=10, limit=1)
    assert (response.total, messages(response)) == (300, ["INFO payment 3599"])


def test_byte_order_mark_hides_no_time(tmp_path: Path) -> None:
    write(tmp_path, f"{STAMP} first\n2026-03-01 03:01:00 second\n".encode("utf-8-sig"))
    assert ask(tmp_path, "first").events[0].timestamp == "2026-03-01T03:00:00.000+00:00"
    write(tmp_path, f"{STAMP} one\n".encode() + f"{STAMP} two\n".encode("utf-8-sig") * 2)
    assert ask(tmp_path).total == 3


def test_gbk_that_nobody_declared_is_read(tmp_path: Path) -> None:
    lines = "".join(f"2026-03-01 03:00:{second:02} ERROR 订单服务 连接超时\n" for second in range(60))
    write(tmp_path, lines.encode("gbk"))
    response = ask(tmp_path, "连接超时")
    assert (response.total, response.total_is_lower_bound) == (60, False)
    assert response.notes == ['1 file(s) read as GB18030: encoding = "utf-8" is not theirs']
    write(tmp_path, f"{STAMP} ERROR bad byte \xff\n".encode("latin-1") + lines.encode())
    assert (ask(tmp_path, "连接超时").total, ask(tmp_path, "连接超时").notes) == (60, [])


def test_an_encoding_that_is_not_recognised_is_no_absence(tmp_path: Path) -> None:
    write(tmp_path, f"{STAMP} ERROR Verbindung zurückgewiesen, Gerät außer Betrieb\n".encode("latin-1") * 20)
    assert refused(tmp_path, "zurückgewiesen") is ToolErrorCode.PARTIAL_RESULT
    assert ask(tmp_path, "zurückgewiesen", encoding="latin-1").total == 20
    response = ask(tmp_path, "verbindung")
    assert (response.total, response.total_is_lower_bound) == (20, False)
    assert response.notes == ['1 file(s) not in encoding = "utf-8": words beyond ASCII are not found']


@given(
    st.text(alphabet=st.characters(min_codepoint=0x4E00, max_codepoint=0x9FA5), min_size=4, max_size=40), st.booleans()
)
def test_chinese_text_in_utf8_is_never_guessed_to_be_gbk(text: str, broken: bool) -> None:
    line = text.encode() + b"\n"
    assert guess([line * 3 + (b"\xff\xfe\n" if broken else b"")]) is None


@pytest.mark.parametrize("zeros", [8, 600, 5_000_000])
def test_a_hole_inside_a_log_is_left_out(tmp_path: Path, zeros: int) -> None:
    write(tmp_path, f"{STAMP} before\n".encode() + b"\0" * zeros + b"2026-03-01 03:01:00 ERROR after\n")
    response = ask(tmp_path)
    assert messages(response) == ["ERROR after", "before"]
    assert response.notes == []


@pytest.mark.parametrize("name", ["program", "pages", "image"])
def test_binary_files_with_zeros_are_no_logs(tmp_path: Path, name: str) -> None:
    content = {
        "program": b"\x7fELF\2\1\1" + b"\0" * 9 + b"\3\0>\0\1\0\0\0" * 400 + b"\0" * 4000,
        "pages": b"SQLite format 3\0\x10\0\1\1\0@  \0\0\0\1" * 40 + b"\0" * 16384,
        "image": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0" * 100,
    }
    write(tmp_path, content[name])
    assert refused(tmp_path, "") is ToolErrorCode.BACKEND_UNAVAILABLE


PACK = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("kind", sorted(PACK))
def test_compressed_logs_are_read_whatever_they_are_called(tmp_path: Path, kind: str) -> None:
    write(tmp_path, PACK[kind](f"{STAMP} needle\n".encode()) + PACK[kind](b"2026-03-01 03:01:00 other\n"), "logs/app.1")
    assert ask(tmp_path, path="logs").total == 2
    assert ask(tmp_path, "needle", path="logs").total == 1
    lines = b"".join(b"2026-03-01 03:01:00 line %d\n" % n for n in range(200_000))
    content = PACK[kind](lines)
    write(tmp_path, content[: len(content) // 2], "logs/app.1")
    response = ask(tmp_path, "line", path="logs") if kind != "bz2" else None
    assert response is None or (response.total > 0 and response.total_is_lower_bound)


@given(
    st.sampled_from(sorted(PACK)),
    st.lists(st.binary(max_size=3000), min_size=1, max_size=4),
    st.integers(1, 50),
    st.integers(1, 9000),
)
def test_unpacking_gives_back_what_was_packed(kind: str, members: list[bytes], size: int, limit: int) -> None:
    packed, whole = b"".join(PACK[kind](member) for member in members), b"".join(members)
    chunks = [packed[at : at + size] for at in range(0, len(packed), size)]
    out, cut = unpack(chunks, limit)
    assert out[:limit] == whole[:limit]
    assert cut is (len(whole) > limit)
    assert unpack([*chunks, b"\0" * 512], 10**6) == (whole, False)


@given(st.binary(max_size=300), st.sampled_from(sorted(PACK)))
def test_any_bytes_unpack_without_error(data: bytes, kind: str) -> None:
    unpack([PACK[kind](b"x")[:12] + data], 1000)


ZSTD = b"\x28\xb5\x2f\xfd\x04\x58\x31\x00\x00needle" + bytes(range(256))


def test_archives_that_are_not_read_are_told(tmp_path: Path) -> None:
    packed = write(tmp_path, ZSTD, "logs/app.log.1.zst")
    assert refused(tmp_path, "needle", path="logs") is ToolErrorCode.BACKEND_UNAVAILABLE
    write(tmp_path, f"{STAMP} error\n", "logs/app.log")
    assert refused(tmp_path, "needle", path="logs") is ToolErrorCode.PARTIAL_RESULT
    response = ask(tmp_path, "error", path="logs")
    assert (response.total, response.total_is_lower_bound, response.truncated) == (1, True, True)
    assert response.notes == ["1 archive(s) not read: only gzip, bzip2 and xz are"]
    os.utime(packed, (NOW - 7200, NOW - 7200))  # last written before the window: no event of it
    response = ask(tmp_path, "needle", path="logs")
    assert (response.total, response.total_is_lower_bound) == (0, False)
    assert response.notes == ["1 archive(s) not read: only gzip, bzip2 and xz are"]


def test_a_file_is_one_file_whatever_links_lead_to_it(tmp_path: Path) -> None:
    write(tmp_path, f"{STAMP} once\n", "logs/deep/app.log")
    for name in ("loop", "deep/again", "deep/more"):
        (tmp_path / "logs" / name).symlink_to(tmp_path / "logs")
    (tmp_path / "logs/current.log").symlink_to(tmp_path / "logs/deep/app.log")
    os.link(tmp_path / "logs/deep/app.log", tmp_path / "logs/deep/hard.log")
    started = time.monotonic()
    for path in ("logs/**/*.log", "**/*.log", "logs", "logs/**", "logs/*/*.log", "**/deep/**/*.log"):
        assert ask(tmp_path, path=path).total == 1, path
    assert time.monotonic() - started < 5
    files, more = topic_files(tmp_path, "logs/**/*.log")
    assert ([file.label for file in files], more) == (["app.log"], False)


def test_a_glob_goes_through_linked_folders_and_leaves_hidden_ones_out(tmp_path: Path) -> None:
    write(tmp_path, "x", "elsewhere/a.log")
    write(tmp_path, "x", "logs/.git/b.log")
    write(tmp_path, "x", "logs/c.log")
    (tmp_path / "logs/linked").symlink_to(tmp_path / "elsewhere")
    names = {file.path.name for file in topic_files(tmp_path, "logs/**/*.log")[0]}
    assert names == {"a.log", "c.log"}


def test_times_ahead_of_the_clock_are_no_absence(tmp_path: Path) -> None:
    """Local times of a +08:00 machine read as UTC lie hours ahead: the last minutes hold nothing."""
    ahead = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + 8 * 3600))
    write(tmp_path, f"{ahead} ERROR boom\n" * 10)
    assert refused(tmp_path, "boom") is ToolErrorCode.PARTIAL_RESULT
    response = ask(tmp_path, "boom", now=None)
    assert response.total == 10
    assert response.notes == ['1 file(s) with times in the future: is timezone = "UTC" theirs?']
    write(tmp_path, f"{ahead} ERROR boom\n" + f"{STAMP} INFO fine\n" * 20)  # one stray time
    assert ask(tmp_path, "absent").total == 0


def test_a_window_before_the_files_end_is_no_future(tmp_path: Path) -> None:
    write(tmp_path, f"{STAMP} a\n2026-03-01 09:00:00 b\n2026-03-01 09:01:00 b\n")
    assert (ask(tmp_path, "b").total, ask(tmp_path, "a").notes) == (0, [])


def test_progress_bars_glue_no_lines(tmp_path: Path) -> None:
    write(tmp_path, f"{STAMP} start\n10%\r50%\r100%\r2026-03-01 03:01:00 ERROR boom\r\n2026-03-01 03:02:00 end\n")
    assert messages(ask(tmp_path)) == ["end", "ERROR boom", "start\n10%\n50%\n100%"]


def test_lines_that_end_with_a_carriage_return_only(tmp_path: Path) -> None:
    write(tmp_path, f"{STAMP} one\r{STAMP} two\r")
    assert ask(tmp_path).total == 2
