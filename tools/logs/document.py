"""A stored document (Elasticsearch, OpenSearch) as an event: what is searched are its values, not its keys. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tools.catalog import TopicEntry
from tools.logs.events import EventView, clean, flatten, lazy, value_text
from tools.logs.keys import INSTANCE_KEYS, LEVEL_KEYS, MESSAGE_KEYS, SERVICE_KEYS

MAX_LABEL_CHARS = 64


@dataclass(frozen=True, slots=True)
class Roles:
    """Which fields of a topic's documents play a part, the first that is there wins; names as the store spells them."""

    time: str
    message: tuple[str, ...]
    level: tuple[str, ...]
    service: tuple[str, ...]
    instance: tuple[str, ...]

    @staticmethod
    def of(topic: TopicEntry) -> Roles:
        """Take the catalogue's fields, or the usual names where it names none."""
        return Roles(
            topic.time_field,
            (topic.message_field,) if topic.message_field else MESSAGE_KEYS,
            (topic.level_field,) if topic.level_field else LEVEL_KEYS,
            (topic.service_field,) if topic.service_field else SERVICE_KEYS,
            (topic.instance_field,) if topic.instance_field else INSTANCE_KEYS,
        )


@dataclass(frozen=True)
class DocumentView(EventView):
    """One document as an event; `labels` come from `document_labels`."""

    document: dict[str, Any] = field(default_factory=dict)
    message_keys: tuple[str, ...] = MESSAGE_KEYS

    @lazy
    def text(self) -> str:
        """The whole document as JSON."""
        return clean(json.dumps(self.document, ensure_ascii=False))

    @lazy
    def fields(self) -> dict[str, Any]:
        """Flattened scalars, keys lower-cased."""
        return flatten(self.document)

    @lazy
    def search_text(self) -> str:
        """Lower-cased texts and numbers of the document, one a line."""
        return "\n".join(clean(value_text(value)) for value in _values(self.document)).lower()

    @lazy
    def _message_key(self) -> str | None:
        keys = (key.lower() for key in self.message_keys)
        return next((key for key in keys if isinstance(self.fields.get(key), str)), None)


def _values(document: Any) -> Iterator[str | int | float]:
    pending = [document]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending.extend(reversed(item.values()))
        elif isinstance(item, list):
            pending.extend(reversed(item))
        elif isinstance(item, str | int | float) and not isinstance(item, bool):
            yield item


def make_view(source: dict[str, Any], roles: Roles) -> DocumentView:
    """Make the event of a document's `_source`; its time is no part of what is searched."""
    document = _without(source, roles.time)
    flat = flatten(document)
    labels: dict[str, str] = {}
    for name, keys in (("level", roles.level), ("service", roles.service), ("instance", roles.instance)):
        value = next((value for key in keys if (value := flat.get(key.lower())) not in (None, "")), None)
        if isinstance(value, str | int) and not isinstance(value, bool):
            labels[name] = clean(str(value))[:MAX_LABEL_CHARS]
    return DocumentView(b"", labels=labels, document=document, message_keys=roles.message)


def _without(source: dict[str, Any], path: str) -> dict[str, Any]:
    """Leave out a field, spelt with dots or nested."""
    head, _, rest = path.partition(".")
    copy = {key: value for key, value in source.items() if key != path}
    if rest and isinstance(copy.get(head), dict):
        copy[head] = _without(copy[head], rest)
    return copy
