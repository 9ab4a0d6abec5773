"""`superbiz tool`: one tool call as the model would make it, without a model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from service.cli.console import CliError, ExitCode, print_json, run_async
from service.cli.options import CatalogOption, settings_from

if TYPE_CHECKING:
    from pydantic import BaseModel

    from service.settings import Settings
    from tools.contract import CanonicalRecord, InvalidInput
    from tools.evidence_tool import EvidenceTool

CALL_ID = "tool-1"
MAX_REQUEST_CHARS = 20_000


def tool(
    name: Annotated[str, typer.Argument(help="rag, logs, mysql, or the tool's wire name.")],
    request: Annotated[str, typer.Argument(help='The business request as JSON, e.g. \'{"query": "…"}\'.')],
    view: Annotated[
        Literal["model", "control", "canonical"],
        typer.Option("--view", help="What the model sees, what the harness reads, or the whole record."),
    ] = "model",
    at: Annotated[
        str | None, typer.Option("--at", help="Time of the call; default: the catalogue's, else now.")
    ] = None,
    catalog: CatalogOption = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Accepted as everywhere; the answer is JSON either way.")
    ] = True,
) -> int:
    """Check, run and observe one request; prints JSON. Exit status 2 when the request is refused, 1 when the tool fails."""
    business = _parsed(request)
    settings = settings_from(catalog=catalog)
    return run_async(lambda: _tool(settings, name, business, view, at))


def _parsed(request: str) -> dict[str, Any]:
    if len(request) > MAX_REQUEST_CHARS:
        raise CliError(f"JSON: at most {MAX_REQUEST_CHARS} characters are allowed")
    try:
        value = json.loads(request)
    except (ValueError, RecursionError):
        raise CliError('JSON: not valid JSON; must be one JSON object, e.g. \'{"query": "timeout"}\'') from None
    if not isinstance(value, dict):
        raise CliError('JSON: must be one JSON object, e.g. \'{"query": "timeout"}\'')
    return value


async def _tool(settings: Settings, name: str, business: dict[str, Any], view: str, at: str | None) -> int:
    from graph.contract import RequestErrorCode
    from nodes.contract import CallInHand, Rejection
    from nodes.messages import rejection_observation
    from tools.contract import InvalidInput
    from tools.envelope_protocol import check_input

    chosen = _chosen(settings, name)
    try:
        checked = check_input(business, chosen.envelope)
        invalid = checked if isinstance(checked, InvalidInput) else chosen.check(checked)
        if invalid is not None:
            call = CallInHand(tool_call_id=CALL_ID, tool_name=chosen.name)
            rejection = Rejection(error_code=RequestErrorCode.INVALID_TOOL_REQUEST, invalid_input=invalid)
            observation = rejection_observation(rejection, call, settings.language)
            # Nothing precedes this call: there is no evaluation to carry again.
            del observation["previous_observation_applied"]
            print_json(observation)
            return _refused(invalid)
        assert not isinstance(checked, InvalidInput)
        record = await _record(settings, chosen, business, checked, at)
        print_json(_view(chosen, record, view, settings.language))
        return ExitCode.OK if record.agent_result is not None else ExitCode.FAILED
    finally:
        close = getattr(chosen, "close", None)
        if close is not None:
            await close()


def _chosen(settings: Settings, name: str) -> EvidenceTool:
    import os

    from service.home import KNOWLEDGE_FOLDER, prepare_home
    from service.registry import BUILDERS, Site, build_tool, build_tools
    from tools.catalog import load_catalog

    site = Site(load_catalog(settings.catalog), settings.home / KNOWLEDGE_FOLDER, os.environ)
    chosen = build_tool(name, site)
    if chosen is None:
        known = ", ".join([*BUILDERS, *build_tools(site)])
        if name in BUILDERS:
            raise CliError(f"NAME: the catalogue has nothing for the tool {name}; superbiz.toml must name it")
        raise CliError(f"NAME: unknown tool; allowed: {known}")
    prepare_home(settings.home)
    return chosen


def _refused(invalid: InvalidInput) -> int:
    from service.cli.console import complain

    complain(f"{invalid.field}: {invalid.rule}; allowed: {invalid.allowed}")
    return ExitCode.USAGE


async def _record(
    settings: Settings, chosen: EvidenceTool, business: dict[str, Any], checked: BaseModel, at: str | None
) -> CanonicalRecord:
    from nodes.contract import CallInHand, RunSettings
    from nodes.tool_boundary import execute
    from service.store.clock import SystemClock
    from tools.canonical.memory import MemoryCanonicalStore
    from tools.catalog import parse_time

    clock = SystemClock()
    try:
        now = clock.now() if at is None else parse_time(at)
    except ValueError as error:
        raise CliError(f"--at: {error}") from None
    run = RunSettings(
        run_id="tool", started_at=clock.now(), now=now, at_given=at is not None, language=settings.language
    )
    call = CallInHand(tool_call_id=CALL_ID, tool_name=chosen.name, input=business, scope=chosen.scope(checked))
    return await execute(chosen, call, run, MemoryCanonicalStore(clock.now), clock)


def _view(chosen: EvidenceTool, record: CanonicalRecord, view: str, language: str) -> dict[str, Any]:
    from nodes.messages import error_observation
    from tools.contract import ToolErrorCode
    from tools.evidence_tool import ObservationContractViolation

    if view == "canonical":
        return record.model_dump(mode="json")
    code = record.error_code or ToolErrorCode.BACKEND_ERROR
    if record.agent_result is not None:
        try:
            if view == "control":
                return chosen.control(record.agent_result, record.scope).model_dump(mode="json")
            return chosen.observe(record.tool_call_id, record.scope, record.agent_result)
        except ObservationContractViolation:
            code = ToolErrorCode.OBSERVATION_CONTRACT_VIOLATION
    if view == "control":
        return {
            "status": record.status.value,
            "evidence_status": "ERROR",
            "error_code": code.value,
            "scope": record.scope.model_dump(mode="json"),
        }
    return error_observation(record.tool_call_id, code, language)
