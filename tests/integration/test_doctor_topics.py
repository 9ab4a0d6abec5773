"""`superbiz doctor` asks every log server once and names missing variables, no addresses."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

from service.doctor import examine
from service.settings import load_settings
from tests.loki_server import Stream, loki_server
from tests.opensearch import index_of

CATALOG = """
[[topic]]
name = "search"
backend = "elasticsearch"
url = "{search}"
index = "{index}"
[[topic]]
name = "loki"
backend = "loki"
url = "{loki}"
selector = '{{job="shop"}}'
[[topic]]
name = "quiet"
backend = "loki"
url = "{loki}"
selector = '{{job="quiet"}}'
[[topic]]
name = "no-token"
backend = "loki"
url = "{loki}"
selector = '{{job="shop"}}'
token_env = "LOKI_TOKEN"
[[topic]]
name = "away"
backend = "elasticsearch"
url = "http://127.0.0.1:9"
index = "logs"
"""


async def test_a_damaged_file_of_checkpoints_is_named(tmp_path: Path) -> None:
    settings = load_settings(catalog=tmp_path / "superbiz.toml", home=tmp_path)
    (tmp_path / "superbiz.toml").write_text("", encoding="utf-8")
    assert "checkpoints" not in {finding.subject for finding in await examine(settings, {})}
    with contextlib.closing(sqlite3.connect(tmp_path / "checkpoints.db")) as connection:
        connection.execute("CREATE TABLE t (x)")
    told = {finding.subject: finding for finding in await examine(settings, {})}
    assert told["checkpoints"].ok
    (tmp_path / "checkpoints.db").write_bytes(b"no database at all" * 100)
    told = {finding.subject: finding for finding in await examine(settings, {})}
    assert told["checkpoints"].broken
    assert "move it away" in told["checkpoints"].text


async def test_r127_doctor_asks_log_servers(tmp_path: Path, opensearch: str) -> None:
    event = {"@timestamp": "2026-03-01T03:00:00Z", "message": "x"}
    async with loki_server([Stream({"job": "shop"}, [(1, "too old")])]) as loki:
        with index_of(opensearch, [event]) as index:
            catalog = tmp_path / "superbiz.toml"
            catalog.write_text(CATALOG.format(search=opensearch, index=index, loki=loki.url), encoding="utf-8")
            findings = await examine(load_settings(catalog=catalog, home=tmp_path), {})
    told = {finding.subject: (finding.ok, finding.text) for finding in findings}
    assert told["topic search"] == (True, "elasticsearch answers, newest event 2026-03-01T03:00:00.000+00:00")
    assert told["topic loki"] == (True, "loki answers, no event in the last days")
    assert told["topic quiet"] == (True, "loki answers, no event in the last days")
    assert told["topic no-token"] == (False, "LOKI_TOKEN is not set")
    assert told["topic away"] == (False, "elasticsearch cannot be searched (BACKEND_UNAVAILABLE)")
    assert told["secrets"] == (False, "not set: LOKI_TOKEN")
    assert not any("127.0.0.1" in finding.text for finding in findings)


FILES = """
[[topic]]
name = "packed"
path = "packed"
[[topic]]
name = "gbk"
path = "gbk.log"
[[topic]]
name = "ahead"
path = "ahead.log"
"""


async def test_doctor_says_what_it_is_that_files_are_not_read_for(tmp_path: Path) -> None:
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed/a.log").write_text("2026-03-01 03:00:00 x\n", encoding="utf-8")
    (tmp_path / "packed/a.log.1").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(range(256)))
    (tmp_path / "gbk.log").write_text("2026-03-01 03:00:00 连接超时\n", encoding="gbk")
    ahead = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + 8 * 3600))
    (tmp_path / "ahead.log").write_text(f"{ahead} x\n", encoding="utf-8")
    catalog = tmp_path / "superbiz.toml"
    catalog.write_text(FILES, encoding="utf-8")
    told = {finding.subject: finding for finding in await examine(load_settings(catalog=catalog, home=tmp_path), {})}
    start = "newest event 2026-03-01T03:00:00.000+00:00; 1 "
    assert told["topic packed"].text == f"2 files, {start}archive(s) not read: only gzip, bzip2 and xz are"
    assert told["topic gbk"].text == f'1 file, {start}file(s) read as GB18030: encoding = "utf-8" is not theirs'
    assert told["topic ahead"].text.endswith('; 1 file(s) with times in the future: is timezone = "UTC" theirs?')
    for name in ("packed", "gbk", "ahead"):
        assert (told[f"topic {name}"].ok, told[f"topic {name}"].broken) == (False, False)
