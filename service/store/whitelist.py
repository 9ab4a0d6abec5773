"""What a trace event may hold (R103-R108, R113): field names and forms per event. Pure.

Values are closed codes, counts, flags, hashes and safe ids; the one free text is the bounded scope summary (R108).
There is no place for prompts, thoughts, raw responses, parameters or a remaining budget (R104).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from re import compile as pattern
from typing import Any, Final

from graph.contract import (
    BudgetDimension,
    CollectionState,
    Component,
    DiagnosisStopReason,
    Intent,
    RequestErrorCode,
    RunState,
    TraceEvent,
    ViolationType,
)
from graph.contract import TraceEventType as Event
from nodes.contract import EndCause
from release.contract import AgentOutputFailure, LimitationCode, ReleaseOutcome, ViolationCode
from tools.contract import TOOL_CALL_ID_PATTERN, EvidenceStatus, InformationGain, RelevanceLevel, ToolErrorCode

MAX_VALUE_CHARS = 256
"""Characters of one text value (R108)."""
MAX_LIST_ITEMS = 32
MAX_COUNT = 2**53 - 1
INVALID = "invalid"
"""Stands in place of a tool call id or tool name that is not safe to show."""

_REFUSED: Final = object()
_SAFE_ID = pattern(TOOL_CALL_ID_PATTERN.replace("$", r"\Z"))
_SAFE_NAME = pattern(r"[A-Za-z][A-Za-z0-9_.\-]{0,63}\Z")
_CODE = pattern(r"[A-Za-z][A-Za-z0-9_.:\-]{0,63}\Z")
_MODEL = pattern(r"[A-Za-z0-9][A-Za-z0-9_.:/@+\-]{0,127}\Z")
_HASH = pattern(r"[0-9a-f]{64}\Z")


class TraceFieldRefused(Exception):
    """An event carries a field it may not have; names event, field and what is allowed, never the value."""

    def __init__(self, event: str, name: str, allowed: str) -> None:
        super().__init__(f"trace event {event}: field {name[:64]}: {allowed}")
        self.event = event
        self.name = name[:64]
        self.allowed = allowed


@dataclass(frozen=True, slots=True)
class Form:
    """What a value must look like: `take` returns the value to store, or the mark of refusal."""

    allowed: str
    take: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Admitted:
    """An event as the trace stores it."""

    type: Event
    fields: Mapping[str, Any]
    fields_refused: int


def _text(allowed: str, matches: Callable[[str], object], otherwise: Any = _REFUSED) -> Form:
    def take(value: Any) -> Any:
        if not isinstance(value, str):
            return _REFUSED
        return str(value) if matches(value) else otherwise

    return Form(allowed, take)


def _one_of(*enums: type[StrEnum]) -> Form:
    values = frozenset(member.value for enum in enums for member in enum)
    return _text(f"allowed are the values of {' and '.join(enum.__name__ for enum in enums)}", values.__contains__)


def _each(item: Form) -> Form:
    def take(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) > MAX_LIST_ITEMS:
            return _REFUSED
        taken = [item.take(part) for part in value]
        return _REFUSED if any(part is _REFUSED for part in taken) else taken

    return Form(f"a list of at most {MAX_LIST_ITEMS}; {item.allowed}", take)


def _take_count(value: Any) -> Any:
    return value if type(value) is int and 0 <= value <= MAX_COUNT else _REFUSED


COUNT = Form("a whole number from 0", _take_count)
FLAG = Form("true or false", lambda value: value if type(value) is bool else _REFUSED)
SUMMARY = _text(f"text of at most {MAX_VALUE_CHARS} characters", lambda value: len(value) <= MAX_VALUE_CHARS)
CODE = _text("a code of at most 64 letters, digits, '_', '.', ':' or '-'", _CODE.match)
HASH = _text("64 hexadecimal digits", _HASH.match)
MODEL = _text("a model name of at most 128 safe characters", _MODEL.match)
RUN_ID = _text("an id of at most 128 safe characters", _SAFE_ID.match)
CALL_ID = _text("a tool call id", _SAFE_ID.match, INVALID)
TOOL_NAME = _text("a tool name", _SAFE_NAME.match, INVALID)
PRODUCER = _text("HARNESS or MODEL", frozenset({"HARNESS", "MODEL"}).__contains__)
ERROR_CODE = _one_of(RequestErrorCode, ToolErrorCode)
STOP_REASON = _one_of(DiagnosisStopReason)
COLLECTION = _one_of(CollectionState)

_CALL = {"tool_call_id": CALL_ID, "tool_name": TOOL_NAME}
_TOKENS = {"input_tokens": COUNT, "output_tokens": COUNT, "total_tokens": COUNT}

WHITELIST: Final[Mapping[Event, Mapping[str, Form]]] = {
    Event.RUN_STARTED: {
        "forked_from": RUN_ID,
        "model": MODEL,
        "no_gain_threshold": COUNT,
        "protocol_violation_threshold": COUNT,
    },
    Event.INTENT_ROUTED: {"intent": _one_of(Intent), "attempt": COUNT, "error_code": CODE},
    Event.MODEL_CALL: {
        "component": _one_of(Component),
        "component_round": COUNT,
        "usage_available": FLAG,
        **_TOKENS,
    },
    Event.TOOL_CALL_COMPLETED: {
        **_CALL,
        "scope_summary": SUMMARY,
        "scope_hash": HASH,
        "evidence_status": _one_of(EvidenceStatus),
        "returned_count": COUNT,
        "truncated": FLAG,
        "relevance_level": _one_of(RelevanceLevel),
        "error_code": _one_of(ToolErrorCode),
    },
    Event.INFORMATION_GAIN_APPLIED: {
        "tool_call_id": CALL_ID,
        "producer": PRODUCER,
        "information_gain": _one_of(InformationGain),
        "before": COUNT,
        "after": COUNT,
        "collection_state": COLLECTION,
    },
    Event.COLLECTION_SATURATED: {"stop_reason": STOP_REASON, "collection_state": COLLECTION},
    Event.COLLECTION_STOPPED: {
        "stop_reason": STOP_REASON,
        "dimension": _one_of(BudgetDimension),
        "cause": _one_of(EndCause),
        "fault": CODE,
    },
    Event.TOOL_REQUEST_REJECTED: {
        **_CALL,
        "error_code": ERROR_CODE,
        "violation_type": _one_of(ViolationType),
        "repair_prompt_delivered": FLAG,
        "consecutive_protocol_violations": COUNT,
        "stop_reason": STOP_REASON,
        "rule": CODE,
    },
    Event.AGENT_OUTPUT_REJECTED: {
        "failure": _one_of(AgentOutputFailure),
        "output_bytes": COUNT,
        "has_publishable_progress": FLAG,
    },
    Event.PARALLEL_CALLS_DROPPED: {"count": COUNT},
    Event.PROGRESS_PROJECTED: {
        "checked": COUNT,
        "observed_facts": COUNT,
        "limitations": _each(_one_of(LimitationCode)),
    },
    Event.EVIDENCE_GUARD: {"violations": _each(_one_of(ViolationCode)), "passed": FLAG},
    Event.EVIDENCE_REPAIR: {"accepted": FLAG, "reason": CODE},
    Event.SEMANTIC_GUARD: {"verdict": CODE, "attempt": COUNT, "lexical": FLAG},
    Event.RELEASE_DECIDED: {"release_outcome": _one_of(ReleaseOutcome), "reason": CODE},
    Event.RUN_CANCEL_REQUESTED: {},
    Event.LATE_RESULT_DROPPED: {"stage": CODE},
    Event.RUN_ENDED: {
        "internal_state": _one_of(RunState),
        "budget_total_tokens": COUNT,
        "ledger_total_tokens": COUNT,
        "model_calls": COUNT,
        "tool_calls": COUNT,
        "usage_unavailable": COUNT,
        "tokens_reconciled": FLAG,
        "stop_reason": STOP_REASON,
    },
}


def admit(event: TraceEvent, *, strict: bool = False) -> Admitted:
    """Keep of an event what its whitelist allows.

    A field that is None is absent. In production a refused field is left out and counted, so that no event is lost and
    nothing leaks; with `strict` (tests) the first one raises TraceFieldRefused.
    """
    forms = WHITELIST[event.type]
    kept: dict[str, Any] = {}
    refused = 0
    for name, value in event.fields.items():
        if value is None:
            continue
        form = forms.get(name)
        allowed = form.allowed if form else f"allowed fields are {', '.join(forms) or 'none'}"
        taken = form.take(value) if form else _REFUSED
        if name in _TOKENS and event.fields.get("usage_available") is not True:
            taken, allowed = _REFUSED, "tokens only where usage_available is true (R113, R116)"
        if taken is not _REFUSED:
            kept[name] = taken
        elif strict:
            raise TraceFieldRefused(event.type.value, name, allowed)
        else:
            refused += 1
    return Admitted(event.type, kept, refused)


def safe_ids(ids: Iterable[str]) -> tuple[str, ...]:
    """Return tool call ids as an agent step may hold them: unsafe ones replaced, at most 32 kept."""
    return tuple(CALL_ID.take(item) for item in islice(ids, MAX_LIST_ITEMS))


def safe_code(code: str) -> str:
    """Return a code as an agent step may hold it; anything else becomes "invalid"."""
    return code if _CODE.match(code) else INVALID


def with_one_end(events: Sequence[Admitted], told: bool) -> list[Admitted]:
    """Leave out every end but a Run's first: it ends once, whoever tells it (R8). `told` says that one is stored. Pure."""
    kept: list[Admitted] = []
    for each in events:
        if each.type is Event.RUN_ENDED:
            if told:
                continue
            told = True
        kept.append(each)
    return kept
