"""The commands in-process: what they print, and that whatever is typed ends in a bounded line, never in a traceback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graph.contract import RunState
from nodes.ports import RunRecord
from service.cli.main import run
from service.home import open_stores
from service.settings import Settings
from tests.scenes import conclusion, log_call, write_answers, write_scene

Said = tuple[int, str, str]


@dataclass(frozen=True)
class Scene:
    folder: Path
    catalog: Path
    call: Callable[..., Said]

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """Run a command whose stdout must be exactly one JSON object."""
        status, out, err = self.call(*arguments)
        assert status == code, err
        value = json.loads(out)
        assert isinstance(value, dict)
        return value


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Scene:
    catalog = write_scene(tmp_path)
    script = [log_call("c1", "timeout"), log_call("c2", "nothing-such", ("c1", "GAINED")), conclusion("c1")]
    for name in ("CATALOG", "HOME", "MODEL", "LANGUAGE", "DATABASE_URL", "REDIS_URL", "API_KEY"):
        monkeypatch.delenv(f"SUPERBIZ_{name}", raising=False)
    monkeypatch.setenv("SUPERBIZ_CATALOG", str(catalog))
    monkeypatch.setenv("SUPERBIZ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SUPERBIZ_MODEL", write_answers(tmp_path / "answers.json", script))
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Said:
        capsys.readouterr()
        status = run(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return status, out, err

    return Scene(tmp_path, catalog, call)


def refused(scene: Scene, *arguments: str, says: str, code: int = 2) -> None:
    """The command ends with one bounded line on stderr and the given status."""
    status, _, err = scene.call(*arguments)
    assert status == code, err
    assert says in err
    assert len(err.splitlines()) == 1
    assert len(err) < 700


def test_diagnose_shows_steps_then_the_report(scene: Scene) -> None:
    status, out, err = scene.call("diagnose", "why do orders fail?", "--language", "en", "--trace")
    assert (status, err) == (0, "")
    for node in ("start_run", "model_step", "execute_tool", "project_observation", "guard_evidence", "release"):
        assert f" {node}" in out
    assert out.index("start_run") < out.index("Conclusion") < out.index("Findings") < out.index("RUN_STARTED")
    assert "[query_logs c1]" in out
    assert "No language model was used" not in out
    assert "operator: state SUCCESS" in out
    assert "RUN_ENDED" in out


def test_diagnose_in_chinese_with_the_offline_model(scene: Scene) -> None:
    status, out, _ = scene.call("diagnose", "order-service connection timeout", "--model", "offline")
    assert status == 0
    assert "问题: order-service connection timeout" in out
    assert "未使用语言模型" in out


def test_diagnose_json_is_one_object_and_nothing_else(scene: Scene) -> None:
    report = scene.json("diagnose", "why?", "--json")
    assert list(report) == ["run_id", "status", "release_outcome", "published_result", "fallback", "operator"]
    assert report["release_outcome"] == "CONCLUSION"
    assert report["operator"]["internal_state"] == "SUCCESS"
    assert report["published_result"]["findings"][0]["tool_call_ids"] == ["c1"]


def test_a_run_that_publishes_nothing_exits_1(scene: Scene) -> None:
    write_answers(scene.folder / "answers.json", [{"text": "not a draft"}])
    report = scene.json("diagnose", "why?", "--json", code=1)
    assert (report["status"], report["published_result"], report["fallback"]) == ("FAILED", None, None)
    assert report["operator"]["error_code"] == "AGENT_OUTPUT_REJECTED"


def test_options_reach_the_run(scene: Scene) -> None:
    report = scene.json("diagnose", "why?", "--json", "--no-gain-threshold", "1", "--at", "2026-03-01T03:10:00Z")
    assert report["operator"]["stop_reason"] == "INFORMATION_SATURATED"


def test_runs_show_and_trace_read_what_a_run_left(scene: Scene) -> None:
    first = scene.json("diagnose", "first question", "--json")["run_id"]
    second = scene.json("diagnose", "订单为什么失败?", "--json")["run_id"]
    listed = scene.json("runs", "--json")["runs"]
    assert [entry["run_id"] for entry in listed] == [second, first]
    assert [entry["run_id"] for entry in scene.json("runs", "--json", "--limit", "1")["runs"]] == [second]
    out = scene.call("runs")[1]
    assert first in out
    assert "订单为什么失败?" in out

    shown = scene.json("show", "last", "--json", "--evidence")
    assert shown["run_id"] == second
    assert shown["query"] == "订单为什么失败?"
    assert list(shown["evidence"]) == ["c1"]
    assert shown["evidence"]["c1"]["agent_result"]["events"][0]["message"].endswith("connection timeout to redis-01")
    assert scene.json("show", first[:13], "--json")["run_id"] == first
    out = scene.call("show", first, "--evidence")[1]
    assert out.rstrip().endswith("connection timeout to redis-01")
    assert "[query_logs c1] topic=app" in out

    traced = scene.json("trace", "last", "--json")
    assert traced["run_id"] == second
    assert [event["seq"] for event in traced["events"]] == list(range(1, len(traced["events"]) + 1))
    assert traced["events"][-1]["type"] == "RUN_ENDED"
    assert [step["kind"] for step in traced["steps"]] == ["tool_calls", "tool_calls", "draft"]
    assert "RUN_ENDED" in scene.call("trace", second)[1]


def test_unknown_and_ambiguous_runs(scene: Scene) -> None:
    refused(scene, "show", "last", says="no runs yet")
    asyncio.run(_store(scene.folder / "home", ("abc-1", "abc-2", "abc-22", "x%y")))
    refused(scene, "show", "00000000-0000", says="no run begins with")
    refused(scene, "trace", "no such run!", says="RUN: must be")
    refused(scene, "show", "%", says="RUN: must be")
    refused(scene, "show", "a_c", says="no run begins with")
    refused(scene, "trace", "abc", says="is ambiguous")
    assert scene.json("show", "abc-1", "--json")["run_id"] == "abc-1"
    # A whole id wins over longer ones that begin with it.
    assert scene.json("show", "abc-2", "--json")["run_id"] == "abc-2"


async def _store(home: Path, ids: Sequence[str]) -> None:
    async with open_stores(Settings(home=home)) as (runs, _):
        for run_id in ids:
            assert await runs.create(RunRecord(run_id, "why?", None, RunState.RUNNING, 1.0))


def test_index_reports_and_then_has_nothing_to_do(scene: Scene) -> None:
    report = scene.json("index", "--json")
    assert (report["added"], report["unchanged"], report["problems"]) == (1, 0, [])
    status, out, _ = scene.call("index")
    assert status == 0
    assert "0 added" in out
    assert "1 unchanged" in out


def test_r54_calibrate_proposes_thresholds(scene: Scene) -> None:
    name = next((scene.folder / "runbooks").iterdir()).name
    rows = [
        {"query": "redis connection timeout", "relevant": [name]},
        {"query": "espresso grinder", "relevant": []},
    ] * 4
    file = scene.folder / "queries.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    report = scene.json("calibrate", str(file), "--json")
    assert report["knowledge"] == "runbooks"
    assert report["table"]["answerable"] == 4
    assert report["proposal"]["held"]["rejected"] == 1.0
    assert report["current"]["thresholds"] == {"high": 0.4, "reference": 0.26}
    out = scene.call("calibrate", str(file), "--knowledge", "Runbooks")[1]
    assert "threshold  precision  recall" in out
    assert "proposed: chosen on one half" in out


def test_r54_a_vector_store_is_calibrated_and_looked_at(scene: Scene) -> None:
    (scene.folder / "stores.py").write_text(
        "from langchain_core.vectorstores import InMemoryVectorStore\n"
        "from tests.rag_backends import WordEmbedding, filled\n"
        "def wiki():\n    return filled(InMemoryVectorStore(WordEmbedding()), {'redis.md': 'redis latency'})\n"
        "def broken():\n    raise ValueError('MARKER')\n"
    )
    entry = '[[knowledge]]\nname = "wiki"\nstore = "stores.py:wiki"\nscore = "cosine"\nhigh = 0.5\nreference = 0.3\n'
    scene.catalog.write_text(entry)
    rows = [{"query": "redis latency", "relevant": ["redis.md"]}, {"query": "espresso grinder", "relevant": []}] * 4
    file = scene.folder / "queries.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    report = scene.json("calibrate", str(file), "--json")
    assert report["current"]["answered"] == report["current"]["rejected"] == 1.0
    assert "vector store, answers" in json.dumps(scene.json("doctor", "--json", code=0))
    refused(scene, "index", says="names no [[knowledge]] folder")
    scene.catalog.write_text(entry.replace(":wiki", ":broken"))
    status, out, err = scene.call("calibrate", str(file))
    assert status == 1
    assert "the vector store does not answer: BACKEND_UNAVAILABLE" in err
    assert "BACKEND_UNAVAILABLE" in json.dumps(scene.json("doctor", "--json", code=2))
    scene.catalog.write_text(entry.replace(":wiki", ":gone"))
    refused(scene, "calibrate", str(file), says="stores.py has no importable gone")
    assert "no importable gone" in json.dumps(scene.json("doctor", "--json", code=2))
    assert "MARKER" not in out + err


def test_calibrate_says_what_is_wrong(scene: Scene) -> None:
    file = scene.folder / "queries.jsonl"
    refused(scene, "calibrate", str(file), says="queries queries.jsonl: must be a readable file")
    file.write_text('\n{"query": "x", "relevant": ["gone.md"]}')
    refused(scene, "calibrate", str(file), says="line 2: relevant: knowledge runbooks has no file gone.md")
    refused(scene, "calibrate", str(file), "--knowledge", "nope", says="--knowledge: the catalogue has no such entry")
    file.write_text('{"query": "x", "relevant": []}')
    refused(scene, "calibrate", str(file), says="0 with and 1 without a relevant source")
    with scene.catalog.open("a") as catalog:
        catalog.write('\n[[knowledge]]\nname = "more"\npath = "runbooks"\n')
    refused(scene, "calibrate", str(file), says="--knowledge: must name one of runbooks, more")
    scene.catalog.write_text("")
    refused(scene, "calibrate", str(file), says="nothing to calibrate")


@pytest.mark.parametrize(
    ("name", "request_", "keys"),
    [
        ("logs", {"topic": "app", "query": "timeout", "lookback_minutes": 60}, {"events", "patterns", "total"}),
        ("query_logs", {"topic": "app"}, {"events"}),
        ("rag", {"query": "redis connection timeout"}, {"documents", "relevance_level"}),
        ("mysql", {"datasource": "shop", "sql": "SELECT id, status FROM orders", "params": []}, {"columns", "rows"}),
    ],
)
def test_a_tool_as_the_model_would_use_it(scene: Scene, name: str, request_: dict[str, Any], keys: set[str]) -> None:
    text = json.dumps(request_)
    model = scene.json("tool", name, text)
    assert model["evidence_status"] == "EVIDENCE_FOUND"
    assert keys <= set(model)
    control = scene.json("tool", name, text, "--view", "control")
    assert control["status"] == "READY"
    assert control["returned_count"] >= 1
    assert control["scope"]["key"]
    canonical = scene.json("tool", name, text, "--view", "canonical")
    assert canonical["request"] == request_
    assert canonical["raw_response"]
    assert canonical["agent_result"]


BAD_TOOL_REQUESTS = [
    ("logs", '{"topic": "nope"}', "input.topic"),
    ("logs", '{"topic": "app", "lookback_minutes": 0}', "input.lookback_minutes"),
    ("logs", '{"topic": "app", "query": 5}', "input.query"),
    ("logs", '{"topic": "app", "SECRET-MARK": 1}', "unknown_field"),
    ("mysql", '{"datasource": "nope", "sql": "SELECT 1", "params": []}', "input.datasource"),
    ("mysql", '{"datasource": "shop", "sql": "SELECT * FROM users", "params": []}', "table_not_allowed"),
    ("mysql", '{"datasource": "shop", "sql": "DELETE FROM orders", "params": []}', "input.sql"),
    ("mysql", '{"datasource": "shop", "sql": "SELECT id FROM orders WHERE id = ?", "params": []}', "input.params"),
    ("rag", '{"query": "  "}', "input.query"),
    ("rag", "{}", "input.query"),
]


@pytest.mark.parametrize(("name", "request_", "says"), BAD_TOOL_REQUESTS)
def test_a_refused_request_is_shown_as_the_model_would_see_it(
    scene: Scene, name: str, request_: str, says: str
) -> None:
    status, out, err = scene.call("tool", name, request_)
    assert status == 2
    assert json.loads(out)["error_code"] == "INVALID_TOOL_REQUEST"
    assert says in out + err
    assert len(err.splitlines()) == 1
    assert "SECRET-MARK" not in out + err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("tool", "logs", "{"), "JSON: not valid JSON"),
        (("tool", "logs", "[" * 10_000), "JSON: not valid JSON"),
        (("tool", "logs", "[]"), "JSON: must be one JSON object"),
        (("tool", "logs", '{"topic": "' + "x" * 30_000 + '"}'), "JSON: at most 20000"),
        (("tool", "hammer", "{}"), "NAME: unknown tool; allowed: rag, logs, mysql"),
        (("tool", "logs", '{"topic": "app"}', "--view", "x"), "--view"),
        (("tool", "logs", '{"topic": "app"}', "--at", "noon"), "--at: must be an RFC 3339 time"),
        (("diagnose", ""), "query: must be a non-empty text"),
        (("diagnose", "   "), "query: must be a non-empty text"),
        (("diagnose", "x" * 100_000), "query: at most 4000 characters"),
        (("diagnose", "bad \udcff bytes"), "query: must be valid Unicode text"),
        (("diagnose", "why?", "--at", "noon"), "at: must be an RFC 3339 time"),
        (("diagnose", "why?", "--at", "2026-03-01T03:10:00"), "at: must be an RFC 3339 time"),
        (("diagnose", "why?", "--no-gain-threshold", "0"), "no_gain_threshold: "),
        (("diagnose", "why?", "--no-gain-threshold", "three"), "--no-gain-threshold"),
        (("diagnose", "why?", "--protocol-threshold", "1"), "protocol_violation_threshold: "),
        (("diagnose", "why?", "--model", "parrot"), "SUPERBIZ_MODEL: "),
        (("diagnose", "why?", "--model", "no spaces allowed"), "SUPERBIZ_MODEL: "),
        (("diagnose", "why?", "--model", "openai:gpt"), "SUPERBIZ_API_KEY"),
        (("diagnose", "why?", "--model", "scripted:missing.json"), "SUPERBIZ_MODEL: missing.json"),
        (("diagnose", "why?", "--language", "fr"), "SUPERBIZ_LANGUAGE: "),
        (("diagnose", "why?", "--catalog", "missing.toml"), "catalogue missing.toml: file not found"),
        (("diagnose", "why?", "--session", " "), "--session: "),
        (("diagnose",), "question"),
        (("diagnose", "why?", "extra"), "extra"),
        (("runs", "--limit", "0"), "--limit"),
        (("dance",), "dance"),
        (("evaluate", "missing"), "expected.json"),
    ],
)
def test_bad_usage_is_one_clear_line(scene: Scene, arguments: tuple[str, ...], says: str) -> None:
    refused(scene, *arguments, says=says)
    assert not (scene.folder / "home" / "superbiz.db").exists()


def test_with_json_an_error_is_one_json_object_too(scene: Scene) -> None:
    for arguments in (("diagnose", " ", "--json"), ("runs", "--limit", "x", "--json"), ("show", "zz", "--json")):
        error = scene.json(*arguments, code=2)["error"]
        assert error["exit_code"] == 2
        assert error["message"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[[topic]]\nname = ", "not valid TOML"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b'[[topic]]\nname = "a b"\npath = "x"', "topic.0.name"),
        (b'[[topic]]\nname = "a"', "needs path"),
        (b'[[topic]]\nname = "a"\npath = "x"\ntimezone = "Mars/Base"', "IANA time zone"),
        (b'[[topic]]\nname = "a"\npath = "x"\n[[topic]]\nname = "A"\npath = "y"', "defined twice"),
        (b'[[datasource]]\nname = "d"\npath = "x"\ntables = {}', "datasource.0.tables"),
        (b'colour = "red"', "colour"),
        (b"x" * 2_000_000, "larger than 1 MiB"),
    ],
)
@pytest.mark.parametrize("command", [("diagnose", "why?"), ("tool", "logs", "{}"), ("index",)])
def test_a_malformed_catalogue_is_named(scene: Scene, command: tuple[str, ...], content: bytes, says: str) -> None:
    scene.catalog.write_bytes(content)
    refused(scene, *command, says=says)


def test_doctor_says_what_works(scene: Scene) -> None:
    result = scene.json("doctor", "--json")
    assert result["healthy"] is True
    texts = {check["subject"]: check["text"] for check in result["checks"]}
    assert "1 file, newest event 2026-03-01T03:06" in texts["topic app"]
    assert "not indexed yet" in texts["knowledge runbooks"]
    assert "readable" in texts["datasource shop"]
    assert "can be written" in texts["database"]
    scene.json("index", "--json")
    out = scene.call("doctor")[1]
    assert "1 passages indexed" in out
    assert "BROKEN" not in out


def test_doctor_says_what_is_broken(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.catalog.write_text(
        '[[topic]]\nname = "gone"\npath = "missing/*.log"\n'
        '[[topic]]\nname = "locked"\npath = "logs"\n'
        '[[datasource]]\nname = "remote"\ndsn_env = "REMOTE_DSN"\ntables.t = ["a"]\n'
        '[[datasource]]\nname = "shop"\npath = "shop.db"\ntables.missing = ["a"]\n'
        '[[knowledge]]\nname = "books"\npath = "nowhere"\n'
    )
    monkeypatch.setenv("SUPERBIZ_MODEL", "openai:test")
    result = scene.json("doctor", "--json", code=2)
    assert result["healthy"] is False
    broken = {check["subject"]: check["text"] for check in result["checks"] if not check["ok"]}
    assert set(broken) == {"secrets", "model", "topic gone", "datasource remote", "datasource shop", "knowledge books"}
    assert "SUPERBIZ_API_KEY" in broken["secrets"]
    assert "REMOTE_DSN" in broken["secrets"]
    assert "missing" in broken["datasource shop"]
    assert "folder not found" in broken["knowledge books"]


def test_doctor_without_a_catalogue(scene: Scene) -> None:
    scene.catalog.unlink()
    result = scene.json("doctor", "--json", code=2)
    assert [check["subject"] for check in result["checks"] if not check["ok"]] == ["catalogue"]


def test_doctor_never_prints_a_key(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERBIZ_MODEL", "openai:test")
    monkeypatch.setenv("SUPERBIZ_API_KEY", "sk-MARKER-KEY")
    monkeypatch.setenv("SUPERBIZ_BASE_URL", "http://127.0.0.1:9/MARKER-PATH")
    status, out, err = scene.call("doctor")
    assert status == 2
    assert "does not answer" in out
    assert "MARKER" not in out + err


def test_a_home_that_cannot_be_written_is_named(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERBIZ_HOME", str(scene.folder / "answers.json" / "home"))
    for command in (("diagnose", "why?"), ("runs",), ("index",), ("tool", "logs", '{"topic": "app"}')):
        refused(scene, *command, says="SUPERBIZ_HOME")


def test_an_unreadable_knowledge_folder_is_named_by_index(scene: Scene) -> None:
    scene.catalog.write_text('[[knowledge]]\nname = "books"\npath = "superbiz.toml"\n')
    refused(scene, "index", says="knowledge books: path: folder not found")
    scene.catalog.write_text('[[topic]]\nname = "app"\npath = "logs"\n')
    refused(scene, "index", says="names no [[knowledge]] folder")


def test_hostile_log_files_do_not_break_a_diagnosis(scene: Scene) -> None:
    logs = scene.folder / "logs"
    (logs / "core.log").write_bytes(b"\x7fELF" + bytes(range(256)) * 4000)
    (logs / "long.log").write_bytes(b"2026-03-01T03:07:00Z ERROR timeout " + b"y" * 5_000_000 + b"\n")
    (logs / "escape.log").write_bytes(b"2026-03-01T03:08:00Z ERROR \x1b[31mtimeout\x1b]0;title\x07\n")
    text = scene.catalog.read_text().replace("logs/app.log", "logs")
    scene.catalog.write_text(text)
    status, out, _ = scene.call("diagnose", "timeout", "--model", "offline")
    assert status == 0
    assert "\x1b" not in out
    assert len(out) < 60_000
    model = scene.json("tool", "logs", '{"topic": "app", "query": "timeout", "lookback_minutes": 60}')
    assert len(json.dumps(model)) < 12_000
    assert "\x1b" not in scene.call("show", "last", "--evidence")[1]


def test_evaluate_scores_every_case_in_a_home_of_its_own(scene: Scene) -> None:
    cases = scene.folder / "cases"
    for name in ("one", "two"):
        (cases / name).mkdir(parents=True)
        write_scene(cases / name)
    expected = {"one": {"question": "why?", "key_fact": "redis-0\\d"}, "two": {"question": "why?", "key_fact": "kafka"}}
    (cases / "expected.json").write_text(json.dumps(expected))
    result = scene.json("evaluate", str(cases), "--json")
    assert [(case["case"], case["outcome"], case["matched"]) for case in result["cases"]] == [
        ("one", "CONCLUSION", True),
        ("two", "CONCLUSION", False),
    ]
    assert result["cases"][0]["matched_tool_call_ids"] == ["c1"]
    assert "redis-01" in result["cases"][0]["matched_fact"]
    assert scene.json("runs", "--json")["runs"] == []
    assert all(case["shown_bytes"] > 0 and case["raw_bytes"] > 0 for case in result["cases"])
    assert result["raw_bytes"] == sum(case["raw_bytes"] for case in result["cases"])
    status, out, _ = scene.call("evaluate", str(cases))
    assert status == 0
    assert "2 of 2 published, 1 show the key fact" in out
    assert f"{result['shown_bytes']:,} bytes shown to the model of {result['raw_bytes']:,} raw" in out
    write_answers(scene.folder / "answers.json", [{"text": "no draft"}])
    assert scene.call("evaluate", str(cases))[0] == 1


def test_help_needs_no_configuration(scene: Scene) -> None:
    status, out, err = scene.call("--help")
    assert (status, err) == (0, "")
    for command in ("diagnose", "runs", "show", "trace", "index", "tool", "doctor", "evaluate"):
        assert command in out
        assert scene.call(command, "--help")[0] == 0


def test_an_unexpected_error_tells_its_type_only(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: Any, **__: Any) -> None:
        raise RuntimeError("MARKER-TEXT")

    monkeypatch.setattr("service.home.open_stores", explode)
    status, _, err = scene.call("runs")
    assert status == 1
    assert "internal error (RuntimeError)" in err
    assert "MARKER" not in err
