"""Where a line states its level, its service and its host; the same words elsewhere are what it talks about."""

from __future__ import annotations

import json
import time

import pytest

from tools.logs.events import EventView
from tools.logs.levels import level_of_text

STATED = {
    "ERROR boom": "ERROR",
    "INFO:app:fetched": "INFO",
    "[ERROR] payment-service - failed": "ERROR",
    "[main] INFO  com.shop.Pay - done": "INFO",
    "INFO 1 --- [nio-8080-exec-1] c.s.Pay : done": "INFO",
    "app.module - WARNING - slow": "WARN",
    "root - INFO - ERROR mentioned later": "INFO",
    "[error] 1234#0: *1 open() failed": "ERROR",
    "25746 INFO nova.osapi_compute": "INFO",
    "R02-M1-N0-C:J12-U11 2005-06-03-15.42.50.675872 R02-M1-N0 RAS KERNEL INFO cache": "INFO",
    "0 [Warning] [MY-010068] [Server] self signed": "WARN",
    "UTC [1234] ERROR:  relation missing": "ERROR",
    "[42] user@db FATAL:  password": "FATAL",
    "| ERROR    | module:func:12 - msg": "ERROR",
    "[12:00:00 ERR] failed": "ERROR",
    "[2024: ERROR/MainProcess] task": "ERROR",
    "{file.py:12} ERROR - task": "ERROR",
    "[WARN ][o.e.m.j.JvmGcMonitorService] [node] gc": "WARN",
    "combo logrotate: ALERT exited abnormally": "FATAL",
    "web_1  | ERROR down": "ERROR",
    "Warning  BackOff  10s  kubelet": "WARN",
    "caller=x.go:1 level=warn msg=slow": "WARN",
    'ts=1 level="error" msg=x': "ERROR",
    '{"level":"error","cut off': "ERROR",
    "Error: no such host": "ERROR",
}
NOT_STATED = [
    '"filter":"ERROR"',
    '{"params": {"filter":"ERROR"}, "cut',
    "params filter=ERROR given",
    "Connection was closed with ERROR 5",
    "GET /api/ERROR 200",
    "the log level: DEBUG is set",
    "it was found [error] in text",
    "ERROR-handler started",
    "INFO.log opened",
    "",
]


@pytest.mark.parametrize("line", STATED)
def test_a_level_at_the_head_is_stated(line: str) -> None:
    assert level_of_text(line) == STATED[line]


@pytest.mark.parametrize("line", NOT_STATED)
def test_a_level_elsewhere_is_not_the_lines_level(line: str) -> None:
    assert level_of_text(line) is None


@pytest.mark.parametrize("text", ["a.b ", "[x] ", "- ", "1 ", "A", "AB ", "[", "(", "a:", "[a ", "AB 1 - [x] ", " "])
def test_no_line_takes_long(text: str) -> None:
    started = time.perf_counter()
    level_of_text(text * 4000)
    assert time.perf_counter() - started < 0.05


def view(line: str, stamp: str = "") -> EventView:
    return EventView((stamp + line).encode(), len(stamp))


@pytest.mark.parametrize(
    ("row", "level"),
    [
        ({"level": "warn", "msg": "ERROR"}, "WARN"),
        ({"msg": "ERROR in app"}, "ERROR"),
        ({"log": "[main] WARN slow"}, "WARN"),
        ({"msg": "saw an ERROR"}, None),
        ({"tool": "x", "params": {"filter": "ERROR", "level": "error"}}, None),
    ],
)
def test_a_json_line_states_its_level_by_key_or_at_the_head_of_its_message(row: dict[str, object], level: str) -> None:
    assert view(json.dumps(row)).level == level


STAMP = "2026-03-01 03:00:00 "


@pytest.mark.parametrize(
    ("line", "stamp", "service"),
    [
        ("INFO service=pay refused", STAMP, "pay"),
        ("INFO request failed app=pay code=5", STAMP, "pay"),
        ("level=info service=pay msg=x", "", "pay"),
        ("service=pay refused", "", "pay"),
        ("INFO Selector: app=pay", STAMP, None),
        ("Labels:           app=pay", "", None),
        ("Selector:  app=pay,tier=web", "", None),
        ("                  app=pay", "", None),
        ("connect(service=pay)", STAMP, None),
    ],
)
def test_service_is_a_pair_of_the_line_itself(line: str, stamp: str, service: str | None) -> None:
    assert view(line, stamp).service == service
