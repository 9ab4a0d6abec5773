"""A changed rule makes a replay fail and name the step where it acts; a changed prompt or tool is named (R67, R154)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import nodes.progress_rules
import release.decision
import service.replay.catalog
import service.start_archive
import tools.logs.tool
from graph.budget import RunBudget
from graph.contract import ViolationType
from graph.tracker import DiagnosisProgressTracker
from nodes.prompts import prompt
from release.contract import GuardOutcome
from service.cli.main import run as superbiz
from service.registry import Site, build_tools
from service.replay.bundle import Bundle, Entry
from service.replay.catalog import tools_of
from service.replay.compare import compare
from service.replay.engine import replay
from tests.fakes import ProbeTool
from tests.record import FOLDER
from tests.recorded import recording, replayed
from tools.catalog import build_catalog
from tools.contract import EvidenceStatus
from tools.envelope_protocol import ProtocolFault

REAL_RESULT = nodes.progress_rules.judge_result
REAL_CONTROL = nodes.progress_rules.check_control_fields
REAL_CONCLUSION = release.decision._with_conclusion
REAL_OBSERVE = ProbeTool.observe
REAL_PROMPT = prompt


def nothing_found_is_neutral(tracker: Any, completed: Any, status: EvidenceStatus) -> Any:
    if status is EvidenceStatus.NO_EVIDENCE:
        return tracker.with_completed(completed), ()
    return REAL_RESULT(tracker, completed, status)


def one_later(tracker: DiagnosisProgressTracker) -> DiagnosisProgressTracker:
    counted = tracker._with(consecutive_no_gain=tracker.consecutive_no_gain + 1)
    return counted if counted.consecutive_no_gain <= tracker.no_gain_threshold else counted.stopped(None)  # type: ignore[arg-type]


def never_saturated(tracker: DiagnosisProgressTracker) -> DiagnosisProgressTracker:
    return tracker._with(consecutive_protocol_violations=tracker.consecutive_protocol_violations + 1)


def reference_before_form(arguments: Any, pending: str | None, answered: str | None) -> Any:
    if isinstance(arguments, dict) and pending and arguments.get("previous_observation") is None:
        return ProtocolFault(ViolationType.MISSING_PREVIOUS_OBSERVATION, "previous_observation", pending)
    return REAL_CONTROL(arguments, pending, answered)


def whatever_semantics_say(given: Any, draft: Any) -> Any:
    return REAL_CONCLUSION(replace(given, semantic_guard=GuardOutcome.PASSED), draft)


def without_scope(self: ProbeTool, *result: Any) -> dict[str, Any]:
    return {name: value for name, value in REAL_OBSERVE(self, *result).items() if name != "scope"}


@dataclass(frozen=True)
class Changed:
    """A rule, what becomes of it, and where the replay of a recording must say so."""

    rule: str
    target: Any
    name: str
    to: Callable[..., Any]
    recording: str
    step: str
    place: str


RULES = [
    Changed(
        "what gains",
        "nodes.project_observation",
        "judge_result",
        nothing_found_is_neutral,
        "probe-stop",
        "step 11 (project_observation)",
        "tracker.consecutive_no_gain",
    ),
    Changed(
        "repetition",
        DiagnosisProgressTracker,
        "duplicate_of",
        lambda self, key: None,
        "probe-stop",
        "step 14 (dedup_scope)",
        "step",
    ),
    Changed(
        "no-gain threshold",
        DiagnosisProgressTracker,
        "with_no_gain",
        one_later,
        "probe-stop",
        "step 14 (dedup_scope)",
        "tracker.state",
    ),
    Changed(
        "violation threshold",
        DiagnosisProgressTracker,
        "with_violation",
        never_saturated,
        "probe-protocol-stop",
        "step 11 (validate_envelope)",
        "tracker.stop_reason",
    ),
    Changed(
        "order of violations",
        "nodes.progress_rules",
        "check_control_fields",
        reference_before_form,
        "probe-protocol-stop",
        "step 11 (validate_envelope)",
        "step",
    ),
    Changed(
        "budget",
        RunBudget,
        "crossed_before_tool",
        lambda self, now: None,
        "probe-budget",
        "step 14 (dedup_scope)",
        "step",
    ),
    Changed(
        "evidence guard",
        "release.evidence_guard",
        "_reference_faults",
        lambda *given: iter(()),
        "probe-repair",
        "step 9 (guard_evidence)",
        "step",
    ),
    Changed(
        "release after the semantic guard",
        "release.decision",
        "_with_conclusion",
        whatever_semantics_say,
        "probe-semantic-refusal",
        "step 11 (release)",
        "step",
    ),
    Changed(
        "projection of facts",
        "release.snapshot",
        "_facts",
        lambda *given: iter(()),
        "probe-stop",
        "step 17 (project_progress)",
        "step",
    ),
    Changed(
        "projection of an observation",
        ProbeTool,
        "observe",
        without_scope,
        "probe-stop",
        "step 6 (project_observation)",
        "messages",
    ),
    Changed(
        "stop directive",
        "nodes.messages",
        "stop_pair",
        lambda reason: {"stop_required": True},
        "probe-stop",
        "step 15 (require_stop)",
        "messages",
    ),
    Changed(
        "scope of a log query",
        "tools.logs.scope",
        "effective_lookback",
        lambda minutes: minutes + 1,
        "shop-slow-en",
        "step 9 (dedup_scope)",
        "step",
    ),
    Changed(
        "what a guard is shown",
        "nodes.guard_semantics",
        "semantic_input",
        lambda query, draft, evidence: json.dumps({"question": query}),
        "probe-semantic-refusal",
        "step 10 (guard_semantics)",
        "asked",
    ),
]


@pytest.mark.parametrize("changed", RULES, ids=[each.rule for each in RULES])
async def test_r154_a_changed_rule_fails_the_replay_and_names_the_step(
    changed: Changed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await replayed(changed.recording)).identical
    if isinstance(changed.target, str):
        monkeypatch.setattr(f"{changed.target}.{changed.name}", changed.to)
    else:
        monkeypatch.setattr(changed.target, changed.name, changed.to)
    found = await replayed(changed.recording)
    assert found.step == changed.step
    assert changed.place in {each.place for each in found.first}
    assert found.changed == ()


def otherwise(component: str, language: str) -> str:
    return REAL_PROMPT(component, language) + " Be brief." * (component == "diagnosis")


async def test_r67_a_changed_prompt_is_named_and_the_replay_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodes.model_step.prompt", otherwise)
    found = await replayed("probe-stop")
    assert (found.identical, found.changed) == (True, ("prompt diagnosis.zh",))
    # A bundle that holds the hashes tells of the prompts by them, also where its answers do not say what was shown.
    monkeypatch.setattr("service.start_archive.prompt", otherwise)
    service.start_archive.prompts_entry.cache_clear()
    found = await replayed("hand-count-en")
    service.start_archive.prompts_entry.cache_clear()
    assert (found.identical, found.changed) == (True, ("prompt diagnosis.en",))


async def test_r67_a_prompt_that_this_run_did_not_use_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodes.model_step.prompt", otherwise)
    assert (await replayed("chat-system")).changed == ()


async def test_r67_a_changed_tool_is_named_with_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = recording("shop-slow-en")
    real = (await replay(bundle)).bundle
    assert real is not None
    assert compare(bundle, real).changed == ()
    told = bundle.settings["tools"]
    schema = json.loads(json.dumps(told["query_logs"]["schema"]))
    schema["properties"]["input"]["description"] = "Another query."
    today = {
        "query_logs": {"description": told["query_logs"]["description"], "schema": schema},
        "query_mysql": {**told["query_mysql"], "description": "Another tool."},
        "query_metrics": told["query_mysql"],
    }
    entries = [
        replace(each, payload=today) if (each.kind, each.key) == ("settings", "tools") else each
        for each in real.entries
    ]
    found = compare(bundle, Bundle.of(bundle.run_id, entries))
    assert found.identical
    assert found.changed == (
        "tool query_logs: its parameters, first at properties.input.description",
        "tool query_mysql: its description",
        f"tool {next(name for name in told if name not in today)}: is gone",
        "tool query_metrics: is new",
    )


async def test_r67_tools_without_a_record_are_told_by_what_the_model_was_asked() -> None:
    other = ProbeTool()
    other.description = "Another probe."
    bundle = recording("probe-stop")
    assert compare(bundle, (await replay(bundle, tools={other.name: other})).bundle).changed == ("the tools",)


def test_r67_the_tools_of_a_bundle_describe_themselves_as_those_of_its_catalogue(tmp_path: Path) -> None:
    """Else a replay would name tools as changed that are not: nothing the model is told may hang on an address."""
    (tmp_path / "app.log").write_text("2024-05-01 10:00:00 ERROR a\n")
    data = {
        "now": "2024-05-01T10:00:00Z",
        "topic": [
            {"name": "app", "description": "logs", "path": "app.log", "timezone": "Asia/Shanghai"},
            {"name": "loki", "backend": "loki", "url": "http://127.0.0.1:1", "selector": '{a="b"}'},
            {"name": "es", "backend": "elasticsearch", "url": "http://127.0.0.1:1", "index": "logs-*"},
        ],
        "datasource": [{"name": "orders", "dsn_env": "ORDERS_DSN", "tables": {"orders": ["id", "status"]}}],
        "knowledge": [{"name": "runbooks", "description": "how to", "path": "runbooks"}],
    }
    catalog = build_catalog(data, tmp_path, "catalogue")
    real = build_tools(Site(catalog, tmp_path, {"ORDERS_DSN": "mysql://reader@127.0.0.1/orders"}))
    settings = [Entry(each.kind, each.key, each.payload) for each in service.start_archive.start_archive(catalog, real)]
    again = tools_of(Bundle.of("r", [*settings]))
    assert len(real) == 3
    assert service.start_archive.tools_entry(again) == service.start_archive.tools_entry(real)


def test_r67_the_command_names_a_changed_tool_and_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nodes.model_step.prompt", otherwise)
    monkeypatch.setattr(tools.logs.tool, "_description", lambda topics: "Another description.")
    service.replay.catalog._tools.cache_clear()
    file = str(FOLDER / "shop-nothing-en.json")
    status, said = superbiz(["replay", file]), capsys.readouterr().out
    status_json, found = superbiz(["replay", file, "--json"]), json.loads(capsys.readouterr().out)
    service.replay.catalog._tools.cache_clear()
    assert (status, status_json) == (0, 0)
    assert said.splitlines()[:2] == [
        "note: changed since the run: prompt diagnosis.en",
        "note: changed since the run: tool query_logs: its description",
    ]
    assert said.splitlines()[2].startswith("identical: ")
    assert found["changed_since"] == ["prompt diagnosis.en", "tool query_logs: its description"]
