"""A bundle as text and back: one entry a line, so that whatever is wrong with a file is named by its entry.

A file is exactly the bytes that `write_bundle` makes: one that parses but reads otherwise was changed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

from pydantic import ValidationError

from service.replay.bundle import Bundle, Entry
from service.replay.format import FORMAT, MAX_KEY_CHARS, RUN_ID, payload_model
from tools.scope import canonical_json

MAX_BUNDLE_BYTES: Final = 64 * 1024 * 1024
MAX_ENTRIES: Final = 100_000
MAX_DEPTH: Final = 64
"""Nesting of one entry, itself included: tool arguments and rows are far flatter."""
_NAMED = re.compile(rf'\{{"kind":"([a-z_]{{1,32}})","key":"([^"\\]{{1,{MAX_KEY_CHARS}}})"')
_KEY = re.compile(rf"[A-Za-z0-9_.:/\-]{{1,{MAX_KEY_CHARS}}}\Z")
_HEAD = re.compile(r'\{"format":"([^"\\]{0,64})","run_id":"([^"\\]{1,128})","entries":\[\Z')
_TAIL = re.compile(r'\],"digest":"([0-9a-f]{64})"\}\Z')


class BundleError(Exception):
    """A bundle cannot be used; one bounded line naming the entry and what is wrong."""


def write_bundle(bundle: Bundle) -> str:
    """Write a bundle. Raises BundleError when the Run holds what the format does not allow."""
    for entry in bundle.entries:
        _check(entry, entry.name)
    lines = ",\n".join(_line(entry) for entry in bundle.entries)
    head = f'{{"format":"{FORMAT}","run_id":{json.dumps(bundle.run_id)},"entries":['
    return f'{head}\n{lines}\n],"digest":"{bundle.digest}"}}\n'


def read_bundle(raw: bytes) -> Bundle:
    """Read a bundle, bounded in size, depth and number of entries. Raises BundleError."""
    if len(raw) > MAX_BUNDLE_BYTES:
        raise BundleError(f"bundle: larger than {MAX_BUNDLE_BYTES // 2**20} MiB")
    lines = raw.split(b"\n")
    if len(lines) < 4 or lines[-1] != b"":
        raise BundleError(f"bundle: not a run bundle ({FORMAT} has one entry a line and ends with its digest)")
    if len(lines) > MAX_ENTRIES + 3:
        raise BundleError(f"bundle: more than {MAX_ENTRIES} entries")
    run_id = _run_id(_decoded(lines[0], "bundle: first line"))
    entries = [_entry(line, number, last=number == len(lines) - 3) for number, line in enumerate(lines[1:-2], start=1)]
    bundle = Bundle(run_id, tuple(entries))
    _check_whole(bundle, _decoded(lines[-2], "bundle: last line"))
    return bundle


def _line(entry: Entry) -> str:
    head = f'"kind":{canonical_json(entry.kind)},"key":{canonical_json(entry.key)},"digest":"{entry.digest}"'
    return f'{{{head},"payload":{entry.text}}}'


def _run_id(head: str) -> str:
    match = _HEAD.match(head)
    if match is None:
        raise BundleError("bundle: first line: must name format and run id as export writes them")
    if match[1] != FORMAT:
        raise BundleError(f"bundle: format: this version reads {FORMAT}")
    if not re.fullmatch(RUN_ID, match[2]):
        raise BundleError("bundle: run_id: must be 1 to 128 letters, digits, '_', '.', ':' or '-'")
    return match[2]


def _entry(raw: bytes, number: int, *, last: bool) -> Entry:
    if not last:
        if not raw.endswith(b","):
            raise BundleError(f"{_name(raw, number)}: the line must end with a comma")
        raw = raw[:-1]
    name = _name(raw, number)
    data = _parsed(_decoded(raw, name), name)
    if not isinstance(data, dict) or list(data) != ["kind", "key", "digest", "payload"]:
        raise BundleError(f"{name}: must hold kind, key, digest and payload, in this order")
    kind, key, payload = data["kind"], data["key"], data["payload"]
    if not isinstance(kind, str) or not isinstance(key, str) or not isinstance(payload, dict):
        raise BundleError(f"{name}: kind and key must be texts, payload an object")
    entry = Entry(kind, key, payload)
    _check(entry, name)
    if entry.digest != data["digest"]:
        raise BundleError(f"{name}: its content does not match its digest: it was changed")
    if _line(entry).encode() != raw:
        raise BundleError(f"{name}: is not written as export writes it: it was changed")
    return entry


def _name(raw: bytes, number: int) -> str:
    named = _NAMED.match(raw[:400].decode("utf-8", "replace"))
    return f"entry {number} ({named[1]} {named[2][:80]})" if named else f"entry {number}"


def _decoded(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BundleError(f"{name}: not UTF-8 text") from None


def _parsed(text: str, name: str) -> Any:
    def constant(_: str) -> NoReturn:
        raise BundleError(f"{name}: NaN and infinities are not allowed")

    try:
        return json.loads(text, object_pairs_hook=_once_each(name), parse_constant=constant)
    except RecursionError:
        raise BundleError(f"{name}: nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        place = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        raise BundleError(f"{name}: not valid JSON{place}") from None


def _once_each(name: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            raise BundleError(f"{name}: a key stands twice in one object")
        return found

    return pairs


def _check(entry: Entry, name: str) -> None:
    model = payload_model(entry.kind, entry.key)
    if model is None or not _KEY.match(entry.key):
        raise BundleError(f"{name}: {FORMAT} knows no such entry")
    if _deeper_than(entry.payload, MAX_DEPTH - 1):
        raise BundleError(f"{name}: nested deeper than {MAX_DEPTH} levels")
    try:
        text = entry.text
        text.encode()
        model.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:120]
        raise BundleError(f"{name}: payload{'.' if place else ''}{place}: {first['msg'][:200]}") from None
    except UnicodeEncodeError:
        raise BundleError(f"{name}: holds text that is not Unicode (a lone surrogate)") from None
    except (ValueError, TypeError):
        raise BundleError(f"{name}: holds a number that JSON does not have") from None


def _deeper_than(value: Any, limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [child for each in level for child in _children(each)]
        if not level:
            return False
    return any(isinstance(each, dict | list) for each in level)


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _check_whole(bundle: Bundle, tail: str) -> None:
    match = _TAIL.match(tail)
    if match is None:
        raise BundleError("bundle: last line: must hold the digest of the whole as export writes it")
    names = [(entry.kind, entry.key) for entry in bundle.entries]
    if (twice := next((name for name, count in Counter(names).items() if count > 1), None)) is not None:
        raise BundleError(f"bundle: {' '.join(twice)} stands twice")
    if bundle.entries != Bundle.of(bundle.run_id, bundle.entries).entries:
        raise BundleError("bundle: entries are not in the format's order: it was changed")
    for needed in (("run", "run"), ("question", "question"), ("settings", "context"), ("settings", "harness")):
        if needed not in names:
            raise BundleError(f"bundle: {' '.join(needed)} is missing")
    if bundle.run.run_id != bundle.run_id:
        raise BundleError("bundle: run_id: is not that of entry run run")
    if match[1] != bundle.digest:
        raise BundleError("bundle: digest: the entries are not those that were exported (one was added or removed)")
