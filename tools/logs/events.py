"""From the bytes of one event to its parts: level, service, instance, message, attributes. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from tools.logs.keys import INSTANCE_KEYS, LEVEL_KEYS, MESSAGE_KEYS, SERVICE_KEYS, STACK_KEYS, TIME_KEYS
from tools.logs.levels import (
    level_of_letter,
    level_of_mark,
    level_of_priority,
    level_of_second_line,
    level_of_text,
    level_of_value,
)
from tools.logs.noise import ANSI_TEXT

MAX_JSON_CHARS = 256 * 1024
MAX_ATTRIBUTES = 16
MAX_ATTRIBUTE_CHARS = 300
MAX_NAME_CHARS = 64
_MAX_FLAT_KEYS = 400
_MAX_FLAT_DEPTH = 6
_JSON_PREFIX_CHARS = 300

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_LEADING = re.compile(r"^[\]\"')]?[\s\])|,;]*(?:[-:]\s)?\s*")
_SYSLOG = re.compile(r"(?P<host>[\w.\-/@]{1,64}) (?P<program>[\w.\-/()]{1,64})(?:\[\d{1,10}\])?: ")
_SYSLOG_RFC5424 = re.compile(r"(?P<host>[\w.\-/@:]{1,64}) (?P<program>[\w.\-/()@]{1,64}) \S{1,128} \S{1,64} (?:-|\[)")
_SYSLOG_ISO = re.compile(
    r"(?P<host>[\w.\-]{1,64}) (?P<program>[\w.\-/()@]{1,64}(?=\[\d{1,10}\]: )|(?:kernel|systemd|sudo|su|CRON)(?=: ))"
)
_CONTAINER = re.compile(r"(?P<stamp>\S{20,40} )std(?:out|err) (?P<part>[FP]) ")
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
        """The whole event as clean text, without what a container runtime puts before its lines."""
        text = clean(self.raw.decode("utf-8", "replace")).strip("\n")
        return _unwrapped(text) if _CONTAINER.match(text) else text

    @lazy
    def first_line(self) -> str:
        """The first line of the text."""
        return self.text.split("\n", 1)[0]

    @lazy
    def is_object(self) -> bool:
        """True for a JSON object that is written over several lines."""
        return self.first_line.rstrip() == "{"

    @lazy
    def fields(self) -> dict[str, Any]:
        """Flattened JSON of the first line (whole, or after a prefix), keys lower-cased; empty when it holds none."""
        line = self.text if self.is_object else self.first_line
        start = line.find("{", 0, _JSON_PREFIX_CHARS)
        if start < 0 or len(line) > MAX_JSON_CHARS or not (self.is_object or line.rstrip().endswith("}")):
            return {}
        try:
            value = _read_object(line) if self.is_object else json.loads(line[start:])
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
        return self._level_of_store or level_of_mark(self.first_line) or self._level_of_text()

    @lazy
    def _level_of_store(self) -> str | None:
        """Level of a journal's or MongoDB's document, whose keys say too little alone."""
        if "__realtime_timestamp" in self.fields:
            return level_of_value(self.fields.get("priority"))
        return level_of_letter(self.fields.get("s")) if "ctx" in self.fields else None

    def _level_of_text(self) -> str | None:
        """Look before the time and at the head of the line; of a JSON line, at the head of its message."""
        if not self.fields:
            stated = self._level_before_stamp() or level_of_text(self.after_stamp.split("\n", 1)[0])
            stated = stated or level_of_mark(self.after_stamp) or level_of_priority(self.first_line)
            return stated or level_of_second_line(self._second_line)
        before = self.after_stamp.split("{", 1)[0]
        said = level_of_text(self.message.split("\n", 1)[0]) if self._message_key else None
        return level_of_text(before) or said

    def _level_before_stamp(self) -> str | None:
        head = self.raw[: self.stamp_end]
        if not head or head[:1].isdigit() or head[1:2].isdigit():
            return None
        return level_of_text(clean(head.decode("utf-8", "replace")))

    @lazy
    def _second_line(self) -> str:
        """The second line of a record whose first one ends without a message; else empty."""
        return self.text.split("\n", 2)[1] if self.stamp_end and "\n" in self.text else ""

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
            return self._name_of_store() if keys is SERVICE_KEYS else None
        # A line without time and level that does not begin with a pair is a description: its pairs tell of others.
        if self.stamp_end or self.level or _FIRST_PAIR.match(self.first_line):
            for match in _PAIR.finditer(self.first_line, 0, 2000):
                if match.group("key") in pairs:
                    return match.group("value")
        syslog = self._syslog
        return syslog.group(group) if syslog else None

    def _name_of_store(self) -> str | None:
        """MongoDB's component, or what a bunyan logger is called."""
        key = "c" if "ctx" in self.fields else "name" if "v" in self.fields and "hostname" in self.fields else ""
        value = self.fields.get(key)
        return clean(value)[:MAX_NAME_CHARS] if isinstance(value, str) and value else None

    @lazy
    def _syslog(self) -> re.Match[str] | None:
        """Host and program of a line in one of syslog's formats."""
        line = self.first_line
        if not self.stamp_end:
            return None
        if line[0] == "<" and ">1 " in line[:6]:
            return _SYSLOG_RFC5424.match(self.after_stamp)
        if line[0] == "<" or line[:3].isalpha():
            return _SYSLOG.match(self.after_stamp)
        return _SYSLOG_ISO.match(self.after_stamp) if line[10:11] == "T" else None

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
            text = self.after_stamp.strip()
            return text.replace("\n", " ", 1) if level_of_second_line(self._second_line) else text
        parts = [clean(value_text(self.fields[key])).rstrip()]
        parts += [clean(str(self.fields[name])).rstrip() for name in STACK_KEYS if self.fields.get(name)]
        rest = self.text.partition("\n}" if self.is_object else "\n")[2].strip(",\n") if "\n" in self.text else ""
        parts += [rest.rstrip()] if rest else []
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


def _read_object(text: str) -> Any:
    return json.JSONDecoder().raw_decode(text)[0]


def _unwrapped(text: str) -> str:
    """Drop the runtime's time, stream and tag from the lines of one event, but for its first time; join partial lines."""
    lines: list[str] = []
    partial = False
    for line in text.split("\n"):
        head = _CONTAINER.match(line)
        said = line[head.end() :] if head else line
        if head and not lines:
            said = head["stamp"] + said
        if partial:
            lines[-1] += said
        else:
            lines.append(said)
        partial = head is not None and head["part"] == "P"
    return "\n".join(lines)


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
