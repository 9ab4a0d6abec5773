"""What of a traced run may leave this machine: a pure function from what a tracer would send to what is sent.

Built by allowing, never by removing: a key that is not named here stays, whatever a later version of the tracer adds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from graph.state import DiagnosisState
from tools.masking import mask_value

PROMPTS = "prompts"
MODEL_ANSWERS = "model_answers"
MODEL_PARAMETERS = "model_parameters"
ERRORS = "errors"
METADATA = "metadata"
TAGS = "tags"
CHANNELS = tuple(DiagnosisState.__annotations__)
FIELDS = (PROMPTS, MODEL_ANSWERS, MODEL_PARAMETERS, ERRORS, METADATA, TAGS, *CHANNELS)
"""What an operator may let out, one by one: what models see and say, details of a traced run, channels of the state."""

GRAPHS = ("diagnosis", "chat")
_UNKNOWN_ERROR = "Exception"
_LLM = "llm"

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@\-]{0,127}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")
_TAG = re.compile(r"(?:graph|seq):step:[0-9]{1,6}|nostream")

_AS_IS = (
    *("id", "run_id", "trace_id", "parent_run_id", "dotted_order", "start_time", "end_time", "run_type"),
    *("session_name", "session_id", "project_name", "reference_example_id", "address"),
    *("api_key", "api_url", "service_key", "tenant_id", "authorization", "cookie", "_replica_auths"),
)
"""Identity, time and destination of a traced run; the last line goes into headers, never into a body."""


def _matching(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: pattern.fullmatch(str(value)) is not None


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_METADATA: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("thread_id", "run_id", "assistant_id"), _matching(_UUID)),
    **dict.fromkeys(("langgraph_node", "graph_id", "ls_integration", "ls_provider", "ls_model_type"), _matching(_WORD)),
    **dict.fromkeys(("langgraph_step", "ls_temperature", "ls_max_tokens"), _number),
    "ls_model_name": _matching(_MODEL),
}
_TOKENS = ("input_tokens", "output_tokens", "total_tokens")


def withheld(run: Mapping[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    """Return the arguments of `create_run` or `update_run` with only what may leave; `fields` are those opted in.

    Without any: identity, times, names of graph, nodes and models, the graph's step, turn and step of the Run, its id, where
    a route led, token counts, and the type of an error.
    """
    kept = {key: run[key] for key in _AS_IS if key in run}
    kept["name"] = _name(run)
    for side, whole in (("inputs", PROMPTS), ("outputs", MODEL_ANSWERS)):
        if run.get(side) is not None:
            kept[side] = _content(run[side], run.get("run_type") == _LLM, whole, fields)
    if run.get("error") is not None:
        kept["error"] = mask_value(run["error"]) if ERRORS in fields else _error_type(run["error"])
    if run.get("events"):
        kept["events"] = [{key: event[key] for key in ("name", "time") if key in event} for event in run["events"]]
    kept["tags"] = [tag for tag in run.get("tags") or () if TAGS in fields or _TAG.fullmatch(str(tag))]
    extra = run.get("extra") or {}
    metadata = extra.get("metadata")
    kept["extra"] = {"metadata": _metadata(metadata, fields) if isinstance(metadata, Mapping) else {}}
    if MODEL_PARAMETERS in fields:
        kept["extra"] |= mask_value({key: extra[key] for key in ("invocation_params", "options") if key in extra})
    return kept


def _name(run: Mapping[str, Any]) -> str:
    """Name of a node or a model; a caller may have named the whole run, in words of its own."""
    name = str(run.get("name"))
    known = _WORD.fullmatch(name) if run.get("parent_run_id") else name in GRAPHS
    return name if known else str(run.get("run_type") or "chain")


def _content(content: Any, of_model: bool, whole: str, fields: frozenset[str]) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        return {}
    if of_model:
        return dict(content) if whole in fields else {}
    kept = {key: value for key, value in content.items() if key in fields and key in CHANNELS}
    if isinstance(position := content.get("position"), Mapping):
        kept["position"] = {key: value for key, value in position.items() if key in ("turn", "step") and _number(value)}
    if isinstance(run := content.get("run"), Mapping) and _UUID.fullmatch(str(run.get("run_id"))):
        kept.setdefault("run", {"run_id": run["run_id"]})
    if isinstance(target := content.get("output"), str) and _WORD.fullmatch(target):
        kept["output"] = target  # where a route led
    return kept


def _metadata(metadata: Mapping[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    kept = dict(metadata) if METADATA in fields else {}
    kept |= {key: metadata[key] for key, fits in _METADATA.items() if key in metadata and fits(metadata[key])}
    usage = metadata.get("usage_metadata")
    if isinstance(usage, Mapping):
        kept["usage_metadata"] = {key: usage[key] for key in _TOKENS if _number(usage.get(key))}
    return kept


def _error_type(error: Any) -> str:
    """Name of the exception's type: a traced error starts with the exception's `repr`, and the text after it stays here."""
    name = re.match(r"[A-Za-z_]\w{0,63}(?=\()", str(error))
    return name.group() if name and name.group() in _exception_names() else _UNKNOWN_ERROR


def _exception_names() -> set[str]:
    found, todo = set[type]([BaseException]), [BaseException]
    while todo:
        new = [each for each in todo.pop().__subclasses__() if each not in found]
        found.update(new)
        todo.extend(new)
    return {each.__name__ for each in found}
