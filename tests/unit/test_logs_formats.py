"""Lines of real programs: time, level, service and message of each, from a file as the program writes it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log_files import ask, messages, write
from tools.logs.events import EventView
from tools.logs.levels import NO_LEVEL
from tools.logs.match import prefilter
from tools.logs.parser import parse_query

TIME = "2026-02-28T14:10:00"
WEEK = 10_080


@dataclass(frozen=True)
class Sample:
    line: str
    level: str | None
    message: str
    service: str | None = None
    instance: str | None = None
    time: str | None = TIME


def row(**values: object) -> str:
    return json.dumps(values, ensure_ascii=False)


SAMPLES = {
    "level before the time": Sample("ERROR 2026-02-28 14:10:00,123 [main] boom", "ERROR", "[main] boom"),
    "level before the time, brackets": Sample("[ERROR] [2026-02-28 14:10:00] boom", "ERROR", "boom"),
    "go-kit": Sample(
        "level=error ts=2026-02-28T14:10:00.123Z caller=main.go:1 msg=boom", "ERROR", "caller=main.go:1 msg=boom"
    ),
    "logrus": Sample('time="2026-02-28T14:10:00Z" level=warning msg="slow"', "WARN", 'level=warning msg="slow"'),
    "apache error": Sample(
        "[Sat Feb 28 14:10:00.123456 2026] [core:error] [pid 35:tid 43] [client 10.0.0.1:1] AH00128: gone",
        "ERROR",
        "[core:error] [pid 35:tid 43] [client 10.0.0.1:1] AH00128: gone",
    ),
    "apache trace": Sample(
        "[Sat Feb 28 14:10:00.123456 2026] [ssl:trace3] [pid 35] x", "TRACE", "[ssl:trace3] [pid 35] x"
    ),
    "apache access": Sample(
        '10.0.0.1 - - [28/Feb/2026:14:10:00 +0000] "GET / HTTP/1.1" 500 1 "-" "curl"',
        None,
        '"GET / HTTP/1.1" 500 1 "-" "curl"',
    ),
    "nginx error": Sample(
        "2026/02/28 14:10:00 [error] 12#0: *1 connect() failed", "ERROR", "[error] 12#0: *1 connect() failed"
    ),
    "monolog": Sample(
        '[2026-02-28T14:10:00.123456+00:00] app.ERROR: boom {"id":7} []', "ERROR", 'app.ERROR: boom {"id":7} []'
    ),
    "ruby": Sample("E, [2026-02-28T14:10:00.123456 #1234] ERROR -- : boom", "ERROR", "#1234] ERROR -- : boom"),
    "ruby program": Sample(
        "W, [2026-02-28T14:10:00.123456 #1234]  WARN -- shop: slow", "WARN", "#1234]  WARN -- shop: slow"
    ),
    "zap console": Sample(
        '2026-02-28T14:10:00.123Z\terror\tserver/http.go:42\tboom\t{"id": 7}',
        "ERROR",
        'error\tserver/http.go:42\tboom\t{"id": 7}',
    ),
    "zerolog console": Sample("2026-02-28T14:10:00Z ERR boom error=refused", "ERROR", "ERR boom error=refused"),
    "zap json": Sample(row(level="error", ts=1772287800.5, caller="a.go:1", msg="boom"), "ERROR", "boom"),
    "containerd": Sample("2026-02-28T14:10:00.123456789Z stdout F ERROR boom", "ERROR", "ERROR boom"),
    "containerd, program's time": Sample(
        "2026-02-28T14:10:00.123456789Z stderr F 2026-02-28 14:10:00,120 WARN [main] slow",
        "WARN",
        "2026-02-28 14:10:00,120 WARN [main] slow",
    ),
    "containerd, klog": Sample(
        "2026-02-28T14:10:00.123456789Z stderr F E0228 14:10:00.120000       1 a.go:7] boom",
        "ERROR",
        "E0228 14:10:00.120000       1 a.go:7] boom",
    ),
    "containerd, json": Sample(
        "2026-02-28T14:10:00.123456789Z stdout F " + row(level="error", service="pay", msg="boom"),
        "ERROR",
        "boom",
        "pay",
    ),
    "docker": Sample(row(log="ERROR boom\n", stream="stdout", time="2026-02-28T14:10:00.1Z"), "ERROR", "ERROR boom"),
    "java.util.logging": Sample(
        "Feb 28, 2026 2:10:00 PM com.shop.Pay charge\nSEVERE: boom", "ERROR", "com.shop.Pay charge SEVERE: boom"
    ),
    "tomcat": Sample(
        "28-Feb-2026 14:10:00.123 SEVERE [main] org.apache.X.y boom", "ERROR", "SEVERE [main] org.apache.X.y boom"
    ),
    "tomcat, chinese": Sample(
        "28-Feb-2026 14:10:00.123 严重 [main] org.apache.X.y boom", "ERROR", "严重 [main] org.apache.X.y boom"
    ),
    "redis warning": Sample("1:M 28 Feb 2026 14:10:00.123 # OOM", "WARN", "# OOM"),
    "redis notice": Sample("1:M 28 Feb 2026 14:10:00.123 * Ready", "NOTICE", "* Ready"),
    "redis verbose": Sample("1:M 28 Feb 2026 14:10:00.123 - Accepted", "TRACE", "Accepted"),
    "redis debug": Sample("1:M 28 Feb 2026 14:10:00.123 . tick", "DEBUG", ". tick"),
    "syslog with priority": Sample(
        "<11>Feb 28 14:10:00 web1 shop[7]: boom", "ERROR", "web1 shop[7]: boom", "shop", "web1"
    ),
    "rfc 5424": Sample(
        "<12>1 2026-02-28T14:10:00Z web1 shop 7 ID1 - slow", "WARN", "web1 shop 7 ID1 - slow", "shop", "web1"
    ),
    "rsyslog": Sample(
        "2026-02-28T14:10:00.123456+00:00 web1 sshd[7]: Failed", None, "web1 sshd[7]: Failed", "sshd", "web1"
    ),
    "systemd": Sample(
        "Feb 28 14:10:00 web1 systemd[1]: shop.service: Failed",
        None,
        "web1 systemd[1]: shop.service: Failed",
        "systemd",
        "web1",
    ),
    "chinese": Sample("2026-02-28 14:10:00 [错误] 连接超时", "ERROR", "[错误] 连接超时"),
    "chinese brackets": Sample("2026-02-28 14:10:00 【警告】 慢", "WARN", "【警告】 慢"),
    "journal": Sample(
        row(
            __REALTIME_TIMESTAMP="1772287800123456",
            PRIORITY="3",
            _SYSTEMD_UNIT="shop.service",
            SYSLOG_IDENTIFIER="shop",
            _HOSTNAME="web1",
            MESSAGE="boom",
        ),
        "ERROR",
        "boom",
        "shop.service",
        "web1",
    ),
    "mongodb": Sample(
        row(
            t={"$date": "2026-02-28T14:10:00.123+00:00"},
            s="E",
            c="NETWORK",
            id=1,
            ctx="conn1",
            msg="boom",
            attr={"n": 1},
        ),
        "ERROR",
        "boom",
        "NETWORK",
    ),
    "mongodb debug": Sample(
        row(t={"$date": "2026-02-28T14:10:00.123Z"}, s="D2", c="REPL", ctx="a", msg="x"), "DEBUG", "x", "REPL"
    ),
    "glog": Sample("E20260228 14:10:00.123456  1234 file.cc:12] boom", "ERROR", "1234 file.cc:12] boom"),
    "klog": Sample("W0228 14:10:00.123456  1234 file.go:12] slow", "WARN", "1234 file.go:12] slow"),
    "pretty json": Sample(
        json.dumps(
            {"level": "error", "time": "2026-02-28T14:10:00Z", "msg": "boom", "a": {"b": [1, {"time": 1}]}}, indent=2
        ),
        "ERROR",
        "boom",
    ),
    "envoy": Sample(
        "[2026-02-28 14:10:00.123][1][warning][config] [source/a.cc:49] gone",
        "WARN",
        "[1][warning][config] [source/a.cc:49] gone",
    ),
    "envoy access": Sample('[2026-02-28T14:10:00.123Z] "GET / HTTP/1.1" 503 UF 0', None, '"GET / HTTP/1.1" 503 UF 0'),
    "haproxy": Sample(
        "Feb 28 14:10:00 lb1 haproxy[12]: 10.0.0.1:5 [28/Feb/2026:14:10:00.1] web app/s1 0/0/1/2/3 503 1",
        None,
        "lb1 haproxy[12]: 10.0.0.1:5 [28/Feb/2026:14:10:00.1] web app/s1 0/0/1/2/3 503 1",
        "haproxy",
        "lb1",
    ),
    "postgres": Sample("2026-02-28 14:10:00.123 UTC [12] u@db ERROR:  no table", "ERROR", "[12] u@db ERROR:  no table"),
    "postgres log": Sample("2026-02-28 14:10:00.123 UTC [12] LOG:  checkpoint", "INFO", "[12] LOG:  checkpoint"),
    "postgres csv": Sample(
        '2026-02-28 14:10:00.123 UTC,"u","db",12,"10.0.0.1:5",6a.1,1,"SELECT",2026-02-28 14:00:00 UTC,3/4,0,ERROR,42P01,'
        '"relation ""x"" does not exist",,,,,,"SELECT 1",15,,"psql"',
        "ERROR",
        '"u","db",12,"10.0.0.1:5",6a.1,1,"SELECT",2026-02-28 14:00:00 UTC,3/4,0,ERROR,42P01,'
        '"relation ""x"" does not exist",,,,,,"SELECT 1",15,,"psql"',
    ),
    "mysql error": Sample(
        "2026-02-28T14:10:00.123456Z 0 [ERROR] [MY-010123] [Server] gone",
        "ERROR",
        "0 [ERROR] [MY-010123] [Server] gone",
    ),
    "mariadb note": Sample("2026-02-28 14:10:00 0 [Note] InnoDB: started", "NOTICE", "0 [Note] InnoDB: started"),
    "mysql slow": Sample(
        "# Time: 2026-02-28T14:10:00.123456Z\n# User@Host: a[a] @ h []\n# Query_time: 3.1\nSELECT 1;",
        None,
        "# User@Host: a[a] @ h []\n# Query_time: 3.1\nSELECT 1;",
    ),
    "kafka": Sample(
        "[2026-02-28 14:10:00,123] ERROR [Broker id=1] gone (kafka.X)", "ERROR", "ERROR [Broker id=1] gone (kafka.X)"
    ),
    "elasticsearch": Sample("[2026-02-28T14:10:00,123][WARN ][o.e.m.J] [n1] gc", "WARN", "[WARN ][o.e.m.J] [n1] gc"),
    "elasticsearch json": Sample(
        row(type="server", timestamp="2026-02-28T14:10:00,123Z", level="ERROR", component="o.e.b", message="boom"),
        "ERROR",
        "boom",
        "o.e.b",
    ),
    "celery": Sample(
        "[2026-02-28 14:10:00,123: ERROR/MainProcess] Task failed", "ERROR", "ERROR/MainProcess] Task failed"
    ),
    "gunicorn": Sample(
        "[2026-02-28 14:10:00 +0000] [12] [CRITICAL] WORKER TIMEOUT", "FATAL", "[12] [CRITICAL] WORKER TIMEOUT"
    ),
    "supervisord": Sample("2026-02-28 14:10:00,123 CRIT pool exited", "FATAL", "CRIT pool exited"),
    "uvicorn": Sample(
        'INFO:     10.0.0.1:5 - "GET / HTTP/1.1" 200 OK',
        "INFO",
        'INFO:     10.0.0.1:5 - "GET / HTTP/1.1" 200 OK',
        time=None,
    ),
    "dmesg -T": Sample(
        "[Sat Feb 28 14:10:00 2026] Out of memory: Killed process 7", None, "Out of memory: Killed process 7"
    ),
    "iis": Sample(
        "2026-02-28 14:10:00 10.0.0.1 GET /x - 80 - 10.0.0.2 curl - 500 0 0 15",
        None,
        "10.0.0.1 GET /x - 80 - 10.0.0.2 curl - 500 0 0 15",
    ),
    "log4j2": Sample("2026-02-28 14:10:00,123 [main] ERROR c.s.Pay - boom", "ERROR", "[main] ERROR c.s.Pay - boom"),
    "log4j2 json": Sample(
        row(instant={"epochSecond": 1772287800, "nanoOfSecond": 1}, level="ERROR", loggerName="a", message="boom"),
        "ERROR",
        "boom",
    ),
    "logback json": Sample(
        row(
            **{
                "@timestamp": "2026-02-28T14:10:00.123Z",
                "@version": "1",
                "message": "boom",
                "level": "ERROR",
                "stack_trace": "a.B: c",
            }
        ),
        "ERROR",
        "boom\na.B: c",
    ),
    "spring boot": Sample(
        "2026-02-28T14:10:00.123Z ERROR 12 --- [shop] [main] c.s.Pay : boom",
        "ERROR",
        "ERROR 12 --- [shop] [main] c.s.Pay : boom",
    ),
    "serilog": Sample("2026-02-28 14:10:00.123 +00:00 [WRN] slow", "WARN", "[WRN] slow"),
    "serilog json": Sample(
        row(**{"@t": "2026-02-28T14:10:00.123Z", "@mt": "boom {Id}", "@l": "Error", "@x": "System.X: gone", "Id": 7}),
        "ERROR",
        "boom {Id}\nSystem.X: gone",
    ),
    "pino": Sample(
        row(level=50, time=1772287800123, pid=1, hostname="web1", msg="boom"), "ERROR", "boom", instance="web1"
    ),
    "winston": Sample(row(level="error", message="boom", timestamp="2026-02-28T14:10:00.123Z"), "ERROR", "boom"),
    "bunyan": Sample(
        row(name="shop", hostname="web1", pid=1, level=50, msg="boom", time="2026-02-28T14:10:00.123Z", v=0),
        "ERROR",
        "boom",
        "shop",
        "web1",
    ),
    "nestjs": Sample("[Nest] 12  - 02/28/2026, 2:10:00 PM   ERROR [Pay] boom", "ERROR", "ERROR [Pay] boom"),
    "python": Sample("2026-02-28 14:10:00,123 - shop.pay - ERROR - boom", "ERROR", "shop.pay - ERROR - boom"),
    "loguru": Sample(
        "2026-02-28 14:10:00.123 | ERROR    | shop:pay:12 - boom", "ERROR", "ERROR    | shop:pay:12 - boom"
    ),
    "rust": Sample("2026-02-28T14:10:00.123456Z ERROR shop::pay: boom", "ERROR", "ERROR shop::pay: boom"),
    "kubernetes audit": Sample(
        row(kind="Event", level="Metadata", requestReceivedTimestamp="2026-02-28T14:10:00.123456Z", verb="get"),
        None,
        row(kind="Event", level="Metadata", requestReceivedTimestamp="2026-02-28T14:10:00.123456Z", verb="get"),
    ),
    "gelf": Sample(
        row(version="1.1", host="web1", short_message="boom", timestamp=1772287800.123, level=3),
        "ERROR",
        "boom",
        instance="web1",
    ),
    "gcp": Sample(row(timestamp="2026-02-28T14:10:00.123Z", severity="ERROR", message="boom"), "ERROR", "boom"),
    "caddy": Sample(row(level="error", ts=1772287800.5, logger="http", msg="boom"), "ERROR", "boom"),
    "laravel": Sample("[2026-02-28 14:10:00] production.ERROR: boom", "ERROR", "production.ERROR: boom"),
    "rabbitmq": Sample("2026-02-28 14:10:00.123456+00:00 [error] <0.7.0> closing", "ERROR", "[error] <0.7.0> closing"),
    "etcd": Sample(row(level="warn", ts="2026-02-28T14:10:00.123456Z", caller="a.go:1", msg="slow"), "WARN", "slow"),
    "consul": Sample("2026-02-28T14:10:00.123Z [ERROR] agent: boom: error=x", "ERROR", "[ERROR] agent: boom: error=x"),
    "clickhouse": Sample(
        "2026.02.28 14:10:00.123456 [ 12 ] {} <Error> TCPHandler: boom", "ERROR", "[ 12 ] {} <Error> TCPHandler: boom"
    ),
    "cassandra": Sample("ERROR [Stage-1] 2026-02-28 14:10:00,123 A.java:1 - boom", "ERROR", "A.java:1 - boom"),
    "winston with a label": Sample("2026-02-28T14:10:00.123Z [shop] error: boom", "ERROR", "[shop] error: boom"),
    "sidekiq": Sample("2026-02-28T14:10:00.123Z pid=1 class=Job ERROR: boom", "ERROR", "pid=1 class=Job ERROR: boom"),
    "php": Sample("[28-Feb-2026 14:10:00 UTC] PHP Fatal error:  boom", "FATAL", "PHP Fatal error:  boom"),
    "php-fpm": Sample("[28-Feb-2026 14:10:00] WARNING: [pool www] busy", "WARN", "WARNING: [pool www] busy"),
    "vault": Sample(
        row(**{"@level": "error", "@message": "boom", "@timestamp": "2026-02-28T14:10:00.1Z"}), "ERROR", "boom"
    ),
    "opentelemetry": Sample(
        row(timeUnixNano="1772287800123456789", severityText="ERROR", body={"stringValue": "boom"}), "ERROR", "boom"
    ),
    "nginx json": Sample(
        row(time_local="28/Feb/2026:14:10:00 +0000", status="502"),
        None,
        row(time_local="28/Feb/2026:14:10:00 +0000", status="502"),
    ),
    "java gc": Sample("2026-02-28T22:10:00.123+0800: 1.2: [GC 1K]", None, "1.2: [GC 1K]"),
    "auditd": Sample("type=SYSCALL msg=audit(1772287800.123:45): success=no", None, "success=no"),
    "squid": Sample(
        "1772287800.123    5 10.0.0.1 TCP_MISS/503 0 GET http://x", None, "5 10.0.0.1 TCP_MISS/503 0 GET http://x"
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_lines_of_real_programs(tmp_path: Path, name: str) -> None:
    sample = SAMPLES[name]
    write(tmp_path, f"{sample.line}\n" * 3)
    response = ask(tmp_path, minutes=WEEK)
    assert response.total == 3
    event = response.events[0]
    assert (event.timestamp or "none").startswith(sample.time or "none")
    assert (event.level, event.service, event.instance) == (sample.level, sample.service, sample.instance)
    assert event.message == sample.message
    assert response.levels == {sample.level or NO_LEVEL: 3}
    if sample.level:
        assert ask(tmp_path, f"level:{sample.level}", minutes=WEEK).total == 3


LINES = st.sampled_from([sample.line for sample in SAMPLES.values()])
LEVELS = ("fatal", "error", "warn", "notice", "info", "debug", "trace")


@given(LINES, st.text(max_size=20), st.integers(0, 40), st.sampled_from(LEVELS))
def test_no_level_is_lost_before_it_is_looked_at(line: str, more: str, at: int, level: str) -> None:
    """What a level query does not hit in the raw bytes is never judged, so every stated level must be hit."""
    text = line[:at] + more + line[at:]
    raw = text.encode("utf-8", "replace")
    if EventView(raw, 0).level == level.upper():
        found = prefilter(parse_query(f"level:{level}"))
        assert found is not None
        assert found.search(raw) is not None


def test_parts_of_a_containers_line_are_joined(tmp_path: Path) -> None:
    stamp = "2026-02-28T14:10:0{}.123456789Z"
    lines = [
        f"{stamp.format(0)} stdout P ERROR pay",
        f"{stamp.format(0)} stdout F ment refused",
        f"{stamp.format(1)} stderr F ERROR java.lang.X: boom",
        f"{stamp.format(1)} stderr F \tat a.b.C(D.java:1)",
        f"{stamp.format(1)} stderr F Caused by: java.net.Y: refused",
        f"{stamp.format(2)} stdout F INFO next",
    ]
    write(tmp_path, "\n".join(lines))
    response = ask(tmp_path, minutes=WEEK)
    assert messages(response) == [
        "INFO next",
        "ERROR java.lang.X: boom\n\tat a.b.C(D.java:1)\nCaused by: java.net.Y: refused",
        "ERROR payment refused",
    ]
    assert response.levels == {"ERROR": 2, "INFO": 1}


def test_an_object_over_several_lines_is_one_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"level": "error" if at % 10 == 0 else "info", "list": [{"time": "1999-01-01T00:00:00Z"}], "msg": f"took {at}",
         "time": f"2026-02-28T14:{at // 60:02}:{at % 60:02}Z"}
        for at in range(600)
    ]  # fmt: skip
    write(tmp_path, "\n".join(json.dumps(row, indent=2) for row in rows))
    whole = ask(tmp_path, "level:error took", minutes=WEEK, limit=100)
    assert (whole.total, whole.levels) == (60, {"ERROR": 60})
    assert messages(whole)[0] == "took 590"
    monkeypatch.setattr("tools.logs.scan.BLOCK_BYTES", 4096)
    monkeypatch.setattr("tools.logs.scan.BISECT_FROM_BYTES", 1024)
    assert ask(tmp_path, "level:error took", minutes=WEEK, limit=100) == whole
