"""Do all sources say the same of one Run? Pure: sources in, one line per disagreement out (R154).

Every rule names itself and shows what each source says, so that a reader sees at once which of them is off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from service.run_events import VISIBLE_STAGES
from tests.e2e.agreement_calls import CALL_RULES
from tests.e2e.comparing import differ
from tests.e2e.sources import Sources

OPERATORS_ONLY = re.compile(
    r"budget|ledger|token|usage|threshold|scope_hash|internal_state|stop_reason|information_gain|execution_id|thread_id"
    r"|canonical|\blease|checkpoint|_GAIN\b|GAINED|COLLECTING|SATURATED|sqlite|postgresql|redis://"
)
"""What no event of a user's stream may hold (R55, R132)."""
_END = re.compile(r"run_ended run_id=(\S+) status=(\S+) outcome=(\S+) error_code=(\S+) seconds=(\S+)")
_BEGIN = re.compile(r"run_(?:started|taken_up) run_id=(\S+)")

Rule = Callable[[Sources], Iterator[str]]


def disagreements(sources: Sources) -> list[str]:
    """Return one line per disagreement; empty when all sources agree."""
    if len(sources.runs) != 1:
        return [f"run: {len(sources.runs)} rows in diagnosis_run"]
    return [line for rule in (*RULES, *CALL_RULES) for line in _followed(rule, sources)]


def _followed(rule: Rule, sources: Sources) -> list[str]:
    """A source that lacks what a rule reads disagrees with the others."""
    try:
        return list(rule(sources))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return [f"{rule.__name__.replace('_', ' ')}: a source lacks something ({type(error).__name__}: {error})"]


def run_ids(s: Sources) -> Iterator[str]:
    """Every source speaks of this Run."""
    yield from differ(
        "run id",
        stream=sorted({event.id.rpartition("/")[0] for event in s.events}),
        first_event=[each["run_id"] for each in s.streamed("run_started")],
        diagnosis_run=[s.run["run_id"]],
        checkpoint=[s.chat.get("run_id")],
        checkpoint_settings=[s.chat.get("run", {}).get("run_id")],
        log_begin=sorted({m[1] for m in map(_BEGIN.search, s.log) if m and m[1] == s.run_id}),
        log_end=[m[1] for m in map(_END.search, s.log) if m and m[1] == s.run_id],
        start=s.archive["id"]["0001:start_run"]["ids"],
    )


def question(s: Sources) -> Iterator[str]:
    """The question that was asked is the one that was stored and answered."""
    yield from differ(
        "query",
        asked=s.question,
        diagnosis_run=s.run["query"],
        checkpoint=s.chat.get("query"),
        archive=s.archive["question"]["question"]["query"],
        result=s.published.get("query", s.question),
    )


def intent(s: Sources) -> Iterator[str]:
    """The router's decision is the Run's intent (R97)."""
    yield from differ(
        "intent",
        diagnosis_run=s.run["intent"],
        checkpoint=s.chat.get("intent"),
        trace=[fields.get("intent") for fields in s.traced("INTENT_ROUTED")][-1],
    )


def end(s: Sources) -> Iterator[str]:
    """There is one end, and it is the same everywhere (R8, R9, R94, R108)."""
    told, archived = _END.search("\n".join(line for line in s.log if s.run_id in line)), s.archive["result"]["result"]
    decided, ended = s.traced("RELEASE_DECIDED"), s.traced("RUN_ENDED")
    yield from differ(
        "one end", RUN_STARTED=len(s.traced("RUN_STARTED")), RELEASE=len(decided), RUN_ENDED=len(ended), one=1
    )
    if not (told and decided and ended):
        yield "end: log line, RELEASE_DECIDED or RUN_ENDED is missing"
        return
    yield from differ("last event", trace=s.trace[-1]["type"], rule="RUN_ENDED")
    yield from differ(
        "outcome",
        diagnosis_run=s.run["release_outcome"],
        checkpoint=s.chat.get("release_outcome"),
        archive=archived["release_outcome"],
        trace=decided[0]["release_outcome"],
        log=told[3],
        stream=next(each["release_outcome"] for each in s.streamed("result")) if s.published else "NONE",
    )
    state = s.run["internal_state"]
    yield from differ(
        "state", diagnosis_run=state, archive=archived["internal_state"], trace=ended[0]["internal_state"]
    )
    yield from differ("reason", archive=archived["reason"], trace=decided[0]["reason"])
    yield from differ("status", diagnosis_run=s.run["status"], log=told[2], rule=_status(s))
    yield from differ(
        "error code",
        diagnosis_run=s.run["error_code"],
        checkpoint=s.chat.get("error_code"),
        archive=archived["error_code"],
        log=None if told[4] == "-" else told[4],
    )
    yield from differ(
        "stop reason",
        diagnosis_run=s.run["stop_reason"],
        archive=archived["stop_reason"],
        trace=ended[0].get("stop_reason"),
    )
    yield from differ("seconds", diagnosis_run=f"{s.run['ended_at'] - s.run['created_at']:.3f}", log=told[5])
    yield from differ("session", lock_after_the_end=s.run["session_lock"], rule=None)


def _status(s: Sources) -> str:
    state, outcome = s.run["internal_state"], s.run["release_outcome"]
    if state == "SUCCESS" or (state == "BUDGET_EXHAUSTED" and outcome == "FALLBACK"):
        return "SUCCESS"
    return "CANCELLED" if state == "CANCELLED" else "FAILED"


def published(s: Sources) -> Iterator[str]:
    """What was published is the same in row, checkpoint, archive and stream, and the text tells it (R94, R132)."""
    for name in ("published_result", "fallback"):
        streamed = [each.get(name) for each in s.streamed("result")] or [None]
        yield from differ(
            name.replace("_", " "),
            diagnosis_run=s.run[name],
            checkpoint=s.chat.get(name),
            archive=s.archive["result"]["result"][name],
            stream=streamed[0],
        )
    yield from differ("published", column=bool(s.run["published"]), row=bool(s.published))
    if s.published:
        (text,) = s.streamed("content") or [""]
        for statement in statements(s.published):
            if _words(statement) not in _words(text):
                yield f"content: the text of the stream does not tell {statement[:80]!r}"
    else:
        yield from differ(
            "error",
            stream=[each["code"] for each in s.streamed("error")],
            diagnosis_run=[s.run["error_code"] or s.run["internal_state"]],
        )


def statements(result: dict[str, Any]) -> list[str]:
    """Return the texts of a published result that a reader must be told."""
    found = [result.get("conclusion"), result.get("text"), result.get("summary")]
    for name in ("findings", "items", "observed_facts"):
        found += [each.get("statement") or each.get("text") for each in result.get(name, ())]
    return [each for each in found if each]


def _words(text: str) -> str:
    return " ".join(text.replace("`", "").split())


def path(s: Sources) -> Iterator[str]:
    """The way through the nodes is the same in journal, archive, checkpoints and stream (R4, R132)."""
    steps = [key for key in s.batches if re.fullmatch(r"\d{4}:\w+", key)]
    numbers = [int(key[:4]) for key in steps]
    shown = [(key[:4], key[5:]) for key in steps if key[5:] in VISIBLE_STAGES]
    last = max(numbers, default=0)
    yield from differ("steps", journal=numbers, rule=list(range(1, len(numbers) + 1)))
    yield from differ("path", journal=steps, archive=sorted(s.archive["step"]), clock=sorted(s.archive["clock"]))
    yield from differ("checkpoints", saved=sorted(s.positions), journal=numbers)
    yield from differ("position", checkpoint=s.chat.get("position", {}).get("step"), journal=last)
    yield from differ("last node", journal=steps[-1][5:] if steps else None, rule="release")
    yield from differ(
        "stages",
        stream=[
            (event.id.rpartition("/")[2], event.data["data"]["stage"]) for event in s.events if event.event == "status"
        ],
        journal=shown,
    )


def sequence(s: Sources) -> Iterator[str]:
    """Trace events are numbered from 1 without gaps, and their times never go back (R108)."""
    numbers, times = [row["seq"] for row in s.trace], [row["at"] for row in s.trace]
    yield from differ("seq", trace=numbers, rule=list(range(1, len(numbers) + 1)))
    yield from differ("last seq", trace=numbers[-1] if numbers else 0, cursor=s.last_seq)
    yield from differ("time", trace=times, rule=sorted(times))
    told = sum(step["events"] for step in s.archive["step"].values())
    refused = sum(row["fields_refused"] for row in s.trace)
    yield from differ("events", trace=len(s.trace), archive=told)
    yield from differ("refused fields", trace=refused, none=0)


def stream(s: Sources) -> Iterator[str]:
    """The stream has its form, ends once, and holds nothing of the operator's (R55, R132)."""
    names = [event.event for event in s.events]
    end_names = ["content", "result", "done"] if s.published else ["error"]
    yield from differ("stream", events=names, rule=["run_started", *["status"] * names.count("status"), *end_names])
    yield from differ("type", event=names, data=[event.data["type"] for event in s.events])
    keys = {key for event in s.events if isinstance(event.data["data"], dict) for key in _keys(event.data["data"])}
    operators = {name for key in keys for name in OPERATORS_ONLY.findall(key)}
    told = s.sse.replace(json.dumps(s.question, ensure_ascii=False)[1:-1], "")
    if operators or OPERATORS_ONLY.search(told):
        yield f"stream: tells the operator's {sorted(operators | set(OPERATORS_ONLY.findall(told)))}"
    for name, value in (("execution", s.run["execution_id"]), ("catalogue", "superbiz.toml"), ("home", "/home/")):
        if value and value in told:
            yield f"stream: tells the operator's {name}"


def _keys(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


def log(s: Sources) -> Iterator[str]:
    """The log names the Run when it begins and when it ends, and tells nothing of what was asked or answered (R104)."""
    ours = [line for line in s.log if s.run_id in line]
    begun = [line for line in ours if _BEGIN.search(line)]
    ended = [line for line in ours if _END.search(line)]
    yield from differ("log", begins=len(begun) >= 1, ends=len(ended) == 1, other_lines=len(ours) == len(begun) + 1)
    text = "\n".join(s.log)
    for secret in (s.question, *statements(s.published)):
        if secret in text:
            yield f"log: tells {secret[:40]!r}"


RULES: tuple[Rule, ...] = (run_ids, question, intent, end, published, path, sequence, stream, log)
