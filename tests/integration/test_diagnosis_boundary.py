"""The executor boundary over the real embedded stores: every way a Run can end is ended, once, and says so."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from graph.contract import RunState
from nodes.ports import ModelReply, ModelRequest, RunRecord
from nodes.start_run import InvalidQuestion
from service.app import App, open_app
from service.contract import StepView, StorageError
from service.diagnosis import diagnose
from service.models.recorded import read_recorded
from service.settings import Settings, SettingsError
from tests.scenes import conclusion, log_call, write_answers, write_scene
from tools.catalog import load_catalog

LIVE_MODEL = {"model": "openai:test-model"}
SCRIPT = [log_call("c1", "timeout"), log_call("c2", "nothing-like-this", ("c1", "GAINED")), conclusion("c1")]


def settings_of(folder: Path, script: list[dict[str, Any]] | None = None, **options: Any) -> Settings:
    model = write_answers(folder / "answers.json", SCRIPT if script is None else script)
    return Settings(catalog=write_scene(folder), home=folder / "home", model=model, language="en", **options)


@asynccontextmanager
async def opened(settings: Settings, **changes: Any) -> AsyncIterator[App]:
    """Open an app with some resources replaced."""
    async with open_app(settings, env={}) as app:
        resources = replace(app.resources, **changes)
        yield replace(app, resources=resources)


@dataclass
class BrokenAfter:
    """Serves as factory and client: the recorded answers, until one round raises what no node expects."""

    path: Path
    rounds: int
    name: str = "broken"
    semantic_guard_is_lexical: bool = False

    def client(self, name: str | None) -> BrokenAfter:
        return self

    async def complete(self, request: ModelRequest) -> ModelReply:
        if request.round_ > self.rounds:
            raise RuntimeError("MARKER-EXCEPTION-TEXT")
        return await read_recorded(self.path).complete(request)


class HangingRuns:
    """The run store whose `get` hangs from the n-th time on, for a while: no node's own timeout covers it."""

    def __init__(self, runs: Any, hang_at: int, hangs: int = 1) -> None:
        self._runs = runs
        self._left = hang_at
        self._hangs = hangs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)

    async def get(self, run_id: str) -> RunRecord | None:
        self._left -= 1
        if self._left <= 0 and self._hangs > 0:
            self._hangs -= 1
            await asyncio.sleep(3600)
        return await self._runs.get(run_id)  # type: ignore[no-any-return]


async def ended_events(app: App, run_id: str) -> list[dict[str, Any]]:
    return [dict(row.fields) for row in await app.journal.trace(run_id) if row.type.value == "RUN_ENDED"]


async def test_a_diagnosis_streams_its_steps_and_reports_its_end(tmp_path: Path) -> None:
    steps: list[StepView] = []
    async with open_app(settings_of(tmp_path), env={}) as app:
        report = await diagnose(app, "  why do orders fail?  ", session_id="s", on_step=steps.append)
        assert report.run_id is not None
        record = await app.runs.get(report.run_id)
        archive = {(entry.kind, entry.key): entry.payload for entry in await app.journal.archive(report.run_id)}
    assert (report.status, report.release_outcome, report.fallback) == ("SUCCESS", "CONCLUSION", None)
    assert report.published_result is not None
    assert report.published_result["conclusion"] == "order-service cannot reach redis-01."
    assert set(report.as_json()) == {
        "run_id",
        "status",
        "release_outcome",
        "published_result",
        "fallback",
        "operator",
    }
    assert set(report.operator) == {"internal_state", "stop_reason", "usage"}
    assert report.operator["usage"]["total_tokens"] == 110 + 110 + 250 + 55
    assert [step.node for step in steps[:5]] == [
        "start_run",
        "model_step",
        "validate_envelope",
        "dedup_scope",
        "execute_tool",
    ]
    assert [step.step_no for step in steps] == list(range(1, len(steps) + 1))
    assert steps[-1].node == "release"
    assert all(step.run_id == report.run_id and step.step for step in steps)
    assert record is not None
    assert (record.query, record.session_id) == ("why do orders fail?", "s")
    # R67: what a later reader needs besides what the nodes archive.
    assert set(archive[("settings", "prompts")]) >= {"diagnosis.zh", "diagnosis.en"}
    assert set(archive[("settings", "tools")]) == {"search_runbooks", "query_logs", "query_mysql"}
    catalog = archive[("settings", "catalog")]
    assert [topic["name"] for topic in catalog["topics"]] == ["app"]
    assert "app.log" not in str(catalog)
    assert {kind for kind, _ in archive} == {
        "question",
        "settings",
        "model_answer",
        "agent_result",
        "clock",
        "id",
        "result",
        "step",
    }


async def test_embedded_files_belong_to_their_owner(tmp_path: Path) -> None:
    os.umask(0o022)
    settings = settings_of(tmp_path)
    async with open_app(settings, env={}) as app:
        await diagnose(app, "why?")
    private = [settings.home, *settings.home.iterdir()]
    assert {path.name for path in private} >= {"home", "superbiz.db", "checkpoints.db", "knowledge"}
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in private)


@pytest.mark.parametrize("question", ["", " \n ", "x" * 100_000, "a\ud800b"])
async def test_a_bad_question_stores_nothing(tmp_path: Path, question: str) -> None:
    async with open_app(settings_of(tmp_path), env={}) as app:
        with pytest.raises(InvalidQuestion, match=r"^query: .{5,80}$"):
            await diagnose(app, question)
        assert await app.runs.runs() == ()


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"no_gain_threshold": 0}, "no_gain_threshold"),
        ({"no_gain_threshold": 51}, "no_gain_threshold"),
        ({"protocol_violation_threshold": 1}, "protocol_violation_threshold"),
        ({"at": "yesterday"}, "at"),
        ({"language": "fr"}, "language"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
async def test_bad_overrides_name_their_field(tmp_path: Path, overrides: dict[str, Any], field: str) -> None:
    async with open_app(settings_of(tmp_path), env={}) as app:
        with pytest.raises(SettingsError, match=f"^{field}: "):
            await diagnose(
                app, "why?", overrides={k: v for k, v in overrides.items() if k != "at"}, at=overrides.get("at")
            )
        with pytest.raises(ValueError, match="allowed: offline"):
            await diagnose(app, "why?", overrides={"model": "parrot"})
        assert await app.runs.runs() == ()


async def test_settings_reach_the_run(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, no_gain_threshold=1, budget_tool_calls=1)
    async with open_app(settings, env={}) as app:
        report = await diagnose(app, "why?")
        assert report.operator["stop_reason"] == "BUDGET_LIMIT_REACHED"
        assert report.operator["internal_state"] == "BUDGET_EXHAUSTED"
        assert (report.status, report.release_outcome) == ("SUCCESS", "FALLBACK")


async def test_an_unexpected_fault_before_any_result_ends_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(tmp_path)
    async with opened(settings, models=BrokenAfter(tmp_path / "answers.json", 0)) as app:
        report = await diagnose(app, "why?")
        assert report.run_id is not None
        assert (report.status, report.release_outcome) == ("FAILED", "NONE")
        assert report.operator["error_code"] == "INTERNAL_ERROR"
        record = await app.runs.get(report.run_id)
        assert record is not None
        assert (record.internal_state, record.error_code) == (RunState.FAILED, "INTERNAL_ERROR")
        assert record.ended_at is not None
        assert [end["internal_state"] for end in await ended_events(app, report.run_id)] == ["FAILED"]
    assert "RuntimeError" in caplog.text
    assert "MARKER" not in caplog.text
    assert "MARKER" not in str(report)


async def test_r60_an_unexpected_fault_after_a_verified_fact_publishes_it(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    async with opened(settings, models=BrokenAfter(tmp_path / "answers.json", 1)) as app:
        report = await diagnose(app, "why?")
        assert report.run_id is not None
        assert report.release_outcome == "FALLBACK"
        assert report.operator["stop_reason"] is None
        assert report.fallback is not None
        assert report.fallback["reason"] == "INSUFFICIENT_EVIDENCE"
        assert "FAULT" in report.fallback["limitations"]["notes"]
        assert "connection timeout to redis-01" in report.fallback["observed_facts"][0]["statement"]
        assert len(await ended_events(app, report.run_id)) == 1


SHORT = {"run_timeout_seconds": 0.8, "budget_wall_seconds": 0.7, "reserve_seconds": 0.1}


async def test_r60_a_hanging_run_is_timed_out_and_publishes_what_it_had(tmp_path: Path) -> None:
    async with open_app(settings_of(tmp_path, **SHORT), env={}) as plain:
        # Entries and checks of the run: the hang comes after the first call was projected.
        runs = HangingRuns(plain.resources.runs, hang_at=9)
        resources = replace(plain.resources, runs=runs)
        app = replace(plain, resources=resources)
        report = await diagnose(app, "why?", grace_seconds=0.4)
        assert report.run_id is not None
        assert (report.status, report.release_outcome) == ("SUCCESS", "FALLBACK")
        decided = [dict(row.fields) for row in await app.journal.trace(report.run_id) if row.type == "RELEASE_DECIDED"]
        assert decided == [{"release_outcome": "FALLBACK", "reason": "TIMED_OUT"}]
        assert report.fallback is not None
        assert report.fallback["observed_facts"]
        assert len(await ended_events(app, report.run_id)) == 1


async def test_a_run_that_hangs_at_its_release_too_is_still_ended(tmp_path: Path) -> None:
    # Long enough for a slow machine to come to the ninth look at the Run.
    limits = SHORT | {"run_timeout_seconds": 2.5, "budget_wall_seconds": 2.4}
    async with open_app(settings_of(tmp_path, **limits), env={}) as plain:
        runs = HangingRuns(plain.resources.runs, hang_at=9, hangs=99)
        resources = replace(plain.resources, runs=runs)
        app = replace(plain, resources=resources)
        report = await diagnose(app, "why?", grace_seconds=0.4)
        assert report.run_id is not None
        assert (report.status, report.release_outcome) == ("FAILED", "NONE")
        assert report.operator["internal_state"] == "TIMED_OUT"
        assert report.operator["error_code"] == "RUN_TIMED_OUT"
        (end,) = await ended_events(app, report.run_id)
        assert (end["internal_state"], end["budget_total_tokens"], end["tool_calls"]) == ("TIMED_OUT", 110, 1)


async def test_r94_a_cancel_marks_the_run_and_goes_on(tmp_path: Path) -> None:
    script = [log_call("c1", "timeout"), {"text": "too late", "seconds": 60}]
    async with open_app(settings_of(tmp_path, script), env={}) as app:
        seen = asyncio.Event()

        def watch(view: StepView) -> None:
            if view.node == "project_observation":
                seen.set()

        task = asyncio.create_task(diagnose(app, "why?", on_step=watch))
        await asyncio.wait_for(seen.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (record,) = await app.runs.runs()
        assert (record.internal_state, record.error_code) == (RunState.CANCELLED, "CANCELLED")
        assert record.fallback is None
        assert [end["internal_state"] for end in await ended_events(app, record.run_id)] == ["CANCELLED"]


async def test_a_watcher_that_fails_does_not_end_the_run(tmp_path: Path) -> None:
    def watch(view: StepView) -> None:
        raise BrokenPipeError

    async with open_app(settings_of(tmp_path), env={}) as app:
        report = await diagnose(app, "why?", on_step=watch)
    assert report.release_outcome == "CONCLUSION"


async def test_r127_live_mode_refuses_to_start_without_its_secrets(tmp_path: Path) -> None:
    settings = Settings(catalog=write_scene(tmp_path), home=tmp_path / "home", **LIVE_MODEL)
    with pytest.raises(SettingsError, match="SUPERBIZ_API_KEY"):
        async with open_app(settings, env={}):
            pass
    assert not (tmp_path / "home").exists()
    async with open_app(settings, env={"OPENAI_API_KEY": "k"}) as app:
        assert app.resources.models.client(None).name == "openai:test-model"


async def test_a_home_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    settings = Settings(home=tmp_path / "file" / "home")
    with pytest.raises(StorageError, match=r"^SUPERBIZ_HOME: "):
        async with open_app(settings, catalog=load_catalog(write_scene(tmp_path)), env={}):
            pass


async def test_r119_a_cancel_that_a_layer_below_swallows_is_repeated(tmp_path: Path) -> None:
    swallowed: list[bool] = []

    async def deaf(model: Any, request: Any) -> Any:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            swallowed.append(True)
        await asyncio.sleep(60)

    script = [log_call("c1", "timeout"), {"text": "never"}]
    async with open_app(settings_of(tmp_path, script), env={}) as app:
        client = app.resources.models.client(None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(client), "complete", deaf)
            patch.setattr("service.execution.CANCEL_AGAIN_SECONDS", 0.2)
            task = asyncio.create_task(diagnose(app, "why?"))
            await asyncio.sleep(0.5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(task), 10)
        assert swallowed
        (record,) = await app.runs.runs()
        assert record.internal_state is RunState.CANCELLED
