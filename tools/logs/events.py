"""From the bytes of one event to its parts: level, service, instance, message, attributes. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from tools.logs.keys import INSTANCE_KEYS, LEVEL_KEYS, MESSAGE_KEYS, SERVICE_KEYS, STACK_KEYS, TIME_KEYS
from tools.logs.levels import klog_level, level_of_text, level_of_value
from tools.logs.noise import ANSI_TEXT

MAX_JSON_CHARS = 256 * 1024
MAX_ATTRIBUTES = 16
MAX_ATTRIBUTE_CHARS = 300
MAX_NAME_CHARS = 64
_MAX_FLAT_KEYS = 400
_MAX_FLAT_DEPTH = 6
_JSON_PREFIX_CHARS = 300

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_LEADING = re.compile(r"^[\s\]\"')|,;]*(?:[-:]\s)?\s*")
_SYSLOG = re.compile(r"(?P<host>[\w.\-/@]{1,64}) (?P<program>[\w.\-/()]{1,64})(?:\[\d{1,10}\])?: ")
_PAIR = re.compile(
    r"(?:^|(?<=[\s,\[]))(?<!\w: )(?P<key>service|service_name|app|instance|host|hostname|pod)="
    r"\"?(?P<value>[\w.\-:/]{1,64})"
)
_FIRST_PAIR = re.compile(r"[\w.\-]{1,64}=")
_NO_VALUE = re.compile(r'"[^"\\\n]{0,100}"\s{0,4}:\s{0,4}(?:null\b|""|\[\]|\{\})')

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801 - used like `property`
    """A property worked out once; `functools.cached_property` takes a lock each time, which is felt per event."""

    def __init__(self, work: Callable[[Any], T]) -> None:
        self.work = work
        self.name = work.__name__
        self.__doc__ = work.__doc__

    @overload
    def __get__(self, item: None, owner: type) -> lazy[T]: ...

    @overload
    def __get__(self, item: object, owner: type) -> T: ...

    def __get__(self, item: object | None, owner: type) -> T | lazy[T]:
        """Work the value out and keep it in the object's dictionary, where it is found first from then on."""
        if item is None:
            return self
        value = self.work(item)
        item.__dict__[self.name] = value
        return value


def clean(text: str) -> str:
    """Strip ANSI colours and control characters; line ends become newlines."""
    if "\x1b" in text:
        text = ANSI_TEXT.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("", text)


def flatten(value: dict[str, Any]) -> dict[str, Any]:
    """Return the scalars of nested JSON objects by dotted, lower-cased key; lists become JSON text."""
    flat: dict[str, Any] = {}
    pending: list[tuple[str, Any, int]] = [("", value, 0)]
    while pending and len(flat) < _MAX_FLAT_KEYS:
        prefix, item, depth = pending.pop()
        if isinstance(item, dict) and depth < _MAX_FLAT_DEPTH:
            for key, inner in reversed(item.items()):
                pending.append((f"{prefix}.{key}" if prefix else str(key), inner, depth + 1))
        elif isinstance(item, dict | list):
            flat[prefix.lower()] = json.dumps(item, ensure_ascii=False)[: MAX_ATTRIBUTE_CHARS * 4] if item else ""
        else:
            flat[prefix.lower()] = item
    return flat


def value_text(value: Any) -> str:
    """Write a JSON scalar as a log would: true, null, 200, text."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)


@dataclass(frozen=True)
class EventView:
    """One event as the matcher and the result see it; parts are worked out when asked for.

    `stamp_end` is where the leading timestamp of the first line ends, in bytes; 0 when there is none to cut. `labels` is
    what the store itself says of the event, by lower-cased name; `level`, `service` and `instance` among them win over
    what the text says.
    """

    raw: bytes
    stamp_end: int = 0
    labels: Mapping[str, str] | None = None

    @lazy
    def text(self) -> str:
        """The whole event as clean text."""
        return clean(self.raw.decode("utf-8", "replace")).strip("\n")

    @lazy
    def first_line(self) -> str:
        """The first line of the text."""
        return self.text.split("\n", 1)[0]

    @lazy
    def fields(self) -> dict[str, Any]:
        """Flattened JSON of the first line (whole, or after a prefix), keys lower-cased; empty when it holds none."""
        line = self.first_line
        start = line.find("{", 0, _JSON_PREFIX_CHARS)
        if start < 0 or not line.rstrip().endswith("}") or len(line) > MAX_JSON_CHARS:
            return {}
        try:
            value = json.loads(line[start:])
        except (ValueError, RecursionError):
            return {}
        if not isinstance(value, dict):
            return {}
        flat = flatten(value)
        known = start == 0 or not line[:start].strip() or any(key in flat for key in (*LEVEL_KEYS, *MESSAGE_KEYS))
        return flat if known else {}

    @lazy
    def search_text(self) -> str:
        """Lower-cased text to search: the event as written, and its JSON strings decoded where they hold escapes.

        JSON keys without a value are left out: `"error": null` is no error.
        """
        text = self.text
        if self.fields and ("null" in text or '""' in text):
            text = _NO_VALUE.sub("", text)
        if "\\" in text and self.fields:
            text = "\n".join((text, *(clean(value) for value in self.fields.values() if isinstance(value, str))))
        return text.lower()

    @lazy
    def search_bytes(self) -> bytes:
        """`search_text` in UTF-8."""
        return self.search_text.encode("utf-8", "replace")

    @lazy
    def level(self) -> str | None:
        """Canonical level or None."""
        labelled = level_of_value(self.labels.get("level")) if self.labels else None
        if labelled is not None:
            return labelled
        for key in LEVEL_KEYS if self.fields else ():
            if key in self.fields:
                return level_of_value(self.fields[key])
        return klog_level(self.first_line) or self._level_of_text()

    def _level_of_text(self) -> str | None:
        """Look at the head of the line; of a JSON line, at the head of its message."""
        if not self.fields:
            return level_of_text(self.after_stamp.split("\n", 1)[0])
        before = self.after_stamp.split("{", 1)[0]
        said = level_of_text(self.message.split("\n", 1)[0]) if self._message_key else None
        return level_of_text(before) or said

    @lazy
    def service(self) -> str | None:
        """Service name from JSON keys, `service=` pairs or a syslog program name."""
        labelled = self.labels.get("service") if self.labels else None
        return labelled or self._name(SERVICE_KEYS, ("service", "service_name", "app"), "program")

    @lazy
    def instance(self) -> str | None:
        """Instance, pod or host name from JSON keys, `host=` pairs or a syslog header."""
        labelled = self.labels.get("instance") if self.labels else None
        return labelled or self._name(INSTANCE_KEYS, ("instance", "host", "hostname", "pod"), "host")

    def _name(self, keys: tuple[str, ...], pairs: tuple[str, ...], group: str) -> str | None:
        if self.fields:
            for key in keys:
                value = self.fields.get(key)
                if isinstance(value, str) and value:
                    return clean(value)[:MAX_NAME_CHARS]
            return None
        # A line without time and level that does not begin with a pair is a description: its pairs tell of others.
        if self.stamp_end or self.level or _FIRST_PAIR.match(self.first_line):
            for match in _PAIR.finditer(self.first_line, 0, 2000):
                if match.group("key") in pairs:
                    return match.group("value")
        if self.stamp_end and self.first_line[:3].isalpha():
            syslog = _SYSLOG.match(self.after_stamp)
            return syslog.group(group) if syslog else None
        return None

    @lazy
    def after_stamp(self) -> str:
        """The text without its leading timestamp."""
        if not self.stamp_end:
            return self.text
        head = clean(self.raw[: self.stamp_end].decode("utf-8", "replace"))
        rest = self.text[len(head) :] if self.text.startswith(head) else self.text
        return _LEADING.sub("", rest, count=1)

    @lazy
    def message(self) -> str:
        """What the event says: the JSON message with its stack trace, or the text after the timestamp."""
        key = self._message_key
        if key is None:
            return self.after_stamp.strip()
        parts = [clean(value_text(self.fields[key])).rstrip()]
        parts += [clean(str(self.fields[name])).rstrip() for name in STACK_KEYS if self.fields.get(name)]
        if "\n" in self.text:
            parts.append(self.text.split("\n", 1)[1].rstrip())
        return "\n".join(parts)

    @lazy
    def _message_key(self) -> str | None:
        if not self.fields:
            return None
        return next((key for key in MESSAGE_KEYS if isinstance(self.fields.get(key), str)), None)

    @lazy
    def attributes(self) -> dict[str, Any]:
        """Other JSON attributes: at most 16 finite scalars, text of at most 300 characters; nested keys are dotted."""
        if self._message_key is None:
            return {}
        used = {self._message_key, *LEVEL_KEYS, *STACK_KEYS, *TIME_KEYS}
        kept: dict[str, Any] = {}
        for key, value in self.fields.items():
            if key in used or value is None or value == "" or (isinstance(value, float) and not math.isfinite(value)):
                continue
            if isinstance(value, str) and clean(value)[:MAX_NAME_CHARS] in (self.service, self.instance):
                continue
            kept[clean(key)[:MAX_NAME_CHARS]] = _bounded(value)
            if len(kept) == MAX_ATTRIBUTES:
                break
        return kept


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)[:MAX_ATTRIBUTE_CHARS]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**63:
        return str(value)[:MAX_ATTRIBUTE_CHARS] if abs(value) < 10**MAX_ATTRIBUTE_CHARS else "(large number)"
    return value


@dataclass(frozen=True, slots=True)
class EventCut:
    """Where an event lies in its block and when it happened (None: the file tells no time).

    `stamp_end` is the length of the timestamp that leads the first line. `implied`: the event tells no time itself, it
    comes before the first timestamp of its file.
    """

    start: int
    end: int
    epoch: float | None
    stamp_end: int = 0
    implied: bool = False
