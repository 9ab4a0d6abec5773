"""Model calls, tokens, tool calls and citations of one Run: the same in every ledger (R50, R65, R74, R89, R109-R116)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.e2e.comparing import differ
from tests.e2e.sources import Sources

_QUOTED = re.compile(r"`([^`]+)`")
_PART = re.compile(r"[^\s=,;|()\[\]\"']+")


def _ledger(s: Sources) -> dict[str, dict[str, int]]:
    accounts: dict[str, dict[str, int]] = s.chat["ledger"]["accounts"]
    return accounts


def model_calls(s: Sources) -> Iterator[str]:
    """Every attempt is counted once, by component and round, in trace, ledger, budget and archive (R109-R113)."""
    calls, accounts = s.traced("MODEL_CALL"), _ledger(s)
    rounds = Counter(call["component"] for call in calls)
    yield from differ(
        "model calls by component",
        trace=dict(rounds),
        ledger={name: account["rounds"] for name, account in accounts.items()},
        diagnosis_run=s.run["usage"]["components"],
    )
    yield from differ(
        "model calls",
        trace=len(calls),
        budget=s.chat["budget"]["model_calls"],
        diagnosis_run=s.run["usage"]["model_calls"],
        RUN_ENDED=s.traced("RUN_ENDED")[0]["model_calls"],
    )
    names = [f"{call['component']}/{call['component_round']}" for call in calls]
    expected = [f"{name}/{number}" for name, last in rounds.items() for number in range(1, last + 1)]
    yield from differ("rounds", trace=sorted(names), archive=sorted(s.archive["model_answer"]), rule=sorted(expected))


def tokens(s: Sources) -> Iterator[str]:
    """One total everywhere; what a provider did not tell is a gap, never zero (R112-R116)."""
    calls, accounts, usage, ended = s.traced("MODEL_CALL"), _ledger(s), s.run["usage"], s.traced("RUN_ENDED")[0]
    known = [call for call in calls if call["usage_available"]]
    yield from differ(
        "tokens",
        trace=sum(call["total_tokens"] for call in known),
        ledger=sum(account["input_tokens"] + account["output_tokens"] for account in accounts.values()),
        budget=s.chat["budget"]["tokens"],
        diagnosis_run=s.run["total_token_count"],
        usage=usage["total_tokens"],
        usage_ledger=usage["ledger_total_tokens"],
        RUN_ENDED=ended["budget_total_tokens"],
        RUN_ENDED_ledger=ended["ledger_total_tokens"],
    )
    for name in sorted({call["component"] for call in calls} | set(accounts)):
        own, account = [call for call in known if call["component"] == name], accounts.get(name, {})
        for part in ("input_tokens", "output_tokens"):
            yield from differ(f"{part} of {name}", trace=sum(call[part] for call in own), ledger=account.get(part))
    for call in calls:
        told = {name for name in ("input_tokens", "output_tokens", "total_tokens") if name in call}
        yield from differ("token fields", trace=len(told), rule=3 if call["usage_available"] else 0)
    gaps = len(calls) - len(known)
    yield from differ(
        "usage unavailable",
        trace=gaps,
        ledger=sum(account["usage_unavailable"] for account in accounts.values()),
        usage=usage["usage_unavailable"],
        RUN_ENDED=ended["usage_unavailable"],
    )
    reconciled = gaps == 0 and ended["budget_total_tokens"] == ended["ledger_total_tokens"]
    yield from differ(
        "tokens reconciled",
        RUN_ENDED=ended["tokens_reconciled"],
        diagnosis_run=usage["tokens_reconciled"],
        rule=reconciled,
    )


def agent_steps(s: Sources) -> Iterator[str]:
    """The Diagnosis Agent's rounds, and nobody else's, are agent steps with its tokens (R114, R116)."""
    calls = {call["component_round"]: call for call in s.traced("MODEL_CALL") if call["component"] == "DIAGNOSIS_AGENT"}
    yield from differ(
        "agent step positions", rows=[row["position"] for row in s.steps], rule=list(range(1, len(s.steps) + 1))
    )
    rounds = [row["round"] for row in s.steps]
    yield from differ("agent step rounds", rows=rounds, rule=sorted(set(rounds)))
    for row in s.steps:
        call = calls.get(row["round"], {})
        told = call.get("total_tokens") if row["kind"] != "failed" else None
        yield from differ(f"token count of agent step {row['round']}", agent_step=row["token_count"], trace=told)
    failed = {number for number in calls if s.archive["model_answer"][f"DIAGNOSIS_AGENT/{number}"]["failure"]}
    late = any(fields["stage"] == "model" for fields in s.traced("LATE_RESULT_DROPPED"))
    answered = [number for number in calls if number not in failed]
    told = [row["round"] for row in s.steps if row["kind"] != "failed"]
    yield from differ("agent step count", rows=told, trace=answered[:-1] if late else answered)
    known = [call["total_tokens"] for number, call in calls.items() if number in told and call["usage_available"]]
    yield from differ(
        "tokens of agent steps", agent_step=sum(row["token_count"] or 0 for row in s.steps), trace=sum(known)
    )


def tool_calls(s: Sources) -> Iterator[str]:
    """A call that ran is a record, an event, an index entry, an archived result and a line of the process (R50, R65)."""
    ran = [fields["tool_call_id"] for fields in s.traced("TOOL_CALL_COMPLETED")]
    settled = {name for name, record in s.records.items() if record.status in ("READY", "ERROR")}
    keys = sorted(f"harness:canonical:{s.run_id}:{name}" for name in ran)
    yield from differ("canonical keys", store=sorted(s.record_keys), trace=keys)
    indexed = [item["tool_call_id"] for item in s.diagnosis["tracker_index"]] if s.diagnosis else ran
    yield from differ(
        "tool calls",
        trace=sorted(ran),
        canonical=sorted(settled),
        archive=sorted(s.archive.get("agent_result", {})),
        index=sorted(indexed),
    )
    yield from differ(
        "tool call count",
        trace=len(ran),
        budget=s.chat["budget"]["tool_calls"],
        diagnosis_run=s.run["usage"]["tool_calls"],
        RUN_ENDED=s.traced("RUN_ENDED")[0]["tool_calls"],
    )
    refused = [fields["tool_call_id"] for fields in s.traced("TOOL_REQUEST_REJECTED")]
    asked = [each for row in s.steps for each in row["tool_call_ids"]]
    if s.diagnosis:
        yield from differ("asked calls", agent_step=sorted(asked), trace=sorted({*ran, *refused}))
    yield from _records(s)
    yield from _process(s, ran)


def _records(s: Sources) -> Iterator[str]:
    for fields in s.traced("TOOL_CALL_COMPLETED"):
        name = fields["tool_call_id"]
        record, archived = s.records.get(name), s.archive.get("agent_result", {}).get(name)
        if record is None or archived is None:
            continue  # told by the comparison of ids
        yield from differ(f"run of {name}", record=record.run_id, archive=archived["run_id"], run=s.run_id)
        yield from differ(
            f"tool of {name}", record=record.tool_name, trace=fields["tool_name"], archive=archived["tool_name"]
        )
        yield from differ(f"evidence of {name}", record=record.evidence_status, trace=fields["evidence_status"])
        yield from differ(f"scope of {name}", record=record.scope.key, trace=fields["scope_hash"])
        yield from differ(f"error of {name}", record=record.error_code, trace=fields.get("error_code"))
        kept = record.model_dump(mode="json", exclude={"raw_response"})
        yield from differ(f"result of {name}", record=kept, archive=archived)


def _process(s: Sources, ran: list[str]) -> Iterator[str]:
    """What a user is told was checked, in order, is what was checked (R74, R92)."""
    told = s.published.get("scope") if "conclusion" in s.published else s.published.get("process")
    if told is None:
        return
    wanted = [(s.records[name].tool_name, s.records[name].evidence_status) for name in ran if name in s.records]
    yield from differ(
        "process", result=[(each["tool_name"], each["evidence_status"]) for each in told], canonical=wanted
    )


def citations(s: Sources) -> Iterator[str]:
    """Every published citation is a READY record of this Run that holds what is quoted (R74, R89, R95)."""
    for each in (
        *s.published.get("findings", ()),
        *s.published.get("items", ()),
        *s.published.get("observed_facts", ()),
    ):
        names = each.get("tool_call_ids") or [each["tool_call_id"]]
        text = each.get("statement") or each.get("text") or ""
        records = [s.records.get(name) for name in names]
        if any(record is None or record.status != "READY" or record.run_id != s.run_id for record in records):
            yield f"citation: {names} are not all READY records of this run"
            continue
        held = " ".join(" ".join(_leaves([record.agent_result, record.request])) for record in records if record)
        found = any(record is not None and record.evidence_status == "EVIDENCE_FOUND" for record in records)
        is_fact = each in s.published.get("observed_facts", ()) and found
        parts = _PART.findall(_whole_words(text)) if is_fact else _QUOTED.findall(text)
        missing = [part for part in parts if part not in held]
        if missing:
            yield f"citation: {names} do not hold {missing[:3]}"
        documents = [document["document_id"] for document in each.get("documents", ())]
        if any(document not in held for document in documents):
            yield f"citation: {names} did not return {documents}"


def _whole_words(text: str) -> str:
    """Drop what stands beside an ellipsis: a word that was cut is in no result."""
    return re.sub(r"\S*…\S*", " ", text)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif value is not None:
        yield str(value)


CALL_RULES = (model_calls, tokens, agent_steps, tool_calls, citations)
