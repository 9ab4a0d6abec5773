"""`superbiz runs`, `show` and `trace`: what finished and unfinished Runs left behind."""

from __future__ import annotations

import json as jsonlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.console import CliError, ExitCode, moment, print_json, run_async, say, show_table, table_of
from service.cli.options import JsonOption, settings_from

if TYPE_CHECKING:
    from nodes.ports import RunRecord
    from service.store.journal import SqlJournal
    from service.store.rows import TraceRow
    from service.store.runs import SqlRunStore

LAST = "last"
MAX_QUESTION_CHARS = 60
_RUN_ID = re.compile(r"^[A-Za-z0-9_.:\-]{1,128}$")
RunArgument = Annotated[str, typer.Argument(help="A run id, a unique beginning of one, or `last`.")]


def runs(
    json: JsonOption = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many, newest first (1-1000).")] = 20,
) -> int:
    """List the latest runs."""
    return run_async(lambda: _runs(limit, as_json=json))


def show(
    run: RunArgument,
    evidence: Annotated[
        bool, typer.Option("--evidence", help="Print the lines and rows behind each statement.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Show a run's report."""
    return run_async(lambda: _show(run, with_evidence=evidence, as_json=json))


def trace(run: RunArgument, json: JsonOption = False) -> int:
    """Show a run's trace events and the agent's rounds."""
    return run_async(lambda: _trace(run, as_json=json))


async def _runs(limit: int, *, as_json: bool) -> int:
    async with _stores() as (store, _):
        records = await store.runs(limit)
    if as_json:
        print_json({"runs": [run_json(record) for record in records]})
    elif records:
        rows = [
            (
                record.run_id,
                moment(record.created_at) or "",
                run_json(record)["status"],
                record.release_outcome.value,
                record.stop_reason or "-",
                _cut(record.query),
            )
            for record in records
        ]
        show_table(table_of(("run", "started", "status", "outcome", "stop reason", "question"), rows))
    else:
        say("no runs yet")
    return ExitCode.OK


async def _show(name: str, *, with_evidence: bool, as_json: bool) -> int:
    from service.cli.evidence import evidence_lines
    from service.cli.report import report_lines, scope_text
    from service.cli.texts import texts
    from service.diagnosis import report_of

    async with _stores() as (store, journal):
        record = await find_run(store, name)
        calls = await calls_of(journal, record.run_id)
        context = (await journal.archived(record.run_id, "settings")).get("context", {})
    if as_json:
        body = {**run_json(record), **report_of(record).as_json()}
        if with_evidence:
            body["evidence"] = {key: dict(calls[key]) for key in cited(record) if key in calls}
        print_json(body)
        return ExitCode.OK
    language = context.get("language") or settings_from().language
    offline = context.get("model_name") == "offline"
    for line in report_lines(report_of(record), record.query, calls, language, offline=offline):
        say(line.text, style=line.style)
    if not with_evidence:
        return ExitCode.OK
    say()
    for statement, ids in statements(record):
        say(statement, style="bold")
        for each in ids:
            call = calls.get(each)
            if call is None:
                say(f"  {each}: {texts(language)['no_archive']}")
                continue
            say(f"  [{call['tool_name']} {each}] {scope_text(call['scope']['normalized'])}", style="dim")
            for text in evidence_lines(call["agent_result"]):
                say(f"    {text}")
    return ExitCode.OK


async def _trace(name: str, *, as_json: bool) -> int:
    async with _stores() as (store, journal):
        record = await find_run(store, name)
        events, steps = await journal.trace(record.run_id), await journal.steps(record.run_id)
    if as_json:
        print_json(
            {
                "run_id": record.run_id,
                "events": [
                    {"seq": row.seq, "at": moment(row.at), "type": row.type.value, "fields": dict(row.fields)}
                    for row in events
                ],
                "steps": [
                    {
                        "round": step.round_,
                        "kind": step.kind,
                        "tool_call_ids": list(step.tool_call_ids),
                        "token_count": step.token_count,
                    }
                    for step in steps
                ],
            }
        )
        return ExitCode.OK
    for text in trace_lines(events):
        say(text)
    return ExitCode.OK


def trace_lines(events: Iterable[TraceRow]) -> Iterator[str]:
    """Write trace events, one a line."""
    for row in events:
        fields = " ".join(
            f"{name}={value if isinstance(value, str) else jsonlib.dumps(value, ensure_ascii=False)}"
            for name, value in row.fields.items()
        )
        yield f"{row.seq:4d} {moment(row.at)} {row.type.value:<26} {fields}".rstrip()


async def find_run(store: SqlRunStore, name: str) -> RunRecord:
    """Find a Run by id, unique beginning, or `last`. Raises CliError."""
    if name == LAST:
        latest = await store.runs(1)
        if not latest:
            raise CliError("RUN: there are no runs yet")
        return latest[0]
    if not _RUN_ID.match(name):
        raise CliError("RUN: must be a run id, a unique beginning of one, or `last`")
    found = await store.beginning_with(name, 4)
    exact = [record for record in found if record.run_id == name]
    if len(found) == 1 or exact:
        return (exact or list(found))[0]
    if not found:
        raise CliError(f"RUN: no run begins with {name[:40]}; `superbiz runs` lists them")
    raise CliError(f"RUN: {name[:40]} is ambiguous: {', '.join(record.run_id for record in found[:3])}…")


async def calls_of(journal: SqlJournal, run_id: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the Run's archived calls by Tool Call ID; empty when they have expired."""
    return await journal.archived(run_id, "agent_result")


def statements(record: RunRecord) -> list[tuple[str, list[str]]]:
    """List what a Run states, each with the calls it cites; a chat answer cites none. Pure."""
    if record.published_result:
        found = [
            (each["statement"], list(each["tool_call_ids"])) for each in record.published_result.get("findings", ())
        ]
        said = [(each["text"], [each["tool_call_id"]]) for each in record.published_result.get("items", ())]
        return found + said
    facts = (record.fallback or {}).get("observed_facts") or []
    return [(item["statement"], [item["tool_call_id"]]) for item in facts]


def cited(record: RunRecord) -> list[str]:
    """List the calls a Run cites, each once, in order. Pure."""
    return list(dict.fromkeys(each for _, ids in statements(record) for each in ids))


def run_json(record: RunRecord) -> dict[str, Any]:
    """A Run as JSON data, without its result."""
    from service.store.status import public_status

    return {
        "run_id": record.run_id,
        "query": record.query,
        "session_id": record.session_id,
        "status": public_status(record.internal_state, record.release_outcome).value,
        "internal_state": record.internal_state.value,
        "release_outcome": record.release_outcome.value,
        "stop_reason": record.stop_reason,
        "error_code": record.error_code,
        "forked_from": record.forked_from,
        "created_at": moment(record.created_at),
        "ended_at": moment(record.ended_at),
        "total_token_count": record.total_token_count,
    }


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_QUESTION_CHARS else line[: MAX_QUESTION_CHARS - 1] + "…"


def _stores() -> AbstractAsyncContextManager[tuple[SqlRunStore, SqlJournal]]:
    from service.home import open_stores

    return open_stores(settings_from())
