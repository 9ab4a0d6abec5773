"""What is in a log file besides text: rotation, compression, encodings, colours, holes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.log_files import ask, messages, write
from tools.contract import ToolErrorCode
from tools.evidence_tool import ToolFailure
from tools.logs.files import TopicFile
from tools.logs.source import Source


def test_colours_and_carriage_returns_are_stripped(tmp_path: Path) -> None:
    write(tmp_path, b"2026-03-01 03:00:00 \x1b[31mERROR\x1b[0m bad\r\nmore\r\n2026-03-01 03:01:00 ok\r\n")
    event = ask(tmp_path, "bad").events[0]
    assert (event.message, event.level) == ("ERROR bad\nmore", "ERROR")


def test_folder_glob_and_gzip(tmp_path: Path) -> None:
    write(tmp_path, "2026-03-01 03:02:00 b\n", "logs/deep/b.log")
    write(
        tmp_path, gzip.compress(b"2026-03-01 03:01:00 a\n") + gzip.compress(b"2026-03-01 03:03:00 c\n"), "logs/a.log.gz"
    )
    write(tmp_path, "2026-03-01 03:04:00 hidden\n", "logs/.hidden")
    response = ask(tmp_path, path="logs")
    assert messages(response) == ["c", "b", "a"]
    assert response.events[1].attributes == {"file": "deep/b.log"}
    assert messages(ask(tmp_path, path="logs/**/*.log")) == ["b"]


def test_damaged_gzip_is_a_partial_answer(tmp_path: Path) -> None:
    content = gzip.compress(b"".join(b"2026-03-01 03:01:00 line %d\n" % n for n in range(5000)))
    write(tmp_path, content[: len(content) // 2] + b"garbage", "app.log")
    response = ask(tmp_path, "line")
    assert response.total > 0
    assert response.total_is_lower_bound


@pytest.mark.parametrize(("encoding", "declared"), [("gbk", "gbk"), ("utf-16", "utf-8"), ("utf-8-sig", "utf-8")])
def test_encodings(tmp_path: Path, encoding: str, declared: str) -> None:
    write(tmp_path, "2026-03-01 03:00:00 订单 连接超时\n".encode(encoding))
    assert ask(tmp_path, "连接超时", encoding=declared).total == 1


def test_broken_utf8_is_read(tmp_path: Path) -> None:
    write(tmp_path, b"2026-03-01 03:00:00 ERROR \xff\xfe broken\n")
    assert ask(tmp_path, "broken").total == 1


def test_binary_file_is_skipped_and_told(tmp_path: Path) -> None:
    write(tmp_path, b"\x7fELF\0\0\0error\0" * 10, "logs/core")
    with pytest.raises(ToolFailure) as failure:
        ask(tmp_path, path="logs")
    assert failure.value.code is ToolErrorCode.BACKEND_UNAVAILABLE
    write(tmp_path, "2026-03-01 03:00:00 error\n", "logs/a.log")
    response = ask(tmp_path, "error", path="logs")
    assert (response.total, response.notes) == (1, ["1 binary file(s) skipped"])


def test_rotated_files_are_one_log(tmp_path: Path) -> None:
    """Newest first across files, whatever their names sort like; an archive written last is still the oldest text."""
    write(tmp_path, "2026-03-01 03:00:00 INFO e\n2026-03-01 03:01:00 ERROR f\n", "logs/app.log")
    write(tmp_path, "2026-03-01 02:58:00 INFO c\n2026-03-01 02:59:00 WARN d\n", "logs/app.log.1")
    packed = gzip.compress(b"2026-03-01 02:56:00 INFO a\n2026-03-01 02:57:00 INFO b\n")
    write(tmp_path, packed, "logs/app.log.10.gz")
    response = ask(tmp_path, path="logs/app.log*")
    assert messages(response) == ["ERROR f", "INFO e", "WARN d", "INFO c", "INFO b", "INFO a"]
    assert response.levels == {"ERROR": 1, "WARN": 1, "INFO": 4}
    assert response.events[-1].attributes == {"file": "app.log.10.gz"}


def test_file_rotated_between_two_reads_is_no_hole(tmp_path: Path) -> None:
    """What was opened is read to its end although its name belongs to a new file by then."""
    path = write(tmp_path, "2026-03-01 03:00:00 before\n")
    source = Source(TopicFile(path, "app.log"), "utf-8")
    path.rename(tmp_path / "app.log.1")
    write(tmp_path, "2026-03-01 03:01:00 after\n")
    with source:
        assert b"before" in source.read(0, source.size)
    assert messages(ask(tmp_path, path="app.log*")) == ["after", "before"]


@pytest.mark.parametrize("zeros", [1, 700, 300_000])
def test_zero_bytes_before_a_log_are_a_hole_not_a_binary_file(tmp_path: Path, zeros: int) -> None:
    write(tmp_path, b"\0" * zeros + b"2026-03-01 03:00:00 ERROR first\n2026-03-01 03:01:00 INFO second\n")
    response = ask(tmp_path)
    assert messages(response) == ["INFO second", "ERROR first"]
    assert response.events[1].timestamp == "2026-03-01T03:00:00.000+00:00"


def test_a_file_of_zero_bytes_is_empty(tmp_path: Path) -> None:
    write(tmp_path, b"\0" * 200_000)
    assert ask(tmp_path).total == 0


def test_json_lines_of_gbk_with_carriage_returns_and_nested_keys(tmp_path: Path) -> None:
    line = {"ts": "2026-03-01T03:00:00Z", "lvl": "error", "msg": "库存 超时", "http": {"request": {"method": "PUT"}}}
    write(tmp_path, (json.dumps(line, ensure_ascii=False) + "\r\n").encode("gbk") * 2)
    response = ask(tmp_path, "超时 method:put", encoding="gbk")
    assert (response.total, response.levels) == (2, {"ERROR": 2})
    assert response.events[0].message == "库存 超时"
    assert response.events[0].attributes["http.request.method"] == "PUT"
