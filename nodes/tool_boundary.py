"""The tool boundary: PROJECTING, run within the tool's own time, READY or ERROR (R48, R69, R70)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

from nodes.contract import CallInHand, RunSettings
from nodes.ports import Clock
from tools.canonical.store import CanonicalRecordTooLarge, CanonicalStore, CanonicalStoreUnavailable
from tools.contract import MAX_OBSERVATION_BYTES, CanonicalRecord, EvidenceStatus, InvocationStatus, ToolErrorCode
from tools.envelope_protocol import check_input
from tools.evidence_tool import CallContext, EvidenceTool, ObservationContractViolation, ToolFailure, ToolOutcome

logger = logging.getLogger("superbiz.tools")


async def execute(
    tool: EvidenceTool, call: CallInHand, settings: RunSettings, store: CanonicalStore, clock: Clock
) -> CanonicalRecord:
    """Execute one call and return its finished record. Raises CanonicalStoreUnavailable, CanonicalRecordTooLarge."""
    assert call.scope is not None
    assert call.input is not None
    begun = await store.begin(
        CanonicalRecord(
            run_id=settings.run_id,
            tool_call_id=call.tool_call_id,
            tool_name=tool.name,
            status=InvocationStatus.PROJECTING,
            scope=call.scope,
            request=call.input,
            created_at=clock.now(),
        )
    )
    if begun.status is not InvocationStatus.PROJECTING:
        return begun
    finished = await _finished(tool, begun, settings, clock)
    for record in _smaller_and_smaller(finished):
        try:
            stored = await store.finish(record)
        except CanonicalRecordTooLarge:
            continue
        if not stored:
            # The record expired or was replaced while the tool ran: there is no truth to cite.
            raise CanonicalStoreUnavailable
        return record
    raise CanonicalRecordTooLarge


def _smaller_and_smaller(finished: CanonicalRecord) -> Iterator[CanonicalRecord]:
    # What may be cited is the bounded result; the raw answer is the part that may not fit. Without room for either, the
    # call is an error and the Run goes on.
    yield finished
    yield finished.model_copy(update={"raw_response": None})
    error = {"raw_response": None, "agent_result": None, **_error(ToolErrorCode.RESULT_TOO_LARGE)}
    yield finished.model_copy(update=error)


async def _finished(tool: EvidenceTool, begun: CanonicalRecord, settings: RunSettings, clock: Clock) -> CanonicalRecord:
    changes: dict[str, Any]
    try:
        outcome = await _run(tool, begun, settings)
        changes = {
            "status": InvocationStatus.READY,
            "evidence_status": outcome.evidence_status,
            "raw_response": outcome.raw_response,
            "agent_result": _in_order(outcome.agent_result),
        }
    except ToolFailure as failure:
        changes = _error(failure.code)
    except ObservationContractViolation:
        changes = _error(ToolErrorCode.OBSERVATION_CONTRACT_VIOLATION)
    except TimeoutError:
        changes = _error(ToolErrorCode.TOOL_TIMEOUT)
    except Exception as error:
        # A backend's bug is a failed tool, not a lost run; only the type is logged, texts may hold secrets.
        logger.error("tool %s failed unexpectedly: %s", tool.name, type(error).__name__)
        changes = _error(ToolErrorCode.BACKEND_ERROR)
    return CanonicalRecord.model_validate({**begun.model_dump(), **changes, "completed_at": clock.now()})


async def _run(tool: EvidenceTool, begun: CanonicalRecord, settings: RunSettings) -> ToolOutcome:
    request = check_input(begun.request, tool.envelope)
    context = CallContext(now=settings.now, at_given=settings.at_given, deadline_seconds=tool.timeout_seconds)
    async with asyncio.timeout(tool.timeout_seconds + 1):
        return await tool.run(request, context)


def _in_order(value: Any) -> Any:
    """Sort the keys of a result: what the model is shown of it must not depend on how a store keeps them (R67)."""
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value)}
    return [_in_order(each) for each in value] if isinstance(value, list) else value


def _error(code: ToolErrorCode) -> dict[str, Any]:
    return {"status": InvocationStatus.ERROR, "evidence_status": EvidenceStatus.ERROR, "error_code": code}


def observe(tool: EvidenceTool, tool_call_id: str, record: CanonicalRecord, result: dict[str, Any]) -> dict[str, Any]:
    """Project what the model may see of a result, at most 8 KiB (R51, R55). Raises ObservationContractViolation."""
    observation = tool.observe(tool_call_id, record.scope, result)
    try:
        size = observation_size(observation)
    except (ValueError, TypeError):  # no JSON, or text that no provider and no checkpoint takes
        raise ObservationContractViolation from None
    if size > MAX_OBSERVATION_BYTES:
        raise ObservationContractViolation
    return observation


def observation_size(observation: dict[str, Any]) -> int:
    """Return the UTF-8 bytes of an observation. Raises ValueError, TypeError where it is no JSON data."""
    return len(json.dumps(observation, ensure_ascii=False, separators=(",", ":")).encode())


def withheld(record: CanonicalRecord) -> CanonicalRecord:
    """Return the record of a result that breaks its contract: an error, without the result (R51)."""
    return record.model_copy(update={**_error(ToolErrorCode.OBSERVATION_CONTRACT_VIOLATION), "agent_result": None})
